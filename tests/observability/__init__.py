"""Logs, metrics and traces: what an operator would look at, looked at."""
