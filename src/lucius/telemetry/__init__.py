"""Logs, traces and metrics for every layer. Bootstrap decides where they go."""
