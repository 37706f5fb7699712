"""What the benchmarks compare with is the same work."""
