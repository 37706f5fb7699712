"""The load: jobs for a server, or directives for one service, at a rate or with a concurrency."""

import asyncio
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, Protocol

from lucius.core.errors import LuciusError

# What a load consists of: how much, how fast, for whom, and what is meant to fail.

WORKS: Final = "works"
FAILURES: Final = ("missing", "poison", "cancel", "duplicate")
"""missing: the input is not there. poison: a payload that fails. cancel, duplicate: of the job."""


class LoadError(LuciusError):
    """A load that cannot be driven; the message names what is wrong."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A `rate` a second, or a `concurrency`. It ends after `jobs` or after `seconds`, whatever comes first.

    `tenants` are weights. `failures` are probabilities, by kind.
    """

    rate: float | None = None
    concurrency: int = 1
    jobs: int | None = None
    seconds: float | None = None
    tenants: Mapping[str, float] = field(default_factory=lambda: {"load": 1.0})
    failures: Mapping[str, float] = field(default_factory=dict)
    dice: random.Random = field(default_factory=random.Random)

    def tenant(self) -> str:
        return self.dice.choices(list(self.tenants), list(self.tenants.values()))[0]

    def kind(self) -> str:
        """Which failure the next job is meant to have, if any."""
        roll = self.dice.random()
        for kind, probability in self.failures.items():
            if roll < probability:
                return kind
            roll -= probability
        return WORKS


def parse_tenants(text: str) -> dict[str, float]:
    """`acme=3,globex=1`, or names alone."""
    found = _parts(text, "tenants", default=1.0)
    if not any(found.values()):
        raise LoadError(f"tenants {text!r}: give at least one of them a weight above 0")
    return found


def parse_failures(text: str, known: Collection[str] = FAILURES) -> dict[str, float]:
    """`missing=0.05,cancel=0.01`: probabilities that add up to 1 at most."""
    found = _parts(text, "failures")
    for name in found:
        if name not in known:
            raise LoadError(f"{name!r} is no failure that can be asked for: say {', '.join(known)}")
    if sum(found.values()) > 1:
        raise LoadError(
            f"failures {text!r}: add up to {sum(found.values()):g}, which is more than 1"
        )
    return found


def _parts(text: str, what: str, default: float | None = None) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        number = _number(value) if equals else default
        if not name or number is None or number < 0:
            raise LoadError(f"{what} {part.strip()!r}: must be NAME=NUMBER")
        if name in found:
            raise LoadError(f"{what}: {name} is given twice")
        found[name] = number
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


# What came of a load: counts, errors, and how long things took.

EDGES: Final = tuple(round(step * 10.0**power, 4) for power in range(-3, 3) for step in (1, 2, 5))
"""Upper edges of the histogram in seconds: 1 ms to 500 s."""
PERCENTILES: Final = (50, 90, 99)
SUCCEEDED: Final = "SUCCEEDED"


@dataclass(frozen=True, slots=True)
class JobEnd:
    """SUCCEEDED, or the code of what went wrong; `as_meant`: because the plan wanted that."""

    outcome: str
    as_meant: bool = False


class LoadTally:
    """`as_meant`: failed, and was meant to. `errors`: everything else that did not succeed, by code."""

    def __init__(self) -> None:
        self.started = 0
        self.succeeded = 0
        self.as_meant = 0
        self.interrupted = False
        """Whether it was ended before its plan was done."""
        self.errors: Counter[str] = Counter()
        self._buckets = [0] * (len(EDGES) + 1)
        self._seconds: list[float] = []

    @property
    def ended(self) -> int:
        return self.succeeded + self.as_meant + self.errors.total()

    def start(self) -> None:
        self.started += 1

    def end(self, end: JobEnd, seconds: float) -> None:
        if end.outcome == SUCCEEDED:
            self.succeeded += 1
        elif end.as_meant:
            self.as_meant += 1
        else:
            self.errors[end.outcome] += 1
        self._seconds.append(seconds)
        self._buckets[bisect_left(EDGES, seconds)] += 1

    def percentiles(self) -> dict[str, float]:
        if not self._seconds:
            return {}
        ordered = sorted(self._seconds)
        named = {
            f"p{p}": ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in PERCENTILES
        }
        return {**named, "max": ordered[-1]}

    def histogram(self) -> Iterator[tuple[str, int]]:
        """Buckets from the first that has something to the last."""
        filled = [at for at, count in enumerate(self._buckets) if count]
        for at in range(filled[0], filled[-1] + 1) if filled else ():
            edge = f"<= {span(EDGES[at])}" if at < len(EDGES) else f"> {span(EDGES[-1])}"
            yield edge, self._buckets[at]

    def document(self, seconds: float) -> dict[str, Any]:
        return {
            "seconds": round(seconds, 2),
            "started": self.started,
            "ended": self.ended,
            "succeeded": self.succeeded,
            "failed_as_meant": self.as_meant,
            "interrupted": self.interrupted,
            "errors": dict(self.errors),
            "per_second": round(self.ended / seconds, 2) if seconds else 0.0,
            "latency_seconds": {name: round(at, 4) for name, at in self.percentiles().items()},
            "histogram": dict(self.histogram()),
        }


def span(seconds: float) -> str:
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"


# Drives a target by a plan: at a rate, whatever the target does, or with so many jobs at once.

MOST_AT_ONCE: Final = 2000
"""Jobs under way at a rate. More would measure this machine; the next ones wait, and their time counts."""


class Target(Protocol):
    async def run(self, tenant: str, kind: str) -> JobEnd:
        """One job to its end. `kind` is `works`, or which failure it is meant to have."""


class Driver:
    def __init__(self, target: Target, plan: LoadPlan) -> None:
        self._target = target
        self._plan = plan
        self._begun = 0.0
        self._numbers = 0
        self.tally = LoadTally()

    @property
    def seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._begun

    async def run(self) -> None:
        """Until the plan is done. What is under way then is waited for."""
        self._begun = asyncio.get_running_loop().time()
        if self._plan.rate is not None:
            await self._at(self._plan.rate)
        else:
            await asyncio.gather(
                *(self._one_after_another() for _ in range(self._plan.concurrency))
            )

    def _more(self) -> bool:
        """Takes the next one, if there is one."""
        jobs, seconds = self._plan.jobs, self._plan.seconds
        if (jobs is not None and self._numbers >= jobs) or (
            seconds is not None and self.seconds >= seconds
        ):
            return False
        self._numbers += 1
        return True

    async def _one_after_another(self) -> None:
        while self._more():
            await self._one(self.seconds)

    async def _at(self, rate: float) -> None:
        """Each begins at its time, however late the others are, and is measured from then on."""
        room, running = asyncio.Semaphore(MOST_AT_ONCE), set[asyncio.Task[None]]()

        async def one(due: float) -> None:
            try:
                await self._one(due)
            finally:
                room.release()

        try:
            while self._more():
                due = (self._numbers - 1) / rate
                await asyncio.sleep(max(0.0, due - self.seconds))
                await room.acquire()
                task = asyncio.ensure_future(one(due))
                running.add(task)
                task.add_done_callback(running.discard)
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()

    async def _one(self, due: float) -> None:
        tenant, kind = self._plan.tenant(), self._plan.kind()
        self.tally.start()
        self.tally.end(await self._target.run(tenant, kind), self.seconds - due)
