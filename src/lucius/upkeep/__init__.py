"""Looking after stored data: verify it, prune it, find outputs that no job answers for."""
