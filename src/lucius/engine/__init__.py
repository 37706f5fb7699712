"""The engine: the loop of inbox, turn, commit and effects, and what feeds it. The ledger is the truth."""
