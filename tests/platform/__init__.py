"""The kit on the memory bus and the memory workspace, in virtual time."""
