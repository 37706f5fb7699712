"""What moves a job on an Azure ledger, each in a setting of its own, and who may come in between."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import pytest

from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.store import Store
from lucius.core.decide import decide
from lucius.core.inputs import (
    CancelRequested,
    Dismissed,
    EffectSettled,
    HeartbeatReceived,
    Input,
    PauseRequested,
    Redriven,
    ResumeRequested,
)
from lucius.core.job import Job
from lucius.ports.ledger import Created, CreateOutcome, Duplicate, Unfinished
from tests.conformance.azure_ledgers import JOBS
from tests.conformance.jobs import (
    Made,
    ack_of,
    at,
    claim_of,
    failure_of,
    make,
    release_of,
    success_of,
    then,
)
from tests.faults.stopping_store import Clock, DeadError, Fate, StoppingStore
from tests.memory_tables import MemoryTables

Opens = Callable[[Store, Clock], AzureLedger]
NOTIFIED = ("https://client.example/done",)
START = 5.0
PREFIX = "t"
"""What the names of the tables begin with."""


class Site:
    """One table service, and the ledgers that processes open on it."""

    def __init__(self, opens: Opens) -> None:
        self._opens = opens
        self.store = MemoryTables()
        self.clock = Clock(at(START))

    def open(self, store: Store | None = None) -> AzureLedger:
        return self._opens(store or self.store, self.clock)

    async def by_another(self, act: "Act") -> object:
        """By a process that comes, acts and goes."""
        ledger = self.open()
        answer = await act(ledger)
        await ledger.close()
        return answer

    def wait(self, **span: float) -> None:
        self.clock.moment += timedelta(**span)


Act = Callable[[AzureLedger], Awaitable[object]]
Setting = Callable[[Site], Awaitable[object]]


@dataclass(frozen=True)
class Operation:
    name: str
    before: Setting
    act: Act
    rival: Act
    """Someone else, with the same wish or another one for the same job."""

    def __str__(self) -> str:
        return self.name


def setting(act: Act) -> Setting:
    return lambda site: site.by_another(act)


WRITES_THE_JOB = f"{PREFIX}{JOBS}"


def abandoned(before: Act, act: Act, minutes: float = 11) -> Setting:
    """A writer died before it wrote the job, by default so long ago that nobody waits for it."""

    async def setting_(site: Site) -> None:
        await site.by_another(before)
        dying = site.open(StoppingStore(site.store, WRITES_THE_JOB, Fate.UNSENT))
        with pytest.raises(DeadError):
            await act(dying)
        site.wait(minutes=minutes)

    return setting_


# -- creating --------------------------------------------------------------------------------


def request(key: object, name: object = 1, **plan: object) -> Made:
    """The request `name`, planned under an id of its own."""
    return replace(make(key, now=at(START), **plan), claim=claim_of(name))  # type: ignore[arg-type]


async def submitted(ledger: AzureLedger, made: Made) -> CreateOutcome:
    """As an engine does it: a request whose job was never written is completed under the claimed id."""
    outcome = await ledger.create(made.claim, made.job, made.events)
    if isinstance(outcome, Unfinished):
        again = request("again", job_id=outcome.job_id)
        outcome = await ledger.create(made.claim, again.job, again.events)
    assert isinstance(outcome, Created | Duplicate), outcome
    return outcome


def submits(key: object, **plan: object) -> Act:
    async def act(ledger: AzureLedger) -> CreateOutcome:
        return await submitted(ledger, request(key, **plan))

    return act


async def nothing(ledger: AzureLedger) -> None:
    """The ledger is empty, or nobody else comes."""


async def cancelled(ledger: AzureLedger) -> None:
    await submits("old")(ledger)
    await moved(ledger, "old", [CancelRequested()])


async def failed(ledger: AzureLedger) -> None:
    await submits("old", released=True)(ledger)
    await applied(ledger, "old", ack_of)
    await applied(ledger, "old", failure_of)


# -- moving ----------------------------------------------------------------------------------


async def moved(ledger: AzureLedger, key: object, inputs: Sequence[Input]) -> bool:
    """False: someone else was faster, or there is no such job."""
    job = await ledger.load(request(key).job.job_id)
    if job is None:
        return False
    decision = decide(job, inputs[0], job.updated_at + timedelta(seconds=1))
    if not decision.changed:
        return False
    return await ledger.save(decision.job, job.version, decision.events)


async def applied(ledger: AzureLedger, key: object, received: Callable[[Job], Input]) -> bool:
    job = await ledger.load(request(key).job.job_id)
    return job is not None and await moved(ledger, key, [received(job)])


def applies(received: Callable[[Job], Input], key: object = "one") -> Act:
    async def act(ledger: AzureLedger) -> bool:
        return await applied(ledger, key, received)

    return act


async def next_step(ledger: AzureLedger) -> bool:
    """RESULT, with the release of the next step in the same save."""
    job = await ledger.load(request("one").job.job_id)
    assert job is not None
    now = job.updated_at + timedelta(seconds=1)
    decision = decide(job, success_of(job), now)
    decision = then(decision, release_of(decision.job, 1), now)
    return await ledger.save(decision.job, job.version, decision.events)


def lived(*received: Callable[[Job], Input], released: bool = True, **plan: object) -> Act:
    """A job that has come so far."""

    async def act(ledger: AzureLedger) -> None:
        await submits("one", released=released, **plan)(ledger)
        for each in received:
            assert await applied(ledger, "one", each)

    return act


def always(received: Input) -> Callable[[Job], Input]:
    return lambda job: received


def settled(job: Job) -> Input:
    return EffectSettled(job.owed[0].owed_id if job.owed else "none", performed=True)


def heartbeat_of(job: Job) -> Input:
    ack = ack_of(job)
    return HeartbeatReceived(ack.step_id, ack.attempt_no, ack.lease_id)


CANCEL = always(CancelRequested(immediate=True))
LINK = always(Redriven("another"))
STEP = ("OCR",)

CREATIONS = (
    Operation("create held", setting(nothing), submits("one"), submits("two")),
    Operation("create released", setting(nothing), submits("one", released=True), submits("two")),
    Operation(
        "create in place of a cancelled one", setting(cancelled), submits("one"), submits("two")
    ),
    Operation(
        "complete a claim without rows",
        abandoned(nothing, submits("one"), minutes=1),
        submits("two"),
        submits("another"),
    ),
    Operation(
        "create a redrive",
        setting(failed),
        submits("one", redrive_of=request("old").job.job_id),
        nothing,
    ),
)
SAVES = (
    Operation("release", setting(lived(released=False)), applies(release_of), applies(CANCEL)),
    Operation("ack", setting(lived()), applies(ack_of), applies(CANCEL)),
    Operation("result and release", setting(lived(ack_of)), next_step, applies(CANCEL)),
    Operation("end", setting(lived(ack_of, types=STEP)), applies(success_of), applies(CANCEL)),
    Operation(
        "end that owes",
        setting(lived(ack_of, types=STEP, callback_urls=NOTIFIED)),
        applies(success_of),
        applies(CANCEL),
    ),
    Operation("fail", setting(lived(ack_of)), applies(failure_of), applies(CANCEL)),
    Operation("cancel", setting(lived(released=False)), applies(CANCEL), applies(CANCEL)),
    Operation(
        "pause",
        setting(lived(released=False)),
        applies(always(PauseRequested())),
        applies(CANCEL),
    ),
    Operation(
        "resume",
        setting(lived(always(PauseRequested()), released=False)),
        applies(always(ResumeRequested())),
        applies(CANCEL),
    ),
    Operation(
        "dismiss",
        setting(lived(ack_of, failure_of)),
        applies(always(Dismissed())),
        applies(LINK),
    ),
    Operation(
        "link a redrive",
        setting(lived(ack_of, failure_of)),
        applies(LINK),
        applies(always(Dismissed())),
    ),
    Operation("heartbeat", setting(lived(ack_of)), applies(heartbeat_of), applies(CANCEL)),
    Operation(
        "fail for now",
        setting(lived(ack_of)),
        applies(partial(failure_of, final=False)),
        applies(CANCEL),
    ),
    Operation(
        "note a late reply",
        setting(lived(ack_of, CANCEL)),
        applies(success_of),
        applies(failure_of),
    ),
    Operation(
        "settle",
        setting(lived(CANCEL, released=False, callback_urls=NOTIFIED)),
        applies(settled),
        applies(settled),
    ),
)
