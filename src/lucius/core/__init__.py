"""The pure core: what a job is, and the function that moves it. No clock, no I/O."""
