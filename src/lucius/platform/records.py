"""Which directives were begun and which are done, so that a duplicate starts nothing.

They save work; they do not carry correctness, which is the commit record's.
"""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from lucius.core.record import record
from lucius.platform.messages import AttemptKey, Directive
from lucius.ports.workspace import ATTEMPTS, Workspace

Result = Mapping[str, Any]
KEPT: Final = 20_000


@record
class Begun:
    """`mine`: go ahead. Otherwise `result` is that of the finished work, or None while it runs."""

    mine: bool
    result: Result | None = None


MINE: Final = Begun(True)
OTHERS: Final = Begun(False)


class Records(Protocol):
    async def begin(self, directive: Directive, owner: str) -> Begun:
        """Take the work, in one atomic step, unless it is done or its owner is alive.

        An owner is dead when its lease has run out, or when it is the caller's predecessor.
        """

    async def renew(self, directive: Directive, owner: str) -> None:
        """The owner lives, and its lease begins again."""

    async def finish(self, directive: Directive, result: Result) -> None:
        """The work is done; the result is kept for duplicates."""

    async def forget(self, directive: Directive, owner: str) -> None:
        """The owner gave the work back."""


class MemoryRecords:
    """For services whose bus lives in the same process. The oldest results are forgotten."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._begun: dict[AttemptKey, float] = {}
        self._done: OrderedDict[AttemptKey, Result] = OrderedDict()

    async def begin(self, directive: Directive, owner: str) -> Begun:
        key = directive.key
        done = self._done.get(key)
        if done is not None:
            return Begun(False, done)
        now = asyncio.get_running_loop().time()
        if self._begun.get(key, now) > now:
            return OTHERS
        self._begun[key] = now + directive.lease_seconds
        return MINE

    async def renew(self, directive: Directive, owner: str) -> None:
        now = asyncio.get_running_loop().time()
        self._begun[directive.key] = now + directive.lease_seconds

    async def finish(self, directive: Directive, result: Result) -> None:
        self._begun.pop(directive.key, None)
        self._done[directive.key] = result
        if len(self._done) > self._kept:
            self._done.popitem(last=False)

    async def forget(self, directive: Directive, owner: str) -> None:
        self._begun.pop(directive.key, None)


class WorkspaceRecords:
    """For services that outlive each other: records beside the work, made by create-if-absent alone.

    Each taking of the work is a new generation, so that two takers of dead work cannot both win.
    `clock` is wall time in seconds, as the records are read by other processes.
    """

    def __init__(self, workspace: Workspace, clock: Callable[[], float] = time.time) -> None:
        self._workspace = workspace
        self._clock = clock
        self._generations: dict[AttemptKey, int] = {}

    async def begin(self, directive: Directive, owner: str) -> Begun:
        """Work that nobody has begun takes one request."""
        if await self._taken(directive, owner, 1):
            return MINE
        done = await self._load(directive, "done")
        if done is not None:
            return Begun(False, done["result"])
        generation = 1
        while (begun := await self._load(directive, f"begun-{generation}")) is not None:
            predecessor = begun["owner"] == owner and directive.key not in self._generations
            if not predecessor and begun["expires_at"] > self._clock():
                return OTHERS
            generation += 1
        return MINE if await self._taken(directive, owner, generation) else OTHERS

    async def _taken(self, directive: Directive, owner: str, generation: int) -> bool:
        taken = await self._workspace.create(
            self._uri(directive, f"begun-{generation}"), self._begun(directive, owner)
        )
        if taken:
            self._generations[directive.key] = generation
        return taken

    async def renew(self, directive: Directive, owner: str) -> None:
        await self._rewrite(directive, self._begun(directive, owner))

    async def finish(self, directive: Directive, result: Result) -> None:
        await self._workspace.create(self._uri(directive, "done"), _encoded({"result": result}))
        self._generations.pop(directive.key, None)

    async def forget(self, directive: Directive, owner: str) -> None:
        await self._rewrite(directive, _encoded({"owner": owner, "expires_at": 0}))
        self._generations.pop(directive.key, None)

    async def _rewrite(self, directive: Directive, data: bytes) -> None:
        generation = self._generations.get(directive.key)
        if generation is not None:
            await self._workspace.write(self._uri(directive, f"begun-{generation}"), data)

    def _begun(self, directive: Directive, owner: str) -> bytes:
        expires_at = self._clock() + directive.lease_seconds
        return _encoded({"owner": owner, "expires_at": expires_at})

    async def _load(self, directive: Directive, name: str) -> dict[str, Any] | None:
        data = await self._workspace.read(self._uri(directive, name))
        return None if data is None else dict(json.loads(data))

    def _uri(self, directive: Directive, name: str) -> str:
        attempt = f"{directive.attempt_no}-{directive.lease_id}"
        return f"{directive.workspace}{ATTEMPTS}/{directive.step_id}/{attempt}/{name}.json"


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()
