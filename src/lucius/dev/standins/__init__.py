"""Servers that stand in for services which cannot be had on every machine. Nothing here is for production."""
