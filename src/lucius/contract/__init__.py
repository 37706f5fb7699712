"""What clients and servers share: words, error codes, models of all they say. It imports neither of them."""

from typing import Final

DEFAULT_URL: Final = "http://127.0.0.1:8700"
ENDED: Final = frozenset(("SUCCEEDED", "FAILED_FINAL", "CANCELLED"))
"""States of a job that never change again."""
