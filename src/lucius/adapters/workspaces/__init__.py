"""Adapters of the workspace port, one file per technology."""
