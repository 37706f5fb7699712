"""The embedded ledger: one SQLite file and one writing process."""
