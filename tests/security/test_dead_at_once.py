"""A step that kills its process before its ACK is saved is known to have been at work, and pays for it."""

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from lucius.bootstrap.at_work import AtWork, LeftAtWork
from lucius.core.inputs import AckReceived
from lucius.platform.directive import Directive, parse_directive
from tests.cli.up import Up
from tests.platform.bench import Bench
from tests.virtual import VirtualLoop, run_virtually

SERVICE = """
import os
from lucius.platform import Service

class Deadly(Service):
    name = "ocr"
    step_types = ("OCR",)

    async def execute(self, task):
        os._exit(9)
"""
OWNER = "embedded/1/ocr"


def directive(number: int, **fields: str) -> Directive:
    bodies: list[Directive] = []

    async def made(loop: VirtualLoop) -> None:
        bodies.append(parse_directive(Bench(loop).directive(number, **fields)))

    run_virtually(made)
    return bodies[0]


def ack(number: int) -> LeftAtWork:
    return LeftAtWork("job_1", AckReceived("ocr", number, f"lease_{number}", OWNER))


async def test_what_was_at_work_is_there_after_a_crash_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "at-work"
    records, begun = AtWork(path), DIRECTIVES
    for each in begun[:4]:
        await records.begin(each, OWNER)
    await records.finish(begun[0], {"status": "SUCCEEDED"})
    await records.forget(begun[1], OWNER)
    await records.begin(begun[4], OWNER)
    await records.begin(begun[4], OWNER)  # a duplicate
    later = AtWork(path)
    assert set(later.left()) == {ack(3), ack(4), ack(5)}
    later.clear()
    assert list(later.left()) == []
    assert path.stat().st_mode & 0o777 == 0o600


async def test_what_cannot_be_read_or_noted_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "at-work"
    path.write_bytes(b'["job_1","oc')
    records = AtWork(path)
    assert list(records.left()) == []
    records.clear()
    await records.begin(LONG, OWNER)
    await records.begin(DIRECTIVES[0], OWNER)
    assert list(records.left()) == [ack(1)]


DIRECTIVES = [directive(number) for number in range(1, 6)]
LONG = directive(7, stepId="x" * 3000)


def asked(server: Up, path: str, body: object = None) -> Any:
    content = json.dumps(body).encode() if body is not None else None
    request = Request(server.url + path, content, {"content-type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


@pytest.fixture
def command(tmp_path: Path) -> dict[str, object]:
    (tmp_path / "deadly.py").write_text(SERVICE)
    (tmp_path / "in.txt").write_text("text")
    return {
        "tenant_id": "tenant_a",
        "request_type": "OCR",
        "input_ref": (tmp_path / "in.txt").as_uri(),
        "output_ref": (tmp_path / "out.txt").as_uri(),
        "payload": {},
        "schema_version": "v1",
    }


def test_the_second_death_costs_an_attempt_however_soon_it_comes(
    tmp_path: Path, command: dict[str, object]
) -> None:
    words = ("--data", str(tmp_path / "data"), "--no-services", "--service", "deadly:Deadly")
    server = Up(tmp_path, *words)
    try:
        server.await_ready()
        job_id = asked(server, "/v1/orchestrate", command)["jobId"]
        assert server.ended() == 9
        server = Up(tmp_path, *words)
        assert server.ended(60) == 9, "the first one is free"
        server = Up(tmp_path, *words)
        server.await_ready()
        runs = asked(server, f"/v1/jobs/{job_id}/executions")["executions"]
        (step,) = asked(server, f"/v1/jobs/{job_id}/steps")["steps"]
    finally:
        server.kill()
    assert [run["reason"] for run in runs] == ["process_died"] * 2
    assert (step["state"], step["attempt_no"]) == ("FAILED_RETRY", 1)
