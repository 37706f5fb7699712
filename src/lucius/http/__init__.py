"""The HTTP surface: requests in, answers and problem documents out. It decides nothing about jobs."""
