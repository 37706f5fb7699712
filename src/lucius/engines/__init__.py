"""Engines behind the engine port: one folder each."""
