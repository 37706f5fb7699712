"""The ledgers on Azure Table Storage: `ledger`, one table of jobs, and `table`, one for each kind of row."""
