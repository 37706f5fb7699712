"""Which deliveries are ours, and until when.

The broker takes a late answer for a good one, so it is refused here.
"""

import asyncio

from lucius.core.errors import LockLostError
from lucius.ports.bus import Delivery, Subscription


def held(spec: Subscription) -> float:
    """Seconds for which a lock is relied on: less than the broker grants, whose clock began earlier."""
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
        """The oldest come first; what follows one that still holds is looked at another time."""
        while self._until:
            token = next(iter(self._until))
            if self._until[token] > now:
                return
            del self._until[token]

    def check(self, delivery: Delivery) -> float:
        """Until when it is ours. LockLostError: it was settled, or its time is over."""
        until = self._until.get(delivery.lock_token)
        if until is None or until <= asyncio.get_running_loop().time():
            raise LockLostError(f"the lock on {delivery.message.message_id} is gone")
        return until

    def release(self, delivery: Delivery) -> float:
        until = self.check(delivery)
        del self._until[delivery.lock_token]
        return until

    def keep(self, delivery: Delivery, until: float) -> None:
        """It could not be settled, and may be tried again."""
        self._until[delivery.lock_token] = until
