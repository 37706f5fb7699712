"""Run one plan, and report on it: the trace, what occurred, and the first thing that did not hold."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from lucius.core.errors import IllegalMoveError, LuciusError
from lucius.core.job import JobState
from tests.simulation.disk import lockstep
from tests.simulation.loop import NoGarbage, SimLoop, SpinError
from tests.simulation.plan import Plan
from tests.simulation.verdict import examine
from tests.simulation.wiring import seeded
from tests.simulation.world import PATIENCE, World

SETTLING = 120.0
"""Virtual seconds after the last job has ended, in which all that is counted must have come to zero."""


@dataclass(frozen=True)
class Report:
    plan: Plan
    broken: str | None
    lines: Sequence[str]
    digest: str
    seen: Counter[str]
    steps: int


def run(plan: Plan) -> Report:
    loop = SimLoop(Random(f"order {plan.seed}"))
    with NoGarbage(), seeded(plan.seed), lockstep(Random(f"disk {plan.seed}")):
        world = World(plan, loop)
        logging.disable(logging.CRITICAL)
        try:
            _go(world)
            return _report(world)
        finally:
            loop.end()
            world.close()
            logging.disable(logging.NOTSET)


def _go(world: World) -> None:
    loop, observer = world.loop, world.observer
    loop.in_process(loop.world, world.start)
    loop.in_process(loop.world, world.watch_over)
    give_up_at = world.plan.calm_at + PATIENCE
    try:
        loop.run(lambda: world.rest() or loop.time() > give_up_at)
        if observer.broken is None and not world.rest():
            observer.fail(f"after {PATIENCE:.0f} s not all has ended: {_unended(world)}")
        settled = loop.spawn(loop.world, world.settled(SETTLING))
        loop.run(settled.done)
    except SpinError as error:
        observer.fail(str(error))
    _check_failures(world)
    if observer.broken is None:
        task = loop.spawn(loop.world, examine(world))
        loop.run(task.done)
        if task.done() and (failure := task.exception()) is not None:
            observer.fail(f"the examination failed: {failure!r}")


def _unended(world: World) -> str:
    jobs = [job for job in world.observer.jobs.values() if not job.terminal or job.owed]
    waiting = f"{world._busy} clients wait; " if world._busy else ""
    said = (
        f"{job.job_id[-6:]} {job.state} {[str(s.state) for s in job.steps]} due {job.due_at}"
        for job in jobs
    )
    return waiting + "; ".join(said)


def _check_failures(world: World) -> None:
    """A task may fail by an outage. Anything else is a defect."""
    for server in world.servers.values():
        if server.failure is not None:
            world.observer.fail(f"{server.process} ended by itself: {server.failure!r}")
    for failure in world.loop.failures:
        error = failure.get("exception")
        if not isinstance(error, LuciusError) or isinstance(error, IllegalMoveError):
            world.observer.fail(f"{failure.get('message')}: {error!r}")


def _report(world: World) -> Report:
    observer = world.observer
    seen = observer.seen + world.done + world.faults.seen
    for reason, number in observer.aborted().items():
        seen[f"aborted.{reason.value}"] += number
    if any(
        job.plan.redrive_of and job.state is JobState.SUCCEEDED for job in observer.jobs.values()
    ):
        seen["redrive.succeeded"] += 1
    return Report(
        world.plan,
        observer.broken,
        world.trace.lines,
        world.trace.digest,
        seen,
        world.loop.steps,
    )
