"""`/readyz` says which dependency is down, and the scrape says the same."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core.errors import BusUnavailableError, LedgerUnavailableError
from tests.observability.served import serving, submitted


class BusDown:
    """Stands for a call to the bus; says when it was made."""

    def __init__(self) -> None:
        self.called = asyncio.Event()

    async def __call__(self, *asked: object) -> Any:
        self.called.set()
        raise BusUnavailableError("no route to the broker")


async def ledger_is_down(*asked: object) -> Any:
    raise LedgerUnavailableError("the disk is gone")


async def up(client: Any) -> dict[str, str]:
    text = (await client.get("/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith("lucius_dependency_up{")]
    pairs = (line.removeprefix('lucius_dependency_up{dependency="').split('"} ') for line in lines)
    return {name: value for name, value, *_ in pairs}


async def test_a_ledger_that_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as (_, client):
        assert (await client.get("/readyz")).status_code == 200
        with monkeypatch.context() as patch:
            patch.setattr(MemoryLedger, "check", ledger_is_down)
            answer = await client.get("/readyz")
            seen = await up(client)
        assert (await client.get("/readyz")).status_code == 200
        assert (await up(client))["ledger"] == "1.0"
    assert (answer.status_code, answer.json()["code"]) == (503, "NOT_READY")
    assert answer.json()["checks"]["ledger"] == "the disk is gone"
    assert answer.json()["checks"]["bus"] == "ok"
    assert (seen["ledger"], seen["bus"]) == ("0.0", "1.0")


async def test_a_bus_that_takes_no_directives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = BusDown()
    async with serving(tmp_path) as (_, client):
        monkeypatch.setattr(MemoryBus, "publish", down)
        await submitted(client)
        await down.called.wait()
        answer = await client.get("/readyz")
        assert (await up(client))["bus"] == "0.0"
    assert answer.status_code == 503
    said = "the bus does not take directives: no route to the broker"
    assert answer.json()["checks"]["bus"] == said
    assert answer.json()["checks"]["ledger"] == "ok"


async def test_a_bus_that_delivers_no_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = BusDown()
    monkeypatch.setattr(MemoryBus, "receive", down)
    async with serving(tmp_path) as (_, client):
        await down.called.wait()
        answer = await client.get("/readyz")
    said = "the bus does not deliver replies: no route to the broker"
    assert answer.json()["checks"]["bus"] == said


PROTOCOLS = """
step_types: {OCR: {service: ocr}}
protocols: [{request_type: OCR, protocol_id: ocr, steps: [OCR]}]
"""


async def test_a_bad_change_of_the_protocols_is_seen_and_does_not_make_it_unready(
    tmp_path: Path,
) -> None:
    path = tmp_path / "protocols.yaml"
    path.write_text(PROTOCOLS)
    async with serving(tmp_path / "data", LUCIUS_PROTOCOLS=str(path)) as (runtime, client):
        seen = []
        for text in (PROTOCOLS, "protocols: nonsense", PROTOCOLS + "# better\n"):
            path.write_text(text)
            await runtime.config.refresh()
            answer = await client.get("/readyz")
            assert answer.status_code == 200
            scraped = (await client.get("/metrics")).text
            value = scraped.partition("\nlucius_config_valid ")[2].partition("\n")[0]
            seen.append((list(answer.json()["warnings"]), value))
        await submitted(client)
    assert seen == [([], "1.0"), (["configuration"], "0.0"), ([], "1.0")]
