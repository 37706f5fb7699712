"""The pure core: what a job and a batch are, and the functions that move them. No clock, no I/O."""
