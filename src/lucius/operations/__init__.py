"""For those who run it: why a job waits, failures in groups, redrive plans, webhooks, retention."""
