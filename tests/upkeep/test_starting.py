"""A process whose storage is away at its start waits, alive and not ready, and starts when it comes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.app import building, standalone, starting
from lucius.app.adapters import open_records
from lucius.app.lifecycle import LOOPBACK, free_port
from lucius.app.processes import invoke, reconcile, serve
from lucius.app.settings import Settings, load_settings
from lucius.app.standalone import run_service
from lucius.app.starting import AWAY, FOR_GOOD, entered
from lucius.core.errors import LedgerUnavailableError
from tests.platform.isolated import Threaded

AWAY_NOW = "Azure Table Storage does not answer"
Start = Callable[[Settings, int, Callable[..., None]], Coroutine[Any, Any, None]]


class Storage:
    """Away until it is told otherwise."""

    def __init__(self) -> None:
        self.away: Exception | None = LedgerUnavailableError(AWAY_NOW)
        self.asked = 0

    def ask(self) -> None:
        self.asked += 1
        if self.away is not None:
            raise self.away

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[str]:
        self.ask()
        yield "open"


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Storage:
    """Whatever a process builds at its start needs it."""
    found, build = Storage(), building.build
    monkeypatch.setattr(starting, "PAUSES", (0.0, 0.001))

    async def built(*args: Any, **how: Any) -> Any:
        found.ask()
        return await build(*args, **how)

    @asynccontextmanager
    async def recorded(*args: Any) -> AsyncIterator[Any]:
        found.ask()
        async with open_records(*args) as opened:
            yield opened

    monkeypatch.setattr(building, "build", built)
    monkeypatch.setattr(standalone, "open_records", recorded)
    return found


async def _reconciler(settings: Settings, port: int, ready: Callable[..., None]) -> None:
    await reconcile(settings, ready=ready, health=port)


async def _invoker(settings: Settings, port: int, ready: Callable[..., None]) -> None:
    await invoke(settings, host=LOOPBACK, port=port, ready=ready)


async def _orchestrator(settings: Settings, port: int, ready: Callable[..., None]) -> None:
    await serve(settings, host=LOOPBACK, port=port, reconciles=False, ready=ready)


async def _service(settings: Settings, port: int, ready: Callable[..., None]) -> None:
    await run_service(settings, Threaded(), slots=1, ready=ready, health=port)


@pytest.mark.parametrize("start", [_reconciler, _invoker, _orchestrator, _service])
async def test_it_is_alive_and_not_ready_until_its_storage_is_there(
    start: Start, storage: Storage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load_settings({"LUCIUS_DATA_DIR": str(tmp_path), "LUCIUS_STORAGE_BACKEND": "memory"})
    port, started = free_port(), asyncio.Event()
    process = asyncio.create_task(start(settings, port, lambda *said: started.set()))
    try:
        transport = httpx.AsyncHTTPTransport(retries=100)
        url = f"http://{LOOPBACK}:{port}"
        async with httpx.AsyncClient(base_url=url, transport=transport) as client:
            assert (await client.get("/healthz")).status_code == 200
            unready = await client.get("/readyz")
            assert (unready.status_code, unready.json()["code"]) == (503, "NOT_READY")
            assert AWAY_NOW not in unready.text, "anyone may ask; the log says why"
            while storage.asked < 3:  # noqa: ASYNC110 - it asks by itself
                await asyncio.sleep(0)
            assert not process.done()
            storage.away = None
            await started.wait()
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/readyz")).json().get("code") != "NOT_READY"
    finally:
        process.cancel()
        await asyncio.gather(process, return_exceptions=True)
    said = [each for each in caplog.records if AWAY_NOW in each.getMessage()]
    assert [each.levelno for each in said] == [logging.WARNING], "the same reason is said once"


@pytest.mark.parametrize("kind", FOR_GOOD)
async def test_what_no_waiting_helps_against_ends_it(
    kind: type[Exception], storage: Storage
) -> None:
    storage.away = kind("for good")
    assert isinstance(storage.away, AWAY)
    with pytest.raises(kind):
        await entered(AsyncExitStack(), storage.opened, asyncio.Event())
    assert storage.asked == 1


async def test_one_that_is_told_to_stop_waits_no_longer(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "PAUSES", (3600.0,))
    stopping = asyncio.Event()
    waiting = asyncio.create_task(entered(AsyncExitStack(), storage.opened, stopping))
    while not storage.asked:  # noqa: ASYNC110 - it asks by itself
        await asyncio.sleep(0)
    stopping.set()
    assert await waiting is None
