"""Waiting for what another process does."""

import time
from collections.abc import Callable

PATIENCE = 60.0


def soon(holds: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether it holds within that time."""
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        if holds():
            return True
        time.sleep(0.02)
    return False
