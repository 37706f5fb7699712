"""The topologies of the lanes: both modes arrive in each, and filtered by mode, BURST holds nobody up."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from lucius.app.settings import load_settings
from lucius.core.job import JobState
from lucius.core.routing import TOPOLOGIES, every_directive_topic, lane_of
from lucius.engine.admission.ingress import IngressPolicy
from tests.engine.world import InOrder, Timed, World
from tests.virtual import VirtualLoop, run_virtually

FLOOD, QUIET_JOBS = 400, 20
SLOTS, SECONDS = 8, 4.0
QUIET = "quiet"
SAME_LANE = [f"d{n}" for n in range(20_000) if lane_of(f"flooderd{n}") == lane_of(QUIET)][:FLOOD]
ANY_LANE = [f"d{n}" for n in range(FLOOD)]


@dataclass
class Measured:
    states: set[JobState]
    used: int
    longest: float
    """Seconds that a DEFAULT job took at most."""


def measure(topology: str, documents: Sequence[str]) -> Measured:
    """A flood in mode BURST, then a DEFAULT job of another tenant every few seconds.

    Tenants take no turns on the bus, which would help as well.
    """

    async def main(loop: VirtualLoop) -> Measured:
        services = [Timed("ocr", SECONDS)]
        policy = IngressPolicy(topology=topology)
        world = World(loop, bus=InOrder(), services=[*services], slots=SLOTS, policy=policy)
        async with world.running():
            flood = [
                await world.submit(
                    tenant_id="flooder",
                    number=number,
                    request_type="OCR",
                    payload={},
                    mode="BURST",
                    doc_id=doc,
                )
                for number, doc in enumerate(documents)
            ]
            await asyncio.sleep(10)
            quiet = []
            for number in range(QUIET_JOBS):
                quiet.append(
                    await world.submit(
                        tenant_id=QUIET, number=number, request_type="OCR", payload={}
                    )
                )
                await asyncio.sleep(3)
            waits = [(await world.finished(job_id))["seconds"] for job_id in quiet]
            jobs = [(await world.finished(job_id))["job"] for job_id in (*flood, *quiet)]
            used = sum(step.used for job in jobs for step in job.steps)
            return Measured({job.state for job in jobs}, used, max(waits))

    return run_virtually(main)


@pytest.mark.parametrize("documents", [ANY_LANE, SAME_LANE], ids=["any lane", "same lane"])
def test_filtered_by_mode_a_flood_of_burst_does_not_hold_up_default(
    documents: Sequence[str],
) -> None:
    alone, crowded = measure("filtered", ()), measure("filtered", documents)
    assert crowded.states == {JobState.SUCCEEDED}
    assert crowded.longest <= 1.1 * alone.longest


def test_in_one_subscription_the_same_flood_does() -> None:
    """Both modes share one window there, so it is felt, and no more than that."""
    assert 1.2 < measure("shared", ANY_LANE).longest / measure("shared", ()).longest < 2


def test_topics_of_former_topologies_are_listened_on_where_so_configured() -> None:
    """On Service Bus each topic has a price, so a deployment names those that it still needs."""
    bus = {
        "LUCIUS_BUS_BACKEND": "servicebus",
        "LUCIUS_SERVICEBUS_CONNECTION": "https://name.servicebus.windows.net",
    }
    assert load_settings(bus).topologies() == ("shared",)
    former = load_settings({**bus, "LUCIUS_LANE_TOPOLOGY": "shared,isolated"})
    assert former.topologies() == ("shared", "isolated")
    assert set(load_settings({}).topologies()) == set(TOPOLOGIES)
    topics = every_directive_topic([3], former.topologies())
    assert topics == ("global-bus-p3", "global-default-p3", "global-burst-p3")
    assert every_directive_topic([3], load_settings(bus).topologies()) == ("global-bus-p3",)
