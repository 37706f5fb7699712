"""Parts of a service that break the contract, each in one way."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

from pydantic import BaseModel

from lucius.adapters.buses.pull_gateway import PullBus
from lucius.core.errors import BusUnavailableError
from lucius.dev.certificate.examinee import Sample, Samples
from lucius.dev.certificate.trial import path_of
from lucius.platform import (
    FatalError,
    ObjectMissingError,
    Output,
    RetryableError,
    Service,
    Task,
)
from lucius.platform.messages import Directive
from lucius.platform.records import MINE, OTHERS, Begun, MemoryRecords, Result
from lucius.ports.bus import Delivery
from tests.certificate.worker import Defect, Honest, InProcess

SLOW = Samples(slow=Sample(payload={"seconds": 5}))


# -- services --------------------------------------------------------------------------------


class Failing(Honest):
    async def execute(self, task: Task) -> Output:
        raise FatalError("it never works", code="NEVER")


class OnlyMarks(BaseModel, extra="forbid"):
    marks: int = 1


class Strict(Service):
    name, step_types, payload_model = "shout", ("SHOUT",), OnlyMarks

    async def execute(self, task: Task) -> Output:
        await task.stage("output.txt", "text")
        return Output()


class NeedsOptional(Honest):
    async def execute(self, task: Task) -> Output:
        await task.stage("order.txt", task.directive["correlation_id"])
        return Output()


class Scattering(Honest):
    async def execute(self, task: Task) -> Output:
        scratch = path_of(task.directive["workspace_ref"]["uri"]) / "scratch"
        scratch.mkdir(parents=True)
        (scratch / "notes").write_text("mine")
        return await super().execute(task)


class Early(Honest):
    """Puts its output in its place before anything else."""

    async def execute(self, task: Task) -> Output:
        place = path_of(task.directive["workspace_ref"]["uri"]) / task.directive["output_folder"]
        place.mkdir(parents=True, exist_ok=True)
        (place / "output.txt").write_text("soon")
        return await super().execute(task)


class Careless(Honest):
    """Writes its output itself, again and again."""

    commit = False

    async def execute(self, task: Task) -> Output:
        place = path_of(task.directive["workspace_ref"]["uri"]) / task.directive["output_folder"]
        place.mkdir(parents=True, exist_ok=True)
        text, path = uuid4().hex, place / "output.txt"
        path.unlink(missing_ok=True)
        path.write_text(text)
        return Output(ref={"uri": path.as_uri(), "sha256": sha256(text.encode()).hexdigest()})


class Forgetful(MemoryRecords):
    async def begin(self, directive: Directive, owner: str) -> Begun:
        return MINE


CARELESS = Defect(Careless, records=Forgetful)


class Mixing(Honest):
    """Keeps the document of a step where the next one finds its own."""

    async def execute(self, task: Task) -> Output:
        self._text = await task.latest()
        await asyncio.sleep(0.3)
        await task.stage("output.txt", self._text)
        return Output()


class Constant(Honest):
    async def execute(self, task: Task) -> Output:
        await task.stage("output.txt", "always the same")
        return Output()


class Unchecked(Honest):
    async def execute(self, task: Task) -> Output:
        await task.stage("output.txt", "!" * task.payload.get("marks", 1))
        return Output()


class Hopeful(Honest):
    async def execute(self, task: Task) -> Output:
        try:
            return await super().execute(task)
        except ObjectMissingError as error:
            raise RetryableError("perhaps it comes") from error


class Sulking(Honest):
    _hurt = False

    async def execute(self, task: Task) -> Output:
        if self._hurt:
            raise FatalError("not after that", code="SULKING")
        try:
            return await super().execute(task)
        except FatalError:
            self._hurt = True
            raise


# -- records and buses -----------------------------------------------------------------------


class Locks(MemoryRecords):
    """Who has begun a step has it for ever, over the end of the process."""

    taken: set[tuple[str, str]] = set()

    async def begin(self, directive: Directive, owner: str) -> Begun:
        step = directive.job_id, directive.step_id
        if step in self.taken:
            return OTHERS
        self.taken.add(step)
        return MINE

    async def finish(self, directive: Directive, result: Result) -> None: ...


class Between:
    """A bus that does as the other one does."""

    def __init__(self, bus: PullBus) -> None:
        self._bus = bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)


class Greedy(Between):
    """Takes what it can get, and works on one after another."""

    _kept: tuple[Delivery, ...] = ()

    async def receive(self, name: str, topics: Any, limit: int, wait: timedelta, *more: Any) -> Any:
        if not self._kept:
            self._kept = tuple(await self._bus.receive(name, topics, 256, wait))
        first, self._kept = self._kept[:1], self._kept[1:]
        return first


class Offended(Between):
    async def receive(self, name: str, topics: Any, limit: int, wait: timedelta, *more: Any) -> Any:
        try:
            return await self._bus.receive(name, topics, limit, wait)
        except BusUnavailableError:
            await asyncio.Event().wait()


def rewriting(**changes: Any) -> Callable[[PullBus], Any]:
    """A bus that changes directives on the way."""

    class Rewriting(Between):
        async def receive(
            self, name: str, topics: Any, limit: int, wait: timedelta, *more: Any
        ) -> Any:
            return [
                _changed(d, changes) for d in await self._bus.receive(name, topics, limit, wait)
            ]

    return Rewriting


class Mending(Between):
    """Guesses what a directive without these fields may have meant."""

    async def receive(
        self, name: str, topics: Any, limit: int, wait: timedelta
    ) -> Sequence[Delivery]:
        found = await self._bus.receive(name, topics, limit, wait)
        return [_changed(each, {"attempt_no": 1}) for each in found]


def _changed(delivery: Delivery, changes: dict[str, Any]) -> Delivery:
    body = {**delivery.message.body, **changes}
    return replace(delivery, message=replace(delivery.message, body=body))


def dies(process: InProcess) -> None:
    """Ends at once, as if there were nothing under way."""
    killing = asyncio.ensure_future(process.kill())
    killing.add_done_callback(lambda done: None)
    process.exit(0)
