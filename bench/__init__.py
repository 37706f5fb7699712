"""Benchmarks: `make bench` prints one table and writes bench/results.json."""
