"""Adapters of the bus port, one file per technology."""
