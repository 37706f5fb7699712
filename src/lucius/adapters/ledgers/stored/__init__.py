"""The stored form that all ledgers share."""
