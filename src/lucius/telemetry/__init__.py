"""Logs and traces, for every layer. Neither knows where it ends up: bootstrap decides that."""
