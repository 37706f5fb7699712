"""Runs the checks against a service: one process for most of them, one for slow work, and fresh ones."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Protocol

from lucius.certificate.checks import Check
from lucius.certificate.exam import BrokenError, NotApplicableError, now
from lucius.certificate.examined import Examined, Folders, Patience
from lucius.certificate.examinee import Examinee
from lucius.certificate.gateway import ExamGateway
from lucius.certificate.samples import Sample, Samples
from lucius.certificate.stalls import Stalls
from lucius.certificate.trial import Trial
from lucius.core.errors import LuciusError

AT_ONCE: Final = 6
"""Checks that share a process at the same time."""
FRESH_AT_ONCE: Final = 3
START_SECONDS: Final = 60.0
LOOKS: Final = 3
KEPT: Final = "kept"
BROKEN: Final = "broken"
SKIPPED: Final = "skipped"
FIRST: Final = "work-succeeds"
"""The check without which most others would say the same once more, and some wait for it in vain."""


class NotStartedError(LuciusError):
    """The service never asked for a directive; the message has the end of its log."""


class Starter(Protocol):
    """Makes processes of the service under examination."""

    alone: bool
    """Whether it can make several; else there is one, somewhere, and it comes by itself."""
    delays: bool
    """Whether it can make one whose steps take long, whatever they do."""

    def make(self, gateway: ExamGateway, *, slow: bool) -> Examinee:
        """It is to ask that gateway for directives; it is not started yet."""


@dataclass(frozen=True, slots=True)
class Grade:
    """`seen`: what broke the promise, or why nothing was looked at."""

    check: Check
    outcome: str
    seen: str
    seconds: float


class Certification:
    def __init__(
        self,
        examined: Examined,
        samples: Samples,
        folders: Folders,
        starter: Starter,
        *,
        pace: Patience | None = None,
        port: int = 0,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self._examined = examined
        self._samples = samples
        self._folders = folders
        self._starter = starter
        self._pace = pace or Patience(slow=samples.slow_seconds)
        self._port = port
        self._start_seconds = start_seconds
        self._fresh_ones = asyncio.Semaphore(FRESH_AT_ONCE)
        self._facts: dict[str, asyncio.Task[Any]] = {}
        self._stalls = Stalls()
        self._works: asyncio.Future[bool] = asyncio.Future()
        """Whether the service does what it is for, once that is known."""

    async def run(
        self, checks: Sequence[Check], told: Callable[[Grade], None] = lambda finding: None
    ) -> list[Grade]:
        """The findings in the order of the checks; `told` hears of each that was looked at, at once."""
        if FIRST not in (check.name for check in checks):
            self._works.set_result(True)
        apart = self._samples.slow is None and self._starter.delays
        quick = [check for check in checks if not (check.slow and apart)]
        slow = [check for check in checks if check.slow and apart]
        stages = [
            self._looked_at(each, told, delayed=delayed)
            for each, delayed in ((quick, False), (slow, True))
            if each
        ]
        try:
            with self._stalls.watching():
                found = [finding for stage in await asyncio.gather(*stages) for finding in stage]
        finally:
            for task in self._facts.values():
                task.cancel()
        order = [check.name for check in checks]
        return sorted(found, key=lambda finding: order.index(finding.check.name))

    @asynccontextmanager
    async def trial(self) -> AsyncIterator[Trial]:
        """One process of the service with its gateway, for whoever wants to hand out directives."""
        async with self._stage(delayed=False) as trial:
            yield trial

    async def _looked_at(
        self, checks: Sequence[Check], told: Callable[[Grade], None], *, delayed: bool
    ) -> list[Grade]:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(check: Check, trial: Trial) -> Grade:
            if check.name != FIRST and not await self._works:
                return Grade(check, SKIPPED, f"{FIRST} comes first, and is broken", 0.0)
            async with nullcontext() if check.apart else room:
                finding = await self._fairly(check, trial)
            if check.name == FIRST:
                self._works.set_result(finding.outcome != BROKEN)
            told(finding)
            return finding

        async with self._stage(delayed=delayed) as trial:
            return await asyncio.gather(*(one(check, trial) for check in checks))

    async def _fairly(self, check: Check, trial: Trial) -> Grade:
        """What is broken while the machine stood still is looked at again."""
        for _ in range(LOOKS):
            begun = now()
            grade = await _finding(check, trial)
            if grade.outcome != BROKEN or not self._stalls.since(begun):
                break
            self._facts.clear()
        return grade

    @asynccontextmanager
    async def _stage(self, *, delayed: bool) -> AsyncIterator[Trial]:
        gateway = ExamGateway(self._examined.service)
        await gateway.start(self._port)
        examinee = self._starter.make(gateway, slow=delayed)
        try:
            await examinee.start()
            await self._asked(gateway, examinee)
            yield self._trial(gateway, examinee, delayed=delayed)
        finally:
            await examinee.kill()
            await gateway.stop()

    def _trial(self, gateway: ExamGateway, examinee: Examinee, *, delayed: bool) -> Trial:
        slow: Sample | None = self._samples.slow or (self._samples.works if delayed else None)
        return Trial(
            self._examined,
            self._samples,
            self._folders,
            self._pace,
            gateway,
            examinee,
            slow,
            self._fresh,
            self._facts,
        )

    def _fresh(self) -> AbstractAsyncContextManager[Trial]:
        if not self._starter.alone:
            raise NotApplicableError(
                "needs a process of its own: give MODULE:NAME or --command, so that one can be started"
            )
        return self._fresh_stage()

    @asynccontextmanager
    async def _fresh_stage(self) -> AsyncIterator[Trial]:
        delayed = self._samples.slow is None and self._starter.delays
        async with self._fresh_ones, self._stage(delayed=delayed) as trial:
            yield trial

    async def _asked(self, gateway: ExamGateway, examinee: Examinee) -> None:
        """It is there when it has asked for directives once."""
        ended = asyncio.ensure_future(examinee.ended())
        asked = asyncio.ensure_future(gateway.asked.wait())
        try:
            done, _ = await asyncio.wait(
                (ended, asked),
                timeout=self._start_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if asked in done:
                return
            why = "has ended" if ended in done else f"did not in {self._start_seconds:g} s"
            raise NotStartedError(
                f"the service never asked {gateway.url} for directives of {self._examined.service}:"
                f" it {why}\n{examinee.log()}".rstrip()
            )
        finally:
            ended.cancel()
            asked.cancel()


async def _finding(check: Check, trial: Trial) -> Grade:
    begun = now()

    def found(outcome: str, seen: str = "") -> Grade:
        return Grade(check, outcome, seen, now() - begun)

    try:
        await _while_it_lives(check, trial)
    except NotApplicableError as error:
        return found(SKIPPED, str(error))
    except BrokenError as error:
        return found(BROKEN, str(error))
    except NotStartedError as error:
        return found(BROKEN, str(error))
    return found(KEPT)


async def _while_it_lives(check: Check, trial: Trial) -> None:
    """A process that has ended keeps nobody waiting."""
    looking = asyncio.ensure_future(check.look(trial))
    ended = asyncio.ensure_future(trial.examinee.ended())
    try:
        await asyncio.wait((looking, ended), return_when=asyncio.FIRST_COMPLETED)
        if not looking.done():
            raise BrokenError(
                f"the process has ended with exit code {ended.result()}:\n{trial.examinee.log()}"
            )
        looking.result()
    finally:
        looking.cancel()
        ended.cancel()
