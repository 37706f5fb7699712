"""The ports: what the core and the engines need from the world, one small protocol a file."""
