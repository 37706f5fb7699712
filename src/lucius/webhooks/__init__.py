"""Completion webhooks: signed, and never aimed inside the house."""
