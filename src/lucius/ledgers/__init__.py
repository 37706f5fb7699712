"""Ledger adapters: one file per technology, all behind `lucius.ports.ledger`."""
