"""What committed decisions still owe to the world. Commits put it here, the dispatcher takes it."""

import asyncio
from collections import deque
from itertools import islice

from lucius.core.effects import Effect, PublishDirective
from lucius.core.job import Job

OwedDirective = tuple[Job, PublishDirective]


class OwedEffects:
    """Directives by lease, in order: one that is asked for again while it waits is published once."""

    def __init__(self) -> None:
        self._directives: dict[str, OwedDirective] = {}
        self._others: deque[tuple[Job, Effect]] = deque()
        self._directive = asyncio.Event()
        self._other = asyncio.Event()

    def put(self, job: Job, effect: Effect) -> None:
        if isinstance(effect, PublishDirective):
            self._directives[effect.lease_id] = (job, effect)
            self._directive.set()
        else:
            self._others.append((job, effect))
            self._other.set()

    def put_back(self, directives: list[OwedDirective]) -> None:
        """Put directives first again: they could not be published."""
        again = {effect.lease_id: (job, effect) for job, effect in directives}
        self._directives = again | self._directives
        self._directive.set()

    def directives(self, most: int) -> list[OwedDirective]:
        return [self._directives.pop(lease_id) for lease_id in list(islice(self._directives, most))]

    async def directive_came(self) -> None:
        """Wait until another directive is put here."""
        self._directive.clear()
        await self._directive.wait()

    @property
    def has_directives(self) -> bool:
        return bool(self._directives)

    async def others(self) -> list[tuple[Job, Effect]]:
        """Wait for effects other than directives, and take all of them."""
        while not self._others:
            self._other.clear()
            await self._other.wait()
        found = list(self._others)
        self._others.clear()
        return found
