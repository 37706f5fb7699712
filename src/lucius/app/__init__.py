"""The composition root: settings, the wiring of every process, and how each starts and ends."""
