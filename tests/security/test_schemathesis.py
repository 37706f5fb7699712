"""Schemathesis with all its checks against a running LUCIUS: no 5xx, and no answer that is not documented."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from lucius.app.building import build
from lucius.app.runtime import Runtime
from lucius.app.settings import load_settings
from lucius.core.inputs import CancelRequested
from lucius.http.server import bounded
from tests.api.live import ENVELOPE
from tests.api.world import document
from tests.security.acceptable import acceptable
from tests.security.routes import ROUTES, DocumentedRoute
from tests.security.wire import roomy

EXAMPLES = 25
Case = schemathesis.Case[Any]
Checks = list[Callable[..., bool | None]]


class Server:
    """LUCIUS in a thread with a loop of its own, as Hypothesis knows no async."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._ended: asyncio.Event = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._run()])
        self.url = ""
        self.job_id = ""

    async def _run(self) -> None:
        loaded = load_settings({"LUCIUS_DATA_DIR": str(self._data)})
        runtime = await build(loaded)
        async with runtime.running():
            self.job_id = await self._job(runtime)
            config = uvicorn.Config(
                runtime.app(), http=bounded(roomy()), lifespan="off", log_config=None, port=0
            )
            server = uvicorn.Server(config)
            config.load()
            server.lifespan = config.lifespan_class(config)
            await server.startup()
            port = server.servers[0].sockets[0].getsockname()[1]
            self.url = f"http://127.0.0.1:{port}"
            self._started.set()
            await self._ended.wait()
            await server.shutdown()

    async def _job(self, runtime: Runtime) -> str:
        """A job that has ended, so that nothing waits for more of it; and another, for a second page."""
        for number in range(2):
            submitted = await runtime.engine.submit(ENVELOPE, idempotency_key=str(number))
            await runtime.engine.apply(submitted.job_id, CancelRequested(immediate=True))
        return submitted.job_id

    @contextmanager
    def running(self) -> Iterator["Server"]:
        self._thread.start()
        assert self._started.wait(20)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(20)
            self._loop.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data")).running() as server:
        yield server


@pytest.fixture(scope="module")
def promised() -> Any:
    """What every installation promises."""
    return schemathesis.openapi.from_dict(document())


@pytest.fixture(scope="module")
def narrowed() -> Any:
    """What this one accepts: nothing is excluded here."""
    schema = schemathesis.openapi.from_dict(acceptable(document()))
    schema.config.generation.update(modes=[GenerationMode.POSITIVE])
    return schema


INGRESS = ("/v1/orchestrate", "/v1/commands")
CREATING = (*INGRESS, "/v1/jobs/{jobId}:redrive")
Query = dict[str, Any]
SECONDS = re.compile(r"[1-5]?[0-9](\.[0-9]+)?|60")
"""In a query they may be a text."""


def unknowable(case: Case) -> Checks:
    """Whether a protocol, a reference or a payload is known and allowed, the contract cannot say.

    The narrowed document can; there these requests have to be accepted.
    """
    return [positive_data_acceptance] if case.operation.path in CREATING else []


def with_cursor(case: Case, server: Server) -> Checks:
    """Every other cursor of a valid request is one that the server handed out for its filters.

    The rest are made up, and refused: that only what was handed out is accepted, no schema can say.
    """
    if "cursor" not in case.query or case.meta is None or case.meta.generation.mode.is_negative:
        return []
    filters = {name: value for name, value in case.query.items() if name != "cursor"}
    if len(case.query["cursor"]) % 2 == 0:
        case.query["cursor"] = handed_out(f"{server.url}{case.operation.path}", filters)
        return []
    return [positive_data_acceptance]


def handed_out(url: str, filters: Query) -> str:
    """Empty where nothing matches: that is the first page."""
    answer = httpx.get(url, params={**filters, "limit": 1})
    return str(answer.json().get("next_cursor") or "")


def bring_near(case: Case, job_id: str) -> None:
    """Every other question is about a job that exists, and none waits long."""
    if "jobId" in case.path_parameters and len(case.path_parameters["jobId"]) % 2:
        case.path_parameters["jobId"] = job_id
    for place in (case.query, case.body):
        wait = place.get("wait_seconds") if isinstance(place, dict) else None
        if place is case.query and SECONDS.fullmatch(str(wait)):
            wait = float(str(wait))
        if isinstance(place, dict) and isinstance(wait, int | float) and 0.01 < wait <= 60:
            place["wait_seconds"] = 0.01


def answers_as_documented(case: Case, server: Server) -> None:
    bring_near(case, server.job_id)
    excluded = unknowable(case) + with_cursor(case, server)
    case.call_and_validate(base_url=server.url, excluded_checks=excluded)


def accepts_what_it_allows(case: Case, server: Server) -> None:
    bring_near(case, server.job_id)
    case.call_and_validate(base_url=server.url)


def _test_of(
    schema: str, route: DocumentedRoute, check: Callable[[Case, Server], None]
) -> tuple[str, Callable[..., None]]:
    """One function for each operation. Its cases are made when it runs: making them takes seconds."""
    bounded = settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )

    def test(case: Case, server: Server) -> None:
        check(case, server)

    words = re.findall(r"[A-Za-z0-9]+", route.path)
    name = f"test_{route.method.lower()}_{'_'.join(words)}_{check.__name__}"
    only = schemathesis.pytest.from_fixture(schema)
    only = only.include(path=route.path, method=route.method)
    return name, bounded(only.parametrize()(test))


_TESTS = dict(_test_of("promised", route, answers_as_documented) for route in ROUTES)
_ACCEPTING = dict(
    _test_of("narrowed", route, accepts_what_it_allows)
    for route in ROUTES
    if route.path in CREATING
)
globals().update(_TESTS | _ACCEPTING)


def test_every_operation_has_its_test() -> None:
    assert (len(_TESTS), len(_ACCEPTING)) == (len(ROUTES), len(CREATING))


def test_the_server_hands_out_a_cursor_where_there_is_more(server: Server) -> None:
    """Otherwise the cursors above would all be empty."""
    assert handed_out(f"{server.url}/v1/jobs", {})
    assert not handed_out(f"{server.url}/v1/jobs", {"tenant_id": "nobody"})
