"""Named fault points: every call that a process makes to its ledger, bus or workspace passes two.

A point is named `before ledger.save` or `after bus.publish`. A test arms one to hold a call there, or
to have the process die there. What a dead process still tries to do never happens.
"""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from lucius.ports.ledger import AnswerWrites, Ledger, Write, save_each

T = TypeVar("T")
When = Callable[..., bool]


def always(*args: object) -> bool:
    return True


class Gate:
    """Holds the first call that matches, until it is opened."""

    def __init__(self, name: str, when: When, *, fatal: bool) -> None:
        self.name = name
        self.fatal = fatal
        self._when = when
        self._reached = asyncio.Event()
        self._opened = asyncio.Event()

    def takes(self, name: str, args: tuple[object, ...]) -> bool:
        return name == self.name and not self._reached.is_set() and self._when(*args)

    async def hold(self) -> None:
        self._reached.set()
        await self._opened.wait()

    async def reached(self, within: float = 86_400.0) -> None:
        async with asyncio.timeout(within):
            await self._reached.wait()

    def open(self) -> None:
        self._opened.set()


class Points:
    """The fault points of one process."""

    def __init__(self) -> None:
        self.dead = False
        self._gates: list[Gate] = []

    def hold(self, name: str, when: When = always) -> Gate:
        return self._arm(Gate(name, when, fatal=False))

    def crash(self, name: str, when: When = always) -> Gate:
        """The process dies at this point: nothing that it does afterwards takes effect."""
        return self._arm(Gate(name, when, fatal=True))

    def _arm(self, gate: Gate) -> Gate:
        self._gates.append(gate)
        return gate

    async def pass_by(self, name: str, args: tuple[object, ...]) -> None:
        if self.dead:
            raise asyncio.CancelledError
        for gate in self._gates:
            if gate.takes(name, args):
                self.dead = gate.fatal
                await gate.hold()


class _Pointed:
    def __init__(self, target: object, name: str, points: Points) -> None:
        self._target = target
        self._name = name
        self._points = points

    def within(self, *folders: str) -> "_Pointed":
        """What one job sees of a workspace passes the same points."""
        scoped = cast(Any, self._target).within(*folders)
        return _Pointed(scoped, self._name, self._points)

    def __getattr__(self, operation: str) -> Any:
        found = getattr(self._target, operation)
        return partial(self._call, operation) if inspect.iscoroutinefunction(found) else found

    async def create_all(
        self, objects: Sequence[tuple[str, bytes]], *, unless: str | None = None
    ) -> int | None:
        """As a store does it that has no better way: a process may die between any two."""
        if unless is not None and await self._call("read", unless) is not None:
            return None
        for number, (uri, data) in enumerate(objects):
            if not await self._call("create", uri, data):
                return number
        return len(objects)

    async def save_all(self, writes: Sequence[Write], answered: AnswerWrites) -> None:
        """As a ledger does it that has no better way: each job passes the points of its own save."""
        await save_each(cast(Ledger, self), writes, answered)

    async def _call(self, operation: str, *args: Any, **options: Any) -> Any:
        await self._points.pass_by(f"before {self._name}.{operation}", args)
        answer = await getattr(self._target, operation)(*args, **options)
        await self._points.pass_by(f"after {self._name}.{operation}", args)
        return answer


def pointed(target: T, name: str, points: Points) -> T:
    """The same adapter, seen through the fault points of one process."""
    return cast(T, _Pointed(target, name, points))
