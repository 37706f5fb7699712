"""The pure core: what a job is and how it moves. Standard library only, no clock, no I/O."""
