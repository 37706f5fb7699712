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
from lucius.certificate.trial import Trial
from lucius.core.errors import LuciusError

AT_ONCE: Final = 6
"""Checks that share a process at the same time."""
FRESH_AT_ONCE: Final = 3
START_SECONDS: Final = 60.0
KEPT: Final = "kept"
BROKEN: Final = "broken"
SKIPPED: Final = "skipped"


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

    async def run(
        self, checks: Sequence[Check], told: Callable[[Grade], None] = lambda finding: None
    ) -> list[Grade]:
        """The findings in the order of the checks; `told` hears of each as soon as there is one."""
        apart = self._samples.slow is None and self._starter.delays
        quick = [check for check in checks if not (check.slow and apart)]
        slow = [check for check in checks if check.slow and apart]
        stages = [
            self._looked_at(each, told, delayed=delayed)
            for each, delayed in ((quick, False), (slow, True))
            if each
        ]
        try:
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
            async with nullcontext() if check.apart else room:
                finding = await _finding(check, trial)
            told(finding)
            return finding

        async with self._stage(delayed=delayed) as trial:
            return await asyncio.gather(*(one(check, trial) for check in checks))

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
