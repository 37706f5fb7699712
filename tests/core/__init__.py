"""Tests of the pure core: directed examples, properties, and the exploration of small worlds."""
