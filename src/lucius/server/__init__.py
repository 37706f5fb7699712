"""The HTTP server itself: bounds of the protocol, and clients that are too slow."""
