"""A heavy payload stays text wherever it waits, and is a mapping for whoever works on it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.core.plan import OUTBOX
from lucius.core.record import Packed
from lucius.engine.dispatcher import LARGE
from tests.engine.world import envelope
from tests.faults.network import Network
from tests.faults.services import TOPICS
from tests.faults.stage import Stage, staged

LIGHT: dict[str, Any] = {"language": "en"}
HEAVY: dict[str, Any] = {"language": "en", "x": [[] for _ in range(LARGE)]}


def waiting(bus: MemoryBus) -> list[Any]:
    """The payloads of the directives that wait on the bus."""
    queues = [items for group in bus._groups.values() for each in group.ring.values()
              for items in each.values()]  # fmt: skip
    return [item.message.body["payload"] for items in queues for item in items]


@pytest.mark.parametrize("payload", [LIGHT, HEAVY], ids=["light", "heavy"])
def test_it_is_text_in_the_job_and_on_the_bus_and_a_mapping_when_it_is_taken(
    payload: dict[str, Any],
) -> None:
    @staged
    async def story(stage: Stage) -> None:
        stage.bus = Network(volatile=True)
        puppet = await stage.puppet()
        lucius = await stage.orchestrator()
        given = envelope(request_type="OCR", payload=payload)
        job_id = (await lucius.engine.submit(given)).job_id
        job = await lucius.engine.job(job_id)
        assert job is not None
        assert isinstance(job.plan.payload, Packed)
        for _ in range(100):  # turns of the loop, and no time: nobody has taken it yet
            await asyncio.sleep(0)
        (kept,) = waiting(stage.bus)
        assert isinstance(kept, Packed) == (payload is HEAVY)
        taken = await puppet.take()
        assert type(taken["payload"]) is dict
        assert taken["payload"] == payload
        assert not await stage.bus.receive("ocr", TOPICS, 1, timedelta(0))

    story(OUTBOX)
