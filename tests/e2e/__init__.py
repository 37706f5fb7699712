"""Whole stacks as real processes: the same stories on each of them."""
