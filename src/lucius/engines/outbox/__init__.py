"""The outbox engine: the ledger is the truth, and this only delivers."""
