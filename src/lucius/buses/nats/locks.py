"""The locks of this process: which deliveries it holds, and until when.

The broker accepts a settlement after the lock has expired, so this refuses it.
"""

import asyncio

from lucius.core.errors import LockLostError
from lucius.ports.bus import Delivery, Subscription


def held(spec: Subscription) -> float:
    """Seconds for which a lock counts here: fewer than at the broker, whose clock started earlier."""
    lock = spec.lock.total_seconds()
    return lock - min(1.0, lock / 10)


class Locks:
    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def hold(self, token: str, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        self._forget(now)
        self._until[token] = now + seconds

    def _forget(self, now: float) -> None:
        """Forget expired locks. The oldest come first, so this stops at the first that still holds."""
        while self._until:
            token = next(iter(self._until))
            if self._until[token] > now:
                return
            del self._until[token]

    def check(self, delivery: Delivery) -> float:
        """When the lock expires. Raises LockLostError if it has expired or was settled."""
        until = self._until.get(delivery.lock_token)
        if until is None or until <= asyncio.get_running_loop().time():
            raise LockLostError(f"the lock on {delivery.message.message_id} is gone")
        return until

    def release(self, delivery: Delivery) -> float:
        until = self.check(delivery)
        del self._until[delivery.lock_token]
        return until

    def keep(self, delivery: Delivery, until: float) -> None:
        """Keep a lock whose settlement failed, so that it can be tried again."""
        self._until[delivery.lock_token] = until
