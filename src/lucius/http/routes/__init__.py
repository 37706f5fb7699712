"""The operations, one file for each kind of caller."""
