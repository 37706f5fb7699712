"""The pull gateway, for workers that speak only HTTP."""
