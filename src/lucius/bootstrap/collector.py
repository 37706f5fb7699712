"""How often Python looks for cycles in processes that run for long."""

import gc
from typing import Final

COLLECT: Final = (50_000, 20, 50)


def settle_collector() -> None:
    """Aggregates are values without cycles: counting references frees them, so look for cycles rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)
