"""The client, over real connections."""
