"""Documentation whose commands run."""
