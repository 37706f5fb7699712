"""Where the time of a job went: each attempt as held, waiting for its ACK, running, backing off."""

from datetime import timedelta

from lucius.console.timeline import WIDTH, Row, timeline
from lucius.console.words import duration
from lucius.core.inputs import AckReceived, ResultReceived, ResultStatus, Ticked
from lucius.core.job import Fault
from tests.api.world import ENVELOPE, World


def spent(row: Row) -> dict[str, float]:
    return {span.spent.value: span.seconds.total_seconds() for span in row.spans}


async def test_an_attempt_is_split_and_a_retry_begins_a_new_row() -> None:
    world = World()
    job_id = (await world.submit(ENVELOPE)).job_id
    world.pass_time(seconds=5)
    bound = await world.out(job_id)
    world.pass_time(seconds=2)
    attempt = (bound["stepId"], bound["attempt_no"], bound["lease_id"])
    await world.apply(job_id, AckReceived(*attempt, worker_id="w"))
    world.pass_time(seconds=30)
    failed = ResultReceived(*attempt, ResultStatus.FAILED_RETRY, fault=Fault("X", "y"))
    await world.apply(job_id, failed)
    world.pass_time(seconds=10)
    (row,) = timeline(world.jobs[job_id], world.now).rows
    assert spent(row) == {"held": 5, "ack": 2, "running": 30, "backoff": 10}
    world.pass_time(seconds=20)
    await world.apply(job_id, Ticked())
    world.pass_time(seconds=7)
    first, second = timeline(world.jobs[job_id], world.now).rows
    assert spent(first) == {"held": 5, "ack": 2, "running": 30, "backoff": 30}
    assert (second.attempt_no, second.execution, spent(second)) == (2, None, {"held": 7})
    await world.out(job_id)
    world.pass_time(seconds=3)
    whole = timeline(world.jobs[job_id], world.now)
    first, second = whole.rows
    assert spent(second) == {"held": 7, "ack": 3}
    bars = [bar for row in whole.rows for bar in whole.bars(row)]
    assert all(bar.x >= 0 and bar.x + bar.width <= WIDTH + 3 for bar in bars)


def test_durations_read_well() -> None:
    spans = (0.34, 2.42, 59, 200, 7500, 273_600)
    texts = ["340 ms", "2.4 s", "59 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"]
    assert [duration(timedelta(seconds=span)) for span in spans] == texts
