"""The data of the transition tables, one file for each machine."""
