"""What is counted and said of directives that nobody takes: each is counted, and a service is named once."""

import asyncio
import json
from typing import Any

import pytest

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core.errors import BusUnavailableError, LedgerUnavailableError
from lucius.core.routing import every_directive_topic
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.engine.notices import UNCLAIMED
from lucius.ports.bus import Message, Subscription
from tests.bus_looks import backlog
from tests.faults.network import Network
from tests.faults.stage import PACKAGED
from tests.observability.world import Watched, watched

TOPICS = every_directive_topic()


async def counted(world: Watched, cause: str = "ocr", incident: str = "unclaimed") -> float:
    return await world.value("lucius_incidents_total", incident=incident, cause=cause)


def said(lines: list[str]) -> list[dict[str, Any]]:
    every = (json.loads(line) for line in lines)
    return [line for line in every if line["logger"] == "lucius.unclaimed"]


def waiting(world: Watched) -> Any:
    return backlog(world.bus, UNCLAIMED, TOPICS)


async def unsubscribed(world: Watched) -> None:
    """The service still runs, and its subscriptions let nothing through any more."""
    nothing = {"step_type": ("SOMETHING ELSE",)}
    await world.bus.ensure([Subscription(topic, "ocr", nothing) for topic in TOPICS])


@watched
async def test_the_names_that_a_message_gives_are_not_believed(world: Watched) -> None:
    """The label is the service of the job's plan, so that strangers cannot make up series."""
    bodies: list[dict[str, Any]] = [{}, {"jobId": "nope", "service": "made-up"}, {"jobId": 7}]
    job_id = await world.submit()
    await asyncio.sleep(1)
    bodies += [{"jobId": job_id, "stepId": "nope", "service": "made-up"}]
    for number, body in enumerate(bodies):
        await world.bus.publish(TOPICS[number], [Message(f"m{number}", body)])
    await asyncio.sleep(1)
    assert await counted(world, "unknown") == len(bodies)
    assert await counted(world, "made-up") == 0
    assert await waiting(world) == 0


@watched
async def test_an_attempt_that_waits_no_more_is_not_reported(world: Watched) -> None:
    puppet = await world.puppet()
    await world.submit()
    directive = await puppet.take()
    await puppet.ack(directive)
    await world.bus.publish("global-default-p0", [Message("again", {**directive})])
    await asyncio.sleep(1)
    await unsubscribed(world)
    await world.bus.publish("global-bus-p0", [Message("and again", {**directive})])
    await asyncio.sleep(1)
    assert await counted(world) == 0
    assert await waiting(world) == 0


@watched
async def test_while_the_ledger_is_away_it_waits(world: Watched) -> None:
    async def away(*asked: object) -> Any:
        raise LedgerUnavailableError("the disk is gone")

    await world.submit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryLedger, "save", away)
        await asyncio.sleep(20)
        assert await counted(world) == 0
    await asyncio.sleep(2)
    assert await counted(world) >= 1, "it was published again meanwhile, as the same attempt"
    assert await waiting(world) == 0


@watched
async def test_an_outage_of_the_bus_is_waited_out_and_counted_once(world: Watched) -> None:
    async def down(*asked: object) -> Any:
        raise BusUnavailableError("no route to the broker")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Network, "receive", down)
        await world.submit()
        await asyncio.sleep(10)
        assert await counted(world) == 0
    await asyncio.sleep(5)
    assert await counted(world) == 1
    assert await counted(world, "bus", "outage") == 1


@watched
async def test_one_that_cannot_be_noted_does_not_stop_the_others(world: Watched) -> None:
    async def defective(*asked: object) -> Any:
        raise ValueError("a defect")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryLedger, "save", defective)
        await world.submit()
        await asyncio.sleep(1)
    assert await counted(world, "unclaimed", "task_failed") == 1
    await world.submit(number=1)
    await asyncio.sleep(1)
    assert await counted(world) == 1


@pytest.mark.parametrize("topology", ["shared", "isolated", "filtered"])
def test_every_topology_is_covered(topology: str) -> None:
    """The service takes mode DEFAULT alone: one of the two subscriptions of `filtered` is missing."""

    async def body(world: Watched) -> None:
        world.engine._ingress = Ingress(PACKAGED, IngressPolicy(topology=topology))
        filters = {"step_type": ("OCR",), "mode": ("DEFAULT",)}
        await world.bus.ensure([Subscription(topic, "ocr", filters) for topic in TOPICS])
        await world.submit(mode="DEFAULT")
        await asyncio.sleep(1)
        assert await counted(world) == 0
        await world.submit(number=1, mode="BURST", doc_id="doc-1")
        await asyncio.sleep(1)
        assert await counted(world) == 1

    watched(body)()
