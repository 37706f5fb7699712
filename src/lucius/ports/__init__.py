"""The ports: what the rest needs from the world, one small protocol a file."""
