"""What is known beside the jobs: who is at work, what is paused, what failed alike, and why a job waits."""
