"""What an accepted command may not mean as it stands: in the answer, in the events, and shown to people."""

from collections.abc import Iterator

import httpx
import pytest

from lucius.configs.files import FileConfig
from tests.api.world import ENVELOPE, World, client_of, context_of
from tests.cli.server import Server, running

SLIP = {**ENVELOPE, "request_type": "OCR", "payload": {"langauge": "en"}}
SAID = "/payload/langauge is not known here: did you mean `language`?"


def packaged() -> World:
    return World(FileConfig().catalog())


async def submitted(client: httpx.AsyncClient, envelope: object) -> dict[str, object]:
    answer = await client.post("/v1/orchestrate", json=envelope)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


async def test_the_answer_names_the_field_and_so_does_that_to_a_duplicate() -> None:
    async with client_of(context_of(packaged())) as client:
        first, again = await submitted(client, SLIP), await submitted(client, SLIP)
        fine = await submitted(client, {**SLIP, "payload": {"language": "en"}})
    at, _, detail = SAID.partition(" ")
    assert first["warnings"] == again["warnings"] == [{"pointer": at, "detail": detail}]
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert "warnings" not in fine


async def test_the_first_event_keeps_it() -> None:
    async with client_of(context_of(packaged())) as client:
        job_id = (await submitted(client, SLIP))["jobId"]
        events = (await client.get(f"/v1/jobs/{job_id}/events")).json()["events"]
    assert events[0]["payload"] == {"warnings": SAID}


@pytest.fixture
def server() -> Iterator[Server]:
    with running(packaged()) as server:
        yield server
