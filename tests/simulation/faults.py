"""Ledger, leases, bus and workspace as a process sees them: over a network that delays, repeats and fails.

What is asked of a remote one is done by a process of its own, so it may be done although its caller is dead.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import timedelta
from random import Random
from typing import Any, Protocol, cast

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.core.errors import (
    BusUnavailableError,
    LedgerUnavailableError,
    LockLostError,
    PublishRefusedError,
    WorkspaceError,
)
from lucius.core.wire import NUDGE
from lucius.engine.ownership import NOBODY
from lucius.ports.bus import Broker, Delivery, Message, Subscription
from lucius.ports.ledger import (
    AnswerWrites,
    JobSave,
    Ledger,
    LedgerCapabilities,
    Write,
    WriteOutcome,
    save_each,
)
from lucius.ports.workspace import Digest
from tests.simulation.loop import PROCESS, Process, SimLoop, context_of


class Faults:
    """Which faults are in force now. `seen` counts those that have really hit something."""

    def __init__(self, loop: SimLoop, random: Random) -> None:
        self.seen: Counter[str] = Counter()
        self.random = random
        self._loop = loop
        self._windows: list[tuple[str, float, float]] = []

    def begin(self, kind: str, seconds: float, chance: float) -> None:
        self._windows.append((kind, self._loop.time() + seconds, chance))

    def hits(self, kind: str) -> bool:
        now = self._loop.time()
        for name, until, chance in self._windows:
            if name == kind and now < until and self.random.random() < chance:
                self.seen[kind] += 1
                return True
        return False

    def latency(self) -> float:
        return self.random.uniform(0.0002, 0.003)

    async def away(self) -> None:
        """For as long as one call over the network takes."""
        await asyncio.sleep(self.latency())


class Watching(Protocol):
    """Who is told of what has become durable, and of what goes over the bus."""

    def stored(self, operation: str, args: tuple[Any, ...], answer: Any) -> None: ...

    def publishes(self, topic: str, messages: Sequence[Message]) -> None: ...

    def settles(self, delivery: Delivery) -> None: ...


# -- storage ---------------------------------------------------------------------------------


class RemoteStore:
    """A ledger, or the leases of lanes, that outlives every process. Its operations wait for nothing."""

    def __init__(
        self, inner: Any, loop: SimLoop, faults: Faults, watch: Watching, *, leases: bool = False
    ) -> None:
        self._inner = inner
        self._loop = loop
        self._faults = faults
        self._watch = watch
        self._leases = leases
        self._storage = context_of(loop.world)

    @property
    def capabilities(self) -> LedgerCapabilities:
        found: LedgerCapabilities = self._inner.capabilities
        return found

    def shared_records(self) -> Any:
        return RemoteStore(self._inner.shared_records(), self._loop, self._faults, self._watch)

    async def save_all(self, writes: Sequence[Write], answered: AnswerWrites) -> None:
        """Each over the network by itself."""
        await save_each(cast(Ledger, self), writes, answered)

    async def close(self) -> None:
        """It stays where it is."""

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if name.startswith("_") or not hasattr(self._inner, name):
            raise AttributeError(name)

        async def call(*args: Any, **named: Any) -> Any:
            return await self._call(name, args, named)

        return call

    async def _call(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        faults = self._faults
        if faults.hits("ledger.fail") or (self._leases and self._stays(name, args)):
            await faults.away()
            raise LedgerUnavailableError("the storage does not answer")
        answer, there, back = self._loop.create_future(), faults.latency(), faults.latency()
        lost = faults.hits("ledger.lost_answer")
        if faults.hits("ledger.slow"):
            there += faults.random.uniform(0.1, 3)
        if faults.hits("ledger.hang"):
            there += faults.random.choice((0, 15)) * faults.random.random()
            back += 30 * faults.random.random()
            lost = lost or faults.random.random() < 0.5
        if name == "save" and faults.hits("ledger.late_save"):
            there += faults.random.uniform(2, 12)
        if name == "load" and faults.hits("ledger.late_read"):
            back += faults.random.uniform(0.1, 10)
        act = (self._act, answer, name, args, named, back, lost)
        self._loop.call_later(there, *act, context=self._storage)
        return await answer

    def _stays(self, name: str, args: tuple[Any, ...]) -> bool:
        """Whether the leases cannot be written now, or only not given back."""
        gives = name == "put_all" and any(row.holder == NOBODY for row in args[0])
        return self._faults.hits("leases.fail") or (gives and self._faults.hits("leases.keep"))

    def _act(
        self,
        answer: "asyncio.Future[Any]",
        name: str,
        args: tuple[Any, ...],
        named: dict[str, Any],
        back: float,
        lost: bool,
    ) -> None:
        found: Any
        try:
            found = _at_once(getattr(self._inner, name)(*args, **named))
            self._watch.stored(name, args, found)
        except Exception as error:
            found = error
        if lost:
            found = LedgerUnavailableError("the storage did not answer")
        self._loop.call_later(back, settle, answer, found, context=self._storage)


def _at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """The answer of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a store in memory waits for nothing")


def settle(answer: "asyncio.Future[Any]", found: Any) -> None:
    if answer.done():
        return
    if isinstance(found, BaseException):
        answer.set_exception(found)
    else:
        answer.set_result(found)


class EmbeddedStore:
    """A ledger that lives in the process which uses it, and dies with it."""

    def __init__(self, inner: Ledger, faults: Faults, watch: Watching) -> None:
        self._inner = inner
        self._faults = faults
        self._watch = watch

    @property
    def capabilities(self) -> LedgerCapabilities:
        return self._inner.capabilities

    def shared_records(self) -> Any:
        return self._inner.shared_records()

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        act = getattr(self._inner, name)

        async def call(*args: Any, **named: Any) -> Any:
            return await self._call(act, name, args, named)

        return call

    async def close(self) -> None:
        await self._inner.close()

    async def save_all(self, writes: Sequence[Write], answered: AnswerWrites) -> None:
        """One commit: the batch fails, hangs or is done as a whole, whatever is said of it."""
        found: list[tuple[int, WriteOutcome]] = []
        await self._delayed()
        await self._inner.save_all(writes, found.extend)
        for place, outcome in found:
            write = writes[place]
            if isinstance(outcome, Exception):
                continue
            if isinstance(write, JobSave):
                args: tuple[Any, ...] = (write.job, write.expected, write.events)
                self._watch.stored("save", args, outcome)
            else:
                args = (write.claim, write.job, write.events, write.limits)
                self._watch.stored("create", args, outcome)
        if self._faults.hits("ledger.lost_answer"):
            raise LedgerUnavailableError("the disk failed after the write")
        answered(found)

    async def _call(self, act: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        await self._delayed()
        answer = await act(*args, **named)
        if name == "load" and self._faults.hits("ledger.late_read"):
            await asyncio.sleep(self._faults.random.uniform(0.1, 10))
        self._watch.stored(name, args, answer)
        if self._faults.hits("ledger.lost_answer"):
            raise LedgerUnavailableError("the disk failed after the write")
        return answer

    async def _delayed(self) -> None:
        faults = self._faults
        if faults.hits("ledger.fail"):
            raise LedgerUnavailableError("the disk is full")
        if faults.hits("ledger.slow"):
            await asyncio.sleep(faults.random.uniform(0.01, 2))
        if faults.hits("ledger.hang"):
            await asyncio.sleep(faults.random.uniform(1, 20))


# -- the bus ---------------------------------------------------------------------------------


class SimBus:
    """A bus as one process sees it. `broker` is the process that the bus lives in."""

    by_tenant = True

    def __init__(
        self, inner: MemoryBus, broker: Process, loop: SimLoop, faults: Faults, watch: Watching
    ) -> None:
        self._inner = inner
        self._broker = broker
        self._loop = loop
        self._faults = faults
        self._watch = watch

    @property
    def broker(self) -> Broker:
        return self._inner.broker

    @property
    def volatile(self) -> bool:
        return self._inner.volatile

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        await self._ask(lambda: self._inner.ensure(subscriptions))

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        faults = self._faults
        self._watch.publishes(topic, messages)
        nudge = messages[0].body.get("type") == NUDGE
        if faults.hits("bus.fail") or (nudge and faults.hits("nudge.lost")):
            await faults.away()
            raise BusUnavailableError("the broker does not answer")
        if faults.hits("bus.refuse"):
            await faults.away()
            raise PublishRefusedError("the broker refuses this")
        await self._ask(lambda: self._taken(topic, messages))
        if faults.hits("bus.lost_answer"):
            raise BusUnavailableError("the broker did not answer")

    async def _taken(self, topic: str, messages: Sequence[Message]) -> None:
        """The broker has taken them. Some come late, so out of order; some come twice."""
        for message in messages:
            late = self._faults.hits("bus.late")
            if not late:
                await self._inner.publish(topic, [message])
            if late or self._faults.hits("bus.double"):
                delay = self._faults.random.choice((0.01, 1.0, 20.0)) * self._faults.random.random()
                self._loop.call_later(delay, self._comes, topic, message)

    def _comes(self, topic: str, message: Message) -> None:
        self._loop.create_task(self._inner.publish(topic, [message]))

    async def receive(
        self,
        name: str,
        topics: Sequence[str],
        limit: int,
        wait: timedelta,
        tenants: Collection[str] | None = None,
    ) -> Sequence[Delivery]:
        if self._faults.hits("bus.receive"):
            await self._faults.away()
            raise BusUnavailableError("the broker does not answer")
        found: Sequence[Delivery] = await self._ask(
            lambda: self._inner.receive(name, topics, limit, wait, tenants), self._unheard
        )
        return found

    async def _unheard(self, deliveries: Sequence[Delivery]) -> None:
        """Whoever asked for them waits no more."""
        for delivery in deliveries:
            await self._inner.abandon(delivery)

    async def complete(self, delivery: Delivery) -> None:
        self._watch.settles(delivery)
        if self._faults.hits("bus.settle"):
            await self._faults.away()
            if self._faults.random.random() < 0.5:
                raise BusUnavailableError("the broker does not answer")
            raise LockLostError("the lock has run out")
        await self._ask(lambda: self._inner.complete(delivery))

    async def abandon(self, delivery: Delivery) -> None:
        await self._ask(lambda: self._inner.abandon(delivery))

    async def dead_letter(self, delivery: Delivery, reason: str, detail: str) -> None:
        await self._ask(lambda: self._inner.dead_letter(delivery, reason, detail))

    async def send_notice(self, address: str, message: Message) -> None:
        if not self._faults.hits("notice.lost"):
            await self._ask(lambda: self._inner.send_notice(address, message))

    async def receive_notices(self, address: str, wait: timedelta) -> Sequence[Message]:
        found: Sequence[Message] = await self._ask(
            lambda: self._inner.receive_notices(address, wait)
        )
        return found

    async def close(self) -> None:
        """The broker lives on, or dies with its process."""

    async def _ask(self, work: Callable[[], Coroutine[Any, Any, Any]], unheard: Any = None) -> Any:
        """Have the broker do it. Inside of the broker's own process it is a plain call."""
        caller = PROCESS.get()
        if caller is self._broker:
            return await work()
        answer = self._loop.create_future()
        request = _Request(self, work, answer, caller, unheard)
        self._loop.call_later(
            self._faults.latency(), request.begin, context=context_of(self._broker)
        )
        try:
            return await answer
        except asyncio.CancelledError:
            request.give_up()
            raise


class _Request:
    """What one process asks of a broker in another one."""

    def __init__(
        self,
        bus: SimBus,
        work: Callable[[], Coroutine[Any, Any, Any]],
        answer: "asyncio.Future[Any]",
        caller: Process,
        unheard: Any,
    ) -> None:
        self._bus = bus
        self._work = work
        self._answer = answer
        self._caller = caller
        self._unheard = unheard
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._answer.done():
            return
        self._task = self._bus._loop.create_task(self._serve())
        self._caller.on_death.append(self.give_up)

    def give_up(self) -> None:
        """The connection is gone: whoever waits at the broker waits no more."""
        if self._task is not None:
            self._bus._loop.call_soon(self._task.cancel, context=context_of(self._bus._broker))

    async def _serve(self) -> None:
        found: Any
        try:
            found = await self._work()
        except asyncio.CancelledError:
            return
        except Exception as error:
            found = error
        finally:
            if self.give_up in self._caller.on_death:
                self._caller.on_death.remove(self.give_up)
        await asyncio.sleep(self._bus._faults.latency())
        if self._answer.cancelled() and self._caller.alive and self._unheard is not None:
            if not isinstance(found, BaseException):
                await self._unheard(found)
            return
        settle(self._answer, found)


# -- the workspace ---------------------------------------------------------------------------


class SimWorkspace(MemoryWorkspace):
    """Files that outlive every process. A process may die before, between and after its writes."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults
        self.history: dict[str, list[bytes]] = {}
        """Every content that an object ever had."""

    def store(self, uri: str, data: bytes) -> None:
        super().store(uri, data)
        kept = self.history.setdefault(uri, [])
        if not kept or kept[-1] != data:
            kept.append(data)

    async def _goes_on(self) -> None:
        await self._faults.away()
        if self._faults.hits("workspace.fail"):
            raise WorkspaceError("the storage of the files does not answer")

    async def read(self, uri: str) -> bytes | None:
        await self._goes_on()
        return await super().read(uri)

    async def write(self, uri: str, data: bytes) -> None:
        await self._goes_on()
        await super().write(uri, data)
        await self._goes_on()

    async def create(self, uri: str, data: bytes) -> bool:
        await self._goes_on()
        created = await super().create(uri, data)
        await self._goes_on()
        return created

    async def replace(self, uri: str, data: bytes, expected: Digest) -> bool:
        await self._goes_on()
        found = self.objects.get(uri)
        if found is None or await self.digest(uri) != expected or self.objects.get(uri) != found:
            return False
        self.store(uri, data)
        return True
