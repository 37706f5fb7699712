"""Fault injection: what goes wrong rarely, wrong often enough to be looked at. Off unless asked for.

It wraps the bus, the replies and the body of a runner; the kit itself does not know of it.
"""

import asyncio
import os
import random
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from lucius.core.errors import LuciusError
from lucius.platform.bodies import Body
from lucius.platform.errors import StepCancelledError
from lucius.platform.messages import SILENT, Directive, Replies, ReplyAnswer
from lucius.platform.service import Output
from lucius.platform.task import Task
from lucius.ports.bus import Broker, Bus, Delivery, Message, Subscription

CRASHED: Final = 137
"""The exit code of a process that was killed with SIGKILL."""
LONGEST_DELAY: Final = 3600.0
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_DELAY: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")


class ChaosError(LuciusError):
    """Words after --chaos that are none; the message names them."""


@dataclass(frozen=True, slots=True)
class Chaos:
    """`drop`, `crash` and `duplicate` are probabilities. `delay` comes before every `execute()`.

    drop: a directive, a reply or a notice is lost, and nobody is told. duplicate: it arrives twice.
    crash: the process ends as if it were killed, before `execute()` or after it.
    """

    drop: float = 0.0
    delay: timedelta = timedelta()
    crash: float = 0.0
    duplicate: float = 0.0
    dice: random.Random = field(default_factory=random.Random)

    def hits(self, probability: float) -> bool:
        return probability > 0 and self.dice.random() < probability


def parse_chaos(text: str) -> Chaos:
    """`drop=0.01,delay=2s,crash=0.001,duplicate=0.05`, in any order; `seed=7` makes it repeatable."""
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in _READERS:
            raise ChaosError(f"{name or part!r} is no fault: {_KNOWN}")
        if name in given:
            raise ChaosError(f"{name} is given twice")
        given[name] = _READERS[name](name, value)
    seed = given.pop("seed", None)
    return Chaos(**given, dice=random.Random(seed))


def _probability(name: str, value: str) -> float:
    with suppress(ValueError):
        if 0 <= (number := float(value)) <= 1:
            return number
    raise ChaosError(f"{name}={value}: must be a probability from 0 to 1, such as {name}=0.01")


def _span(name: str, value: str) -> timedelta:
    found = _DELAY.fullmatch(value)
    seconds = float(found[1]) * _UNITS[found[2]] if found else LONGEST_DELAY + 1
    if seconds > LONGEST_DELAY:
        raise ChaosError(f"{name}={value}: must be a time of an hour at most, such as 200ms or 2s")
    return timedelta(seconds=seconds)


def _seed(name: str, value: str) -> int:
    if not value.isdecimal():
        raise ChaosError(f"{name}={value}: must be a whole number")
    return int(value)


_READERS: Final[dict[str, Callable[[str, str], Any]]] = {
    "drop": _probability,
    "delay": _span,
    "crash": _probability,
    "duplicate": _probability,
    "seed": _seed,
}
_KNOWN: Final = f"say {', '.join(_READERS)}, as in drop=0.01,delay=2s,crash=0.001,duplicate=0.05"


class ChaoticBus:
    """Loses directives, and delivers some of them again. It never delivers more than it is asked for."""

    def __init__(self, bus: Bus, chaos: Chaos) -> None:
        self._bus = bus
        self._chaos = chaos
        self._again: deque[Delivery] = deque()

    @property
    def broker(self) -> Broker:
        return self._bus.broker

    @property
    def volatile(self) -> bool:
        return self._bus.volatile

    @property
    def by_tenant(self) -> bool:
        return self._bus.by_tenant

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        await self._bus.ensure(subscriptions)

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        await self._bus.publish(topic, messages)

    async def receive(
        self,
        name: str,
        topics: Sequence[str],
        limit: int,
        wait: timedelta,
        tenants: Collection[str] | None = None,
    ) -> Sequence[Delivery]:
        if self._again and limit > 0:
            return [self._again.popleft()]
        found = await self._bus.receive(name, topics, limit, wait, tenants)
        kept = [each for each in found if not await self._lost(each)]
        self._again += [each for each in kept if self._chaos.hits(self._chaos.duplicate)]
        return kept

    async def _lost(self, delivery: Delivery) -> bool:
        lost = self._chaos.hits(self._chaos.drop)
        if lost:
            await self._bus.complete(delivery)
        return lost

    async def complete(self, delivery: Delivery) -> None:
        await self._bus.complete(delivery)

    async def abandon(self, delivery: Delivery) -> None:
        await self._bus.abandon(delivery)

    async def dead_letter(self, delivery: Delivery, reason: str, detail: str) -> None:
        await self._bus.dead_letter(delivery, reason, detail)

    async def send_notice(self, address: str, message: Message) -> None:
        await self._bus.send_notice(address, message)

    async def receive_notices(self, address: str, wait: timedelta) -> Sequence[Message]:
        heard = await self._bus.receive_notices(address, wait)
        return [each for each in heard if not self._chaos.hits(self._chaos.drop)]

    async def close(self) -> None:
        await self._bus.close()


class ChaoticReplies:
    """Loses replies after they were sent, as far as their sender can tell, and sends some twice."""

    def __init__(self, replies: Replies, chaos: Chaos) -> None:
        self._replies = replies
        self._chaos = chaos

    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        if self._chaos.hits(self._chaos.drop):
            return SILENT
        if self._chaos.hits(self._chaos.duplicate):
            await self._replies.send(directive, message)
        return await self._replies.send(directive, message)


class ChaoticBody:
    """Begins later, and sometimes ends the whole process. A delay ends when the job is cancelled."""

    def __init__(self, body: Body, chaos: Chaos, die: Callable[[int], object] = os._exit) -> None:
        self._body = body
        self._chaos = chaos
        self._die = die

    async def open(self) -> None:
        await self._body.open()

    async def __call__(self, task: Task) -> Output | None:
        self._may_crash()
        if seconds := self._chaos.delay.total_seconds():
            await _unless(task.until_cancelled(), seconds)
        output = await self._body(task)
        self._may_crash()
        return output

    def _may_crash(self) -> None:
        if self._chaos.hits(self._chaos.crash):
            self._die(CRASHED)

    async def close(self) -> None:
        await self._body.close()


async def _unless(cancelled: Awaitable[None], seconds: float) -> None:
    """Wait for so long. What is cancelled meanwhile begins no more."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await cancelled
            raise StepCancelledError("the job is being cancelled")
