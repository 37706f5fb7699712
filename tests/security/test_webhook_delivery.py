"""From the end of a job to its client: delivered, retried with backoff, or given up and on record."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.app.adapters import open_bus, open_config, open_ledger, open_workspace
from lucius.app.secrets import webhook_secret
from lucius.app.settings import load_settings
from lucius.core.effects import Committed
from lucius.core.inputs import CancelRequested
from lucius.core.job import Job
from lucius.core.retry import EFFECT_ATTEMPTS, EFFECT_BACKOFF
from lucius.engine.loop import Listener
from lucius.operations.webhooks import WebhookRefusedError, tenant_secrets
from lucius.ports.ledger import Ledger
from lucius.system.outside import GuardedBackend, guarded_transport
from tests.api.live import Live
from tests.engine.world import World
from tests.security.receiver import HOST, Detour, Receiver, names
from tests.security.test_webhooks import URL, verified
from tests.virtual import VirtualLoop, run_virtually
from tests.wiring import runtime_of


@asynccontextmanager
async def lucius(
    data: Path, transport: httpx.AsyncBaseTransport, *listeners: Listener
) -> AsyncIterator[Live]:
    """The whole of it; only the last hop of a webhook is the test's."""
    settings = load_settings({"LUCIUS_DATA_DIR": str(data)})
    runtime = runtime_of(
        settings,
        ledger=await open_ledger(settings),
        bus=open_bus(settings),
        config=await open_config(settings),
        workspace=open_workspace(settings),
        webhook_transport=transport,
        listeners=listeners,
    )
    async with runtime.running():
        asgi = httpx.ASGITransport(app=runtime.app())
        async with httpx.AsyncClient(transport=asgi, base_url="http://localhost") as client:
            yield Live(client, runtime)


class Settled:
    """Set once a job that has ended owes nothing any more."""

    def __init__(self) -> None:
        self._done = asyncio.Event()

    def listen(self, commit: Committed) -> None:
        if commit.job.terminal and not commit.job.owed:
            self._done.set()

    async def record(self, ledger: Ledger, job_id: str) -> dict[str, Any]:
        """What the one event about it says."""
        await self._done.wait()
        events = await ledger.events(job_id, 0, 500)
        (data,) = [event.data for event in events if event.data and "effect" in event.data]
        return dict(data)


async def test_a_client_is_told_how_its_job_ended(tmp_path: Path) -> None:
    settled = Settled()
    async with (
        Receiver(tmp_path).running() as receiver,
        lucius(tmp_path / "data", receiver.transport(), settled.listen) as live,
    ):
        job_id = await live.accepted(callback_urls=[URL])
        await live.work()
        event = await settled.record(live.runtime.ledger, job_id)
        (secret,) = tenant_secrets(webhook_secret(live.runtime.settings), "tenant_a")
    (received,) = receiver.received
    assert verified(secret, received)
    assert b'"type":"job.succeeded"' in received.body
    assert event == {"effect": "notify_client", "owed_id": "notify-0", "performed": True}


async def test_a_name_that_leads_inside_is_given_up_at_once_and_on_record(tmp_path: Path) -> None:
    detour = Detour({})
    table = names({HOST: ["169.254.169.254"]})
    settled, transport = Settled(), guarded_transport(GuardedBackend(detour, table))
    async with lucius(tmp_path, transport, settled.listen) as live:
        job_id = await live.accepted(callback_urls=[URL])
        await live.work()
        event = await settled.record(live.runtime.ledger, job_id)
        job = await live.runtime.engine.job(job_id)
    assert event["performed"] is False
    assert event["reason"] == f"{HOST} has an address that is not public"
    assert job is not None
    assert (job.owed, job.due_at) == ((), None)
    assert detour.dialled == []


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://[::ffff:127.0.0.1]/",
        "https://169.254.169.254/latest/meta-data/",
        "https://metadata.google.internal/",
        "https://localhost/",
        "http://hooks.client.example/",
        "https://u:p@hooks.client.example/",
    ],
)
async def test_what_is_inside_as_written_makes_no_job(tmp_path: Path, url: str) -> None:
    async with lucius(tmp_path, guarded_transport(GuardedBackend(Detour({})))) as live:
        answer = await live.submit(callback_urls=[f"https://{HOST}/", url])
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_ENVELOPE")
        assert [error["pointer"] for error in answer.json()["errors"]] == ["/callback_urls/1"]
        assert (await live.client.get("/v1/jobs")).json()["jobs"] == []


# -- retries, in virtual time ----------------------------------------------------------------------

Answer = Callable[[int], bool]


def attempts(answer: Answer) -> tuple[list[float], dict[str, Any]]:
    """When the webhook of a job was called, in seconds from its end, and what was put on record."""

    async def main(loop: VirtualLoop) -> tuple[list[float], dict[str, Any]]:
        times: list[float] = []

        async def notify(job: Job, owed_id: str, url: str) -> bool:
            times.append(loop.time())
            return answer(len(times))

        settled = Settled()
        world = World(loop, listeners=[settled.listen])
        world.dispatcher._notify = notify
        async with world.running():
            job_id = await world.submit(callback_urls=[URL])
            await world.engine.apply(job_id, CancelRequested(immediate=True))
            record = await settled.record(world.ledger, job_id)
        return [at - times[0] for at in times], record

    return run_virtually(main)


def test_a_client_that_answers_late_is_told_in_the_end() -> None:
    times, record = attempts(lambda number: number == 3)
    waits = [wait.total_seconds() for wait in EFFECT_BACKOFF]
    assert times == pytest.approx([0, waits[0], waits[0] + waits[1]], abs=0.1)
    assert record["performed"] is True


def test_a_client_that_never_answers_is_given_up_after_twelve_attempts() -> None:
    times, record = attempts(lambda number: False)
    assert len(times) == EFFECT_ATTEMPTS == 12
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses == pytest.approx(sorted(pauses), abs=0.1)
    assert pauses[-1] == pytest.approx(EFFECT_BACKOFF[-1].total_seconds(), abs=0.1)
    assert record == {"effect": "notify_client", "owed_id": "notify-0", "performed": False}


def test_a_refused_address_is_called_once() -> None:
    def refuse(number: int) -> bool:
        raise WebhookRefusedError("it is inside")

    times, record = attempts(refuse)
    assert len(times) == 1
    assert (record["performed"], record["reason"]) == (False, "it is inside")


def test_any_other_error_is_tried_again() -> None:
    def fail_once(number: int) -> bool:
        if number == 1:
            raise RuntimeError("something else")
        return True

    times, record = attempts(fail_once)
    assert len(times) == 2
    assert record["performed"] is True
