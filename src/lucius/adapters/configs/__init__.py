"""Adapters of the configuration port, one file per source."""
