"""Runs the checks against a service: one process for most of them, one for slow work, and fresh ones."""

import asyncio
import os
import re
import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Protocol
from xml.etree import ElementTree

from lucius.core.errors import LuciusError
from lucius.core.text import printable
from lucius.dev.certificate.checks import Check
from lucius.dev.certificate.checks.process import DRAIN_SECONDS
from lucius.dev.certificate.exam import (
    BrokenError,
    EndedError,
    ExamGateway,
    NotApplicableError,
    now,
)
from lucius.dev.certificate.examinee import (
    ElsewhereExaminee,
    Examined,
    Examinee,
    Folders,
    Patience,
    ProcessExaminee,
    Sample,
    Samples,
)
from lucius.dev.certificate.trial import Trial
from lucius.system.machine import python_command

# How long this process stood still: a machine that is too busy proves nothing about a service.

BEAT: Final = 0.1
LONG: Final = 0.25
"""Seconds that a beat may be late before whoever failed meanwhile is looked at again."""


class Stalls:
    """Beats ten times a second, and remembers when it was late."""

    def __init__(self) -> None:
        self._beat_at = 0.0
        self._late_at = float("-inf")

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._beat_at = now()
        beating = asyncio.ensure_future(self._beat())
        try:
            yield
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            self._note()
            self._beat_at = now()

    def _note(self) -> None:
        if now() - self._beat_at > BEAT + LONG:
            self._late_at = now()

    def since(self, begun: float) -> bool:
        """Whether there was one since then."""
        self._note()
        return self._late_at >= begun


# How the service under examination is started: by its name, by a command, or by somebody else.

SLOTS: Final = 16
MARGIN: Final = 0.5
"""Seconds that the delay of slow work is longer than it says."""


def given(folders: Folders, url: str) -> dict[str, str]:
    """The settings of the service under examination: where it pulls, reads and writes."""
    return {
        "LUCIUS_URL": url,
        "LUCIUS_API_KEY": "certificate",
        "LUCIUS_DATA_DIR": str(folders.root / "data"),
        "LUCIUS_WORKSPACE_URL": folders.workspace.as_uri(),
        "LUCIUS_INPUT_ROOTS": str(folders.input),
        "LUCIUS_OUTPUT_ROOTS": str(folders.output),
        "LUCIUS_DRAIN_SECONDS": f"{DRAIN_SECONDS:g}",
        "LUCIUS_LOG_FORMAT": "text",
    }


def environment(folders: Folders, url: str) -> dict[str, str]:
    """Ours, with the folders of the exams in place of the user's."""
    return {**os.environ, **given(folders, url)}


class NamedStarter:
    """`lucius service run MODULE:NAME --url`, where fault injection can make any step slow."""

    alone = True
    delays = True

    def __init__(self, name: str, folders: Folders, slow_seconds: float) -> None:
        self._name = name
        self._folders = folders
        self._delay = slow_seconds + MARGIN
        self._numbers = count(1)

    def make(self, gateway: ExamGateway, *, slow: bool) -> Examinee:
        words = python_command("lucius.cli.main", "service", "run", self._name)
        words += ["--url", gateway.url, "--slots", str(SLOTS)]
        words += ["--chaos", f"delay={self._delay:g}s"] if slow else []
        return _process(
            words, environment(self._folders, gateway.url), self._folders, self._numbers
        )


class CommandStarter:
    """Any program that pulls from LUCIUS_URL."""

    alone = True
    delays = False

    def __init__(self, command: str, folders: Folders) -> None:
        self._words = shlex.split(command)
        self._folders = folders
        self._numbers = count(1)

    def make(self, gateway: ExamGateway, *, slow: bool) -> Examinee:
        return _process(
            self._words, environment(self._folders, gateway.url), self._folders, self._numbers
        )


class ElsewhereStarter:
    """Somebody starts it, and points it at the gateway."""

    alone = False
    delays = False

    def make(self, gateway: ExamGateway, *, slow: bool) -> Examinee:
        return ElsewhereExaminee()


def _process(
    words: Sequence[str], env: Mapping[str, str], folders: Folders, numbers: "count[int]"
) -> ProcessExaminee:
    return ProcessExaminee(words, env, folders.root / f"service-{next(numbers)}.log")


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
    except EndedError as error:
        first = trial.gateway.ended_in = trial.gateway.ended_in or check.name
        if first != check.name:
            return found(SKIPPED, f"the process has ended: see {first}")
        return found(BROKEN, str(error))
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
            raise EndedError(
                f"the process has ended with exit code {ended.result()}:\n{trial.examinee.log()}"
            )
        looking.result()
    finally:
        looking.cancel()
        ended.cancel()
        await asyncio.gather(looking, ended, return_exceptions=True)  # it closes what it has opened


# The report of a certificate: for people, as JSON and as JUnit.

NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML document may hold, escaped or not."""
MARKS = {KEPT: "ok  ", BROKEN: "FAIL", SKIPPED: "skip"}


def line(finding: Grade) -> str:
    """One line for each check, as soon as it was looked at."""
    why = f": {printable(finding.seen.splitlines()[0])}" if finding.outcome == SKIPPED else ""
    return f"{MARKS[finding.outcome]}  {finding.check.name}{why}"


def explained(findings: Sequence[Grade]) -> Iterator[str]:
    """What the contract says, what was seen and what to do, for each promise that is broken."""
    for finding in findings:
        if finding.outcome == BROKEN:
            seen = "\n             ".join(map(printable, finding.seen.splitlines()))
            yield (
                f"{finding.check.name}\n  contract:  {finding.check.promise}\n"
                f"  seen:      {seen}\n  do:        {finding.check.remedy}"
            )


def kept(findings: Sequence[Grade]) -> bool:
    return not any(finding.outcome == BROKEN for finding in findings)


def summary(findings: Sequence[Grade], seconds: float) -> str:
    counts = [sum(f.outcome == outcome for f in findings) for outcome in (KEPT, BROKEN, SKIPPED)]
    return "{} kept, {} broken, {} skipped, in {:.0f} s".format(*counts, seconds)


def as_document(examined: Examined, findings: Sequence[Grade], seconds: float) -> dict[str, Any]:
    return {
        "service": examined.service,
        "step_type": examined.step_type,
        "kept": kept(findings),
        "seconds": round(seconds, 1),
        "checks": [
            {
                "name": finding.check.name,
                "outcome": finding.outcome,
                "promise": finding.check.promise,
                "seen": finding.seen,
                "remedy": finding.check.remedy if finding.outcome == BROKEN else "",
                "seconds": round(finding.seconds, 2),
            }
            for finding in findings
        ],
    }


def as_junit(examined: Examined, findings: Sequence[Grade], seconds: float) -> str:
    suite = ElementTree.Element(
        "testsuite",
        name=f"lucius certify {examined.service}",
        tests=str(len(findings)),
        failures=str(sum(f.outcome == BROKEN for f in findings)),
        skipped=str(sum(f.outcome == SKIPPED for f in findings)),
        errors="0",
        time=f"{seconds:.2f}",
    )
    for finding in findings:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"contract.{finding.check.group}",
            name=finding.check.name,
            time=f"{finding.seconds:.2f}",
        )
        if finding.outcome == SKIPPED:
            ElementTree.SubElement(case, "skipped", message=printable(finding.seen))
        elif finding.outcome == BROKEN:
            failure = ElementTree.SubElement(case, "failure", message=finding.check.promise)
            failure.text = "\n".join(explained([finding]))
    ElementTree.indent(suite)
    text = NOT_IN_XML.sub("?", ElementTree.tostring(suite, "unicode"))
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'
