"""FM_015: a message that nobody can use: a reply, and a directive."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any
from unittest.mock import patch

import orjson

from lucius.core.job import JobState
from lucius.core.routing import lane_of, reply_topic
from lucius.engine.replies import BATCH
from lucius.ports.bus import Delivery, Message
from tests.bus_looks import dead_letters
from tests.faults.network import Network
from tests.faults.services import TOPICS, Scribe
from tests.faults.stage import Stage, staged

TENANT = "tenant_a"
LANE = lane_of(TENANT)
NAN = float("nan")
BOUND = {"jobId": "job_1", "stepId": "ocr", "attempt_no": 1, "lease_id": "l"}
DONE = {"type": "RESULT", "status": "SUCCEEDED", **BOUND}
REPLIES: dict[str, Mapping[str, Any]] = {
    "empty": {},
    "no type": BOUND,
    "no such status": {**DONE, "status": "PERHAPS"},
    "a number that JSON lacks": {**DONE, "output_ref": {"score": NAN}},
    "a lease that is no text": {**DONE, "lease_id": 7},
    "text that has no encoding": {**DONE, "output_ref": "\ud800"},
    "no such job": DONE,
}

NESTED = orjson.loads("[" * 1000 + "]" * 1000)
"""orjson reads it, and Python cannot write it as a text."""
DEEP: Sequence[Mapping[str, Any]] = (
    {**DONE, "timestamp": NESTED},
    *({"type": "ACK", name: NESTED} for name in BOUND),
)


def never_set_aside() -> Any:
    """What cannot be used is given back to the bus."""

    async def give_back(self: Network, delivery: Delivery, reason: str, detail: str) -> None:
        await self.abandon(delivery)

    return patch.object(Network, "dead_letter", give_back)


# -- replies ---------------------------------------------------------------------------------


async def poisoned_replies(stage: Stage) -> None:
    await stage.orchestrator()
    poison = [Message(name, body, {"type": "RESULT"}) for name, body in REPLIES.items()]
    await stage.bus.publish(reply_topic(LANE), poison)
    await asyncio.sleep(5)


@staged
async def test_fm_015_reproduce_a_faulty_reply_that_is_given_back_comes_again_and_again(
    stage: Stage,
) -> None:
    with never_set_aside():
        await poisoned_replies(stage)
    assert all(stage.bus.deliveries[name] == 10 for name in REPLIES)


@staged
async def test_fm_015_prevent_a_faulty_reply_is_set_aside_at_once_with_its_reason(
    stage: Stage,
) -> None:
    await poisoned_replies(stage)
    assert all(stage.bus.deliveries[name] == 1 for name in REPLIES)
    wanted = ["INVALID_CALLBACK"] * (len(REPLIES) - 1) + ["UNKNOWN_JOB"]
    assert sorted(await stage.dead_letters()) == wanted


@staged
async def test_fm_015_recover_good_replies_behind_faulty_ones_are_taken(stage: Stage) -> None:
    await poisoned_replies(stage)
    await stage.worker(Scribe())
    lucius = await stage.orchestrator()
    job = await stage.finished(await lucius.submit(tenant_id=TENANT))
    assert job.state is JobState.SUCCEEDED


@staged
async def test_fm_015_prevent_replies_that_nobody_can_read_stop_no_others(stage: Stage) -> None:
    lucius = await stage.orchestrator()
    many = [
        Message(f"deep {number}", {"jobId": f"job_{number}", **body}, {"type": "RESULT"})
        for number, body in zip(range(BATCH), cycle(DEEP), strict=False)
    ]
    await stage.bus.publish(reply_topic(LANE), many)
    await asyncio.sleep(5)
    letters = await stage.dead_letters()
    read = set() if sys.version_info < (3, 12) else {"UNKNOWN_JOB"}  # they nest deeper
    assert (len(letters), set(letters) - read) == (BATCH, {"INVALID_CALLBACK"})
    await stage.worker(Scribe())
    job = await stage.finished(await lucius.submit(tenant_id=TENANT))
    assert job.state is JobState.SUCCEEDED


# -- directives ------------------------------------------------------------------------------


async def poisoned_directive(stage: Stage) -> Scribe:
    scribe = Scribe()
    await stage.worker(scribe, slots=1)
    bad = Message("poison", {"stepId": "../../etc"}, {"type": "DIRECTIVE", "step_type": "OCR"})
    await stage.bus.publish(f"global-bus-p{LANE}", [bad])
    await asyncio.sleep(5)
    return scribe


@staged
async def test_fm_015_reproduce_a_faulty_directive_that_is_given_back_comes_again_and_again(
    stage: Stage,
) -> None:
    with never_set_aside():
        await poisoned_directive(stage)
    assert stage.bus.deliveries["poison"] == 10


@staged
async def test_fm_015_prevent_a_faulty_directive_is_set_aside_and_starts_nothing(
    stage: Stage,
) -> None:
    scribe = await poisoned_directive(stage)
    (letter,) = await dead_letters(stage.bus, "ocr", TOPICS)
    assert (letter.reason, stage.bus.deliveries["poison"]) == ("INVALID_DIRECTIVE", 1)
    assert scribe.begun == []


@staged
async def test_fm_015_recover_the_only_slot_is_free_for_the_next_directive(stage: Stage) -> None:
    await poisoned_directive(stage)
    lucius = await stage.orchestrator()
    job = await stage.finished(await lucius.submit(tenant_id=TENANT), within=5)
    assert job.state is JobState.SUCCEEDED
