"""What an accepted command may not mean as it stands: in the answer, in the events, and shown to people."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lucius.adapters.configs.files import FileConfig
from lucius.client import Client
from tests.api.world import ENVELOPE, World, client_of, context_of
from tests.cli.conftest import Shell
from tests.cli.server import Server, running

SLIP = {**ENVELOPE, "request_type": "OCR", "payload": {"langauge": "en"}}
SAID = "/payload/langauge is not known here: did you mean `language`?"
SHOWN = f"lucius: warning: {SAID} It is kept and passed on as it is."


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


def test_submit_shows_it_beside_the_id(server: Server) -> None:
    words = ("submit", "--type", "OCR", "--input", "s3://b/in.pdf", "--payload")
    slip = Shell(server.url).run(*words, '{"langauge": "en"}')
    assert (slip.exit_code, slip.stdout, slip.stderr) == (0, "job_0\n", f"{SHOWN}\n")
    fine = Shell(server.url).run(*words, '{"language": "en"}')
    assert (fine.stdout, fine.stderr) == ("job_1\n", "")
    shown = Shell(server.url).run(*words, '{"langauge": "en"}', "--json")
    assert json.loads(shown.stdout)["warnings"][0]["pointer"] == "/payload/langauge"


def test_a_file_of_commands_is_warned_about_by_line(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "commands.jsonl"
    file.write_text("\n".join(map(json.dumps, [{**SLIP, "payload": {}}, SLIP])))
    shown = Shell(server.url).run("submit-many", str(file))
    assert (shown.stdout, shown.stderr) == (
        "job_0\njob_1\n",
        f"{SHOWN.replace('warning: ', 'warning: line 2: ')}\n",
    )


def test_the_python_client_tells_whoever_listens(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def logged() -> list[str]:
        return [each.message for each in caplog.records if each.name == "lucius.client"]

    async def submit() -> None:
        async with (
            Client(server.url, on_warning=heard.append) as told,
            Client(server.url) as client,
        ):
            await told.submit(SLIP)
            assert logged() == []
            await client.submit(SLIP)

    asyncio.run(submit())
    assert heard == [SAID]
    assert logged() == [SAID]
