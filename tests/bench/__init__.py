"""Tests of what the benchmarks say, not of how fast anything is."""
