"""A job says in a sentence why it is where it is."""

import pytest

from lucius.core.inputs import (
    AckReceived,
    CancelRequested,
    DirectiveUnclaimed,
    EntryReleased,
    Input,
    PauseRequested,
    PublishRefused,
    ResultReceived,
    ResultStatus,
    Ticked,
)
from lucius.core.job import Fault
from lucius.http.views import explain
from tests.api.world import ENVELOPE, World


@pytest.fixture
async def job_id(world: World) -> str:
    return (await world.submit(ENVELOPE)).job_id


async def test_a_held_step_waits_for_the_window(world: World, job_id: str) -> None:
    assert explain(world.jobs[job_id]) == (
        "step ocr waits for its turn with ocr-service; `lucius why job_0` says its place in line"
    )


async def test_a_sent_step_waits_for_its_ack(world: World, job_id: str) -> None:
    await world.out(job_id)
    assert explain(world.jobs[job_id]) == (
        "step ocr waits for ocr-service to acknowledge it by 2026-01-27T10:00:30Z (attempt 1 of 3)"
    )


async def test_a_worker_at_work_is_named(world: World, job_id: str) -> None:
    reply = await world.out(job_id)
    await world.apply(job_id, AckReceived("ocr", 1, reply["lease_id"], worker_id="w-7"))
    assert explain(world.jobs[job_id]) == (
        "step ocr runs on ocr-service (w-7);"
        " if the worker stays silent until 2026-01-27T10:15:00Z, the step is retried (attempt 1 of 3)"
    )


async def test_a_retry_says_when_and_after_what(world: World, job_id: str) -> None:
    await world.out(job_id)
    world.pass_time(seconds=31)
    await world.apply(job_id, Ticked())
    assert explain(world.jobs[job_id]) == (
        "step ocr waits for a retry at 2026-01-27T10:01:31Z after ACK_TIMEOUT (attempt 1 of 3)"
    )


async def test_a_directive_that_nobody_takes_is_not_taken_for_a_slow_service(
    world: World, job_id: str
) -> None:
    reply = await world.out(job_id)
    bound = ("ocr", 1, reply["lease_id"])
    await world.apply(job_id, DirectiveUnclaimed(*bound))
    untaken = "(attempt 1 of 3, which no service was subscribed to take)"
    assert explain(world.jobs[job_id]) == (
        f"step ocr waits for ocr-service to acknowledge it by 2026-01-27T10:00:30Z {untaken}"
    )
    world.pass_time(seconds=31)
    await world.apply(job_id, Ticked())
    assert explain(world.jobs[job_id]) == (
        f"step ocr waits for a retry at 2026-01-27T10:01:31Z after ACK_TIMEOUT {untaken}"
    )


async def test_a_directive_that_is_taken_after_all_is_being_worked_on(
    world: World, job_id: str
) -> None:
    reply = await world.out(job_id)
    bound = ("ocr", 1, reply["lease_id"])
    await world.apply(job_id, DirectiveUnclaimed(*bound))
    await world.apply(job_id, AckReceived(*bound))
    assert explain(world.jobs[job_id]).endswith("(attempt 1 of 3)")


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (CancelRequested(), "cancel was requested at 2026-01-27T10:00:00Z; step ocr waits for"),
        (PauseRequested(), "pause was requested at 2026-01-27T10:00:00Z; step ocr waits for"),
    ],
)
async def test_an_order_names_the_step_that_it_waits_for(
    world: World, job_id: str, order: Input, sentence: str
) -> None:
    await world.out(job_id)
    await world.apply(job_id, order)
    assert explain(world.jobs[job_id]).startswith(sentence)


async def test_a_paused_job_says_where_it_goes_on(world: World, job_id: str) -> None:
    await world.apply(job_id, PauseRequested())
    assert explain(world.jobs[job_id]) == (
        "paused at 2026-01-27T10:00:00Z; resume continues with step ocr"
    )


async def test_a_failed_job_names_step_and_fault(world: World, job_id: str) -> None:
    reply = await world.out(job_id)
    fault = Fault("UNREADABLE", "the document is encrypted")
    bound = ("ocr", 1, reply["lease_id"])
    await world.apply(job_id, ResultReceived(*bound, ResultStatus.FAILED_FINAL, None, fault))
    assert explain(world.jobs[job_id]) == (
        "step ocr failed for good (attempt 1 of 3): UNREADABLE: the document is encrypted"
    )


async def test_a_cancelled_job_says_since_when(world: World, job_id: str) -> None:
    await world.apply(job_id, CancelRequested())
    assert explain(world.jobs[job_id]) == "cancelled at 2026-01-27T10:00:00Z"


async def test_a_refused_publish_says_when_it_is_tried_again(world: World, job_id: str) -> None:
    await world.apply(job_id, EntryReleased("ocr", "lease"))
    assert explain(world.jobs[job_id]).startswith("step ocr is on its way to ocr-service")
    fault = Fault("TOO_LARGE", "the message is too large")
    await world.apply(job_id, PublishRefused("ocr", 1, "lease", fault))
    assert explain(world.jobs[job_id]) == (
        "step ocr waits to be published again at 2026-01-27T10:00:30Z"
        " after TOO_LARGE (attempt 1 of 3)"
    )
