"""The end of a run, examined: nothing is lost, nothing is left over, and outputs match their records."""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from lucius.core.job import UNSUCCESSFUL_JOB, AbortReason, Job, JobState, StepState
from lucius.core.ticks import PATIENCE
from lucius.operations.retention import JobWorkspaces, check_effects
from lucius.platform.commit import COMMITS, CommitRecord
from lucius.ports.ledger import JobQuery
from tests.core.explore.fold import Machines, machines_of
from tests.simulation.observer import short
from tests.simulation.plan import AIMED_WINDOWS, EVENTS, PAUSES, WINDOWS

if TYPE_CHECKING:
    from tests.simulation.world import World

ALLOWED_DRIFT = ("effect_after_end",)
"""A service may commit after its job has ended: documented, and reported by `lucius verify`."""


SLOW = ("slow", "long", "beats")
"""What keeps a slot busy. An owner of lanes does not know how busy services are with those of others."""


async def examine(world: "World") -> None:
    """In a process of its own, when everything is quiet."""
    await _check_ledger(world)
    await _check_events(world)
    _check_requests(world)
    _check_attempts(world)
    await _check_backlog(world)
    await _check_outputs(world)


def _server(world: "World"):  # type: ignore[no-untyped-def]
    return next(iter(world.servers.values()))


async def _check_ledger(world: "World") -> None:
    """What is stored is what was seen to become durable, and contradicts itself nowhere."""
    ledger, seen = _server(world)._ledger, dict(world.observer.jobs)
    stored = {job.job_id: job for job in (await ledger.list(JobQuery(limit=1000))).jobs}
    for job_id, known in seen.items():
        found = stored.get(job_id)
        later = found is not None and found.version > known.version  # a late reply came meanwhile
        same = later or found == known
        world.observer.require(same, f"1: {short(job_id)} is stored as {found}, and was {known}")
    world.observer.require(len(stored) == len(seen), "a job came from nowhere")
    for drift in await ledger.verify():
        world.observer.fail(f"verify: {drift}")
    counts = await ledger.inflight()
    world.observer.require(not counts.total, f"{counts.total} jobs still count as live")
    world.observer.require(not await ledger.ready_queues(range(16)), "something is still held")


async def _check_events(world: "World") -> None:
    """The events of a job have no gap, and alone tell what became of it."""
    engine = _server(world).engine
    for job_id, job in tuple(world.observer.jobs.items()):
        events = await engine.events(job_id, 0, 10_000)
        numbers = [event.seq for event in events]
        if len(numbers) > job.seq:  # a late reply came meanwhile
            events, numbers = events[: job.seq], numbers[: job.seq]
        whole = numbers == list(range(1, job.seq + 1))
        world.observer.require(whole, f"7: the events of {short(job_id)} are {numbers}")
        machines = _fresh(job)
        for event in events:
            machines.apply(event)
        told = machines_of(job)
        for step_id, states in machines.executions.items():
            machines.executions[step_id] = (
                states[-len(told.executions[step_id]) :] if told.executions[step_id] else []
            )
        world.observer.require(machines == told, f"7: {short(job_id)} is {told}, not {machines}")


def _fresh(job: Job) -> Machines:
    machines = Machines("QUEUED")
    for planned in job.plan.steps:
        carried = planned.step_id in job.plan.carried
        machines.steps[planned.step_id] = "SUCCEEDED" if carried else "PENDING"
        machines.entries[planned.step_id] = None
        machines.executions[planned.step_id] = []
    return machines


def _check_requests(world: "World") -> None:
    """No accepted submission is lost, and duplicates share one job."""
    jobs = world.observer.jobs
    claims: defaultdict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs.values():
        if job.plan.redrive_of is None:
            claims[job.tenant_id, job.plan.idempotency_hash].append(job)
    for (tenant, _), held in claims.items():
        keyed = held[0].plan.idempotency_key is not None
        most = [job for job in held if keyed or job.state not in UNSUCCESSFUL_JOB]
        world.observer.require(len(most) <= 1, f"one request of {tenant} has {len(most)} jobs")
    for request in world.requests.values():
        for job_id in request.job_ids:
            found = jobs.get(job_id)
            world.observer.require(found is not None, f"1: {short(job_id)} is lost")
        if request.key is not None:
            same = len(set(request.job_ids)) <= 1
            world.observer.require(same, f"one key was answered with {request.job_ids}")
    redriven = Counter(job.plan.redrive_of for job in jobs.values() if job.plan.redrive_of)
    for job_id, number in redriven.items():
        world.observer.require(number == 1, f"{short(job_id)} was redriven {number} times")
        linked = jobs[str(job_id)].redriven_by is not None
        world.observer.require(linked, f"{short(job_id)} does not know its redrive")
    for job in jobs.values():
        if job.plan.callback_urls and job.job_id not in world.notified:
            world.observer.fail(f"the client of {short(job.job_id)} was never told")


def _check_attempts(world: "World") -> None:
    """Attempts end only by what has happened in this run."""
    kinds, reasons = world.plan.kinds, world.observer.aborted()
    excused = {*WINDOWS, *AIMED_WINDOWS, *EVENTS, *PAUSES}
    if world.plan.setup.bus == "volatile":  # what dies with the bus is published again at no cost
        excused -= {"kill_server", "kill_both", "stop_server"}
    bad = kinds & excused
    mute = any(world.done[f"deed.{deed}"] for deed in ("silent", "early", "late"))
    lazy = any(world.done[f"deed.{deed}"] for deed in ("mute", "late"))
    apart = world.plan.setup.servers > 1 and any(world.done[f"deed.{deed}"] for deed in SLOW)
    if not bad and not mute and not apart and not _waited_too_long(world):
        silent = reasons[AbortReason.ACK_TIMEOUT]
        world.observer.require(not silent, f"{silent} ACKs timed out, and all services answered")
    if not bad and not lazy:
        expired = reasons[AbortReason.LEASE_EXPIRED]
        world.observer.require(not expired, f"{expired} leases ran out, and all services beat")
    if not kinds & {"bus.refuse"}:
        refused = reasons[AbortReason.PUBLISH_REFUSED]
        world.observer.require(not refused, "a publish counts as refused, and none was")
    if not kinds & {"kill_server", "kill_both", "kill_services", "stop_server", "stop_services"}:
        world.observer.require(not reasons[AbortReason.PROCESS_DIED], "a lease ended by a death")


def _waited_too_long(world: "World") -> bool:
    """Whether a directive queued for so long that its service may be taken for silent."""
    return any(
        execution.reason is AbortReason.ACK_TIMEOUT
        and execution.finished_at is not None
        and execution.finished_at - execution.leased_at >= PATIENCE * planned.policy.lease
        for job in world.observer.jobs.values()
        for planned, step in zip(job.plan.steps, job.steps, strict=True)
        for execution in step.executions
    )


async def _check_backlog(world: "World") -> None:
    """Everything has ended, so nothing is held, released or in progress any more."""
    for server in world.servers.values():
        left = await world.left_over(server)
        world.observer.require(not left, f"{server.process} still counts {left}")


async def _check_outputs(world: "World") -> None:
    """Every step of the kit that succeeded has one commit record, and the output that it names."""
    workspace = world.workspace
    for job in world.observer.jobs.values():
        pairs = zip(job.plan.steps, job.steps, strict=True)
        for planned, step in pairs:
            kit = planned.service != "gamma" and planned.step_id not in job.plan.carried
            if kit and step.state is StepState.SUCCEEDED:
                uri = step.result_ref["uri"]
                digest = await workspace.digest(uri)
                named = (step.result_ref["sha256"], step.result_ref["size"])
                world.observer.require(digest == named, f"the output {uri} is not what was told")
                last = workspace.history[uri]
                world.observer.require(len(last) == 1, f"{uri} was written {len(last)} times")
        if job.state is JobState.SUCCEEDED and job.final_output is None:
            world.observer.fail(f"{short(job.job_id)} has succeeded without an output")
    for uri, contents in workspace.history.items():
        if f"/{COMMITS}" in uri:
            world.observer.require(len(contents) == 1, f"{uri} was committed {len(contents)} times")
            CommitRecord.decoded(contents[0])
    home = JobWorkspaces(workspace, "mem://workspace/lucius/", "simulation")
    for drift in await check_effects(_server(world)._ledger, home):
        if drift.kind not in ALLOWED_DRIFT:
            world.observer.fail(f"verify: {drift}")
