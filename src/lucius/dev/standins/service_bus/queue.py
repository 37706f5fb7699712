"""One queue of the broker: what is ready, what is locked, who listens."""

import asyncio
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from time import time
from typing import Any, Final, Protocol
from uuid import UUID, uuid4

from lucius.dev.standins.service_bus.messages import Stored

Changes = Mapping[Any, Any] | None
"""Application properties that a receiver gives a message as it settles it."""

# The sessions of a queue: who has which one, until when, and who waits for the next that is free.
#
# As on Azure, a lock that runs out counts as a failed delivery of what was locked in the session, and a
# receiver that closes gives it back uncounted.


class Holder(Protocol):
    """The link of a receiver that has a session."""

    def lose(self) -> None:
        """Its lock has run out: the link ends."""


class SessionLock:
    def __init__(self, name: str, holder: Holder, until: float) -> None:
        self.name = name
        self.holder = holder
        self.until = until
        self.timer: asyncio.TimerHandle | None = None


class Waiting:
    """A receiver that takes the next session. `served` gets its name, or None when the wait is over."""

    def __init__(self, served: Callable[[str | None], None]) -> None:
        self.served = served
        self.timer: asyncio.TimerHandle | None = None


class Sessions:
    """`span`: how long a lock holds, in seconds. `freed`: told the name, and whether its lock ran out."""

    def __init__(self, span: Callable[[], float], freed: Callable[[str, bool], None]) -> None:
        self._span = span
        self._freed = freed
        self._locks: dict[str, SessionLock] = {}
        self._waiting: list[Waiting] = []

    def until(self, name: str) -> float:
        return self._locks[name].until

    def is_free(self, name: str) -> bool:
        return name not in self._locks

    def lock(self, name: str, holder: Holder) -> None:
        self._locks[name] = held = SessionLock(name, holder, 0.0)
        self._extend(held)

    def renew(self, name: str) -> float | None:
        """When it ends now. None: nobody has it."""
        held = self._locks.get(name)
        return None if held is None else self._extend(held)

    def _extend(self, held: SessionLock) -> float:
        if held.timer is not None:
            held.timer.cancel()
        span = self._span()
        held.until = time() + span
        held.timer = asyncio.get_running_loop().call_later(span, self.expire, held.name)
        return held.until

    def expire(self, name: str) -> None:
        self._free(name, ran_out=True).lose()

    def release(self, holder: Holder) -> None:
        """The receiver has closed its link."""
        for name in [name for name, held in self._locks.items() if held.holder is holder]:
            self._free(name, ran_out=False)

    def _free(self, name: str, *, ran_out: bool) -> Holder:
        held = self._locks.pop(name)
        if held.timer is not None:
            held.timer.cancel()
        self._freed(name, ran_out)
        return held.holder

    # -- waiting for the next one ------------------------------------------------------------

    def wait(self, patience: float, served: Callable[[str | None], None]) -> Waiting:
        waiting = Waiting(served)
        later = asyncio.get_running_loop().call_later
        waiting.timer = later(patience, self._serve, waiting, None)
        self._waiting.append(waiting)
        return waiting

    def leave(self, waiting: Waiting) -> None:
        """It waits no more: its connection has gone."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        if waiting.timer is not None:
            waiting.timer.cancel()

    def _serve(self, waiting: Waiting, name: str | None) -> None:
        self.leave(waiting)
        waiting.served(name)

    def hand_out(self, ready: Iterable[Stored]) -> None:
        """Give each free session with a message to whoever waits longest. `ready` is in order."""
        if not self._waiting:
            return
        for message in ready:
            name = message.session_id
            if self._waiting and name is not None and self.is_free(name):
                self._serve(self._waiting[0], name)

    def next_free(self, ready: Iterable[Stored]) -> str | None:
        """The free session whose message has waited longest."""
        names = (message.session_id for message in ready)
        return next((name for name in names if name is not None and self.is_free(name)), None)


REASON: Final = "DeadLetterReason"
DESCRIPTION: Final = "DeadLetterErrorDescription"
NO_SESSION: Final = "Session ID is null"
"""Why a message without a session is set aside where sessions are required."""


@dataclass(frozen=True)
class QueueOptions:
    lock: timedelta = timedelta(seconds=60)
    max_deliveries: int | None = 10
    """None: without end, as in dead-letter queues."""
    ttl: timedelta | None = None
    dead_letter_expired: bool = False
    sessions: bool = False


@dataclass(order=True)
class Item:
    sequence: int
    message: Stored = field(compare=False)
    enqueued_at: float = field(compare=False)
    expires_at: float | None = field(default=None, compare=False)
    failed: int = field(default=0, compare=False)
    """Deliveries that were not completed."""
    locked_until: float = field(default=0.0, compare=False)
    timer: asyncio.TimerHandle | None = field(default=None, compare=False, repr=False)

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= time()


class Outlet(Protocol):
    """A link that messages go out through."""

    credit: int
    session: str | None

    def deliver(self, item: Item, token: UUID, queue: "Queue") -> bool:
        """Send it. True: it is settled already and not to be locked."""


class Queue:
    """Messages go out in their order; one that comes back has its old place."""

    def __init__(self, name: str, options: QueueOptions, dead: "Queue | None" = None) -> None:
        self.name = name
        self.options = options
        self.dead = dead
        self.outlets: list[Outlet] = []
        self.locked: dict[UUID, Item] = {}
        self.deferred: dict[int, Item] = {}
        self.sessions = Sessions(lambda: self.options.lock.total_seconds(), self._session_freed)
        self._ready: list[Item] = []
        self._sequence = 0
        self._changed = asyncio.Event()

    def put(self, message: Stored, default_ttl: timedelta | None = None) -> None:
        now = time()
        spans = [span.total_seconds() for span in (default_ttl, self.options.ttl) if span]
        spans += [message.ttl] if message.ttl is not None else []
        self._sequence += 1
        item = Item(self._sequence, message, now, now + min(spans) if spans else None)
        if self.options.sessions and message.session_id is None:
            self._set_aside(item, NO_SESSION, "The subscription requires sessions.")
            return
        if spans:
            asyncio.get_running_loop().call_later(min(spans), self._drop_expired)
        self._offer(item)

    def _offer(self, item: Item) -> None:
        heapq.heappush(self._ready, item)
        self.pump()

    def __iter__(self) -> Iterator[Item]:
        """All that is here, locked or not, in order."""
        return iter(sorted([*self._ready, *self.locked.values(), *self.deferred.values()]))

    # -- going out ---------------------------------------------------------------------------

    def pump(self) -> None:
        """Give what is ready to those who have credit, in turn, and sessions to those who wait."""
        while (found := self._match()) is not None:
            outlet, item = found
            self._take_out(item)
            if item.expired:
                self._expire(item)
                continue
            self.outlets.append(self.outlets.pop(self.outlets.index(outlet)))
            self._deliver(outlet, item)
        if self.options.sessions:
            self.sessions.hand_out([item.message for item in sorted(self._ready)])
        self._changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """For tests: wait for what a client will do here."""
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    def _match(self) -> tuple[Outlet, Item] | None:
        if not self._ready:
            return None
        for outlet in self.outlets:
            if outlet.credit > 0:
                if outlet.session is None:
                    return outlet, self._ready[0]
                mine = [i for i in self._ready if i.message.session_id == outlet.session]
                if mine:
                    return outlet, min(mine)
        return None

    def _take_out(self, item: Item) -> None:
        if item is self._ready[0]:
            heapq.heappop(self._ready)
        else:
            self._ready.remove(item)
            heapq.heapify(self._ready)

    def _deliver(self, outlet: Outlet, item: Item) -> None:
        token = uuid4()
        if outlet.session is None:
            item.locked_until = time() + self.options.lock.total_seconds()
        else:
            item.locked_until = self.sessions.until(outlet.session)
        if not outlet.deliver(item, token, self):
            self.locked[token] = item
            if outlet.session is None:
                self._arm(token, item)

    def _arm(self, token: UUID, item: Item) -> None:
        span = self.options.lock.total_seconds()
        item.timer = asyncio.get_running_loop().call_later(span, self._lock_ran_out, token)

    def _lock_ran_out(self, token: UUID) -> None:
        item = self.locked.pop(token, None)
        if item is not None:
            self._back(item, failed=True)

    def free_session(self, wanted: str | None) -> str | None:
        """That session, or any that waits, unless someone has it."""
        if wanted is not None:
            return wanted if self.sessions.is_free(wanted) else None
        return self.sessions.next_free(item.message for item in sorted(self._ready))

    def _session_freed(self, name: str, ran_out: bool) -> None:
        """What was locked in the session is ready again."""
        self.outlets[:] = [outlet for outlet in self.outlets if outlet.session != name]
        for token, item in list(self.locked.items()):
            if item.message.session_id == name:
                del self.locked[token]
                self._back(item, failed=ran_out)
        self.pump()

    # -- coming back -------------------------------------------------------------------------

    def unlock(self, token: UUID) -> Item | None:
        """None: the lock is lost."""
        item = self.locked.pop(token, None)
        if item is not None and item.timer is not None:
            item.timer.cancel()
        self._changed.set()
        return item

    def renew(self, token: UUID) -> float | None:
        item = self.unlock(token)
        if item is None:
            return None
        item.locked_until = time() + self.options.lock.total_seconds()
        self.locked[token] = item
        self._arm(token, item)
        return item.locked_until

    def complete(self, token: UUID) -> bool:
        return self.unlock(token) is not None

    def abandon(self, token: UUID, *, failed: bool = True, changes: Changes = None) -> bool:
        item = self._unlocked(token, changes)
        if item is not None:
            self._back(item, failed=failed)
        return item is not None

    def defer(self, token: UUID, changes: Changes = None) -> bool:
        item = self._unlocked(token, changes)
        if item is not None:
            self.deferred[item.sequence] = item
        return item is not None

    def dead_letter(
        self, token: UUID, reason: str, description: str, changes: Changes = None
    ) -> bool:
        item = self._unlocked(token, changes)
        if item is not None:
            self._set_aside(item, reason, description)
        return item is not None

    def _unlocked(self, token: UUID, changes: Changes) -> Item | None:
        """Unlocked, with the application properties that the receiver gave it."""
        item = self.unlock(token)
        if item is not None and changes:
            named = {str(name): value for name, value in changes.items()}
            item.message = replace(item.message, application={**item.message.application, **named})
        return item

    def _back(self, item: Item, *, failed: bool) -> None:
        item.failed += failed
        most = self.options.max_deliveries
        if most is not None and item.failed >= most:
            said = f"Message could not be consumed after {item.failed} delivery attempts."
            self._set_aside(item, "MaxDeliveryCountExceeded", said)
        else:
            self._offer(item)

    def _set_aside(self, item: Item, reason: str, description: str) -> None:
        marked = item.message.marked(**{REASON: reason, DESCRIPTION: description})
        (self.dead or self).put(marked)

    def _drop_expired(self) -> None:
        for item in [each for each in self._ready if each.expired]:
            self._take_out(item)
            self._expire(item)

    def _expire(self, item: Item) -> None:
        if self.options.dead_letter_expired and self.dead is not None:
            said = "The message expired and was dead lettered."
            self._set_aside(item, "TTLExpiredException", said)
