"""Schemathesis with all its checks against a running LUCIUS: no 5xx, and no answer that is not documented."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from lucius.api.app import create_app
from lucius.bootstrap import Runtime, build
from lucius.bootstrap.protocol import BoundedProtocol
from lucius.core.inputs import CancelRequested
from lucius.settings import load_settings
from tests.api.live import ENVELOPE
from tests.api.world import World, context_of
from tests.security.routes import ROUTES

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
                runtime.app(), http=BoundedProtocol, lifespan="off", log_config=None, port=0
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
        """A job that has ended, so that nothing waits for more of it."""
        submitted = await runtime.engine.submit(ENVELOPE)
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


schema = schemathesis.openapi.from_dict(create_app(context_of(World())).openapi())


EXCLUDED: dict[str, Checks] = {
    # Whether a protocol, a reference or a payload is known and allowed, no schema can say.
    "/v1/orchestrate": [positive_data_acceptance],
    "/v1/commands": [positive_data_acceptance],
    "/v1/jobs/{jobId}:redrive": [positive_data_acceptance],
    # Each reply of a batch is judged on its own: the batch is 200, and the outcome of that one is not.
    "/v1/services/{service}/replies": [negative_data_rejection],
}


def excluded(case: Case) -> Checks:
    """A cursor is only good if it was handed out; the rest is in the table."""
    if "cursor" in case.query:
        return [positive_data_acceptance]
    return EXCLUDED.get(case.operation.path, [])


def bring_near(case: Case, job_id: str) -> None:
    """Every other question is about a job that exists, and none waits long."""
    if "jobId" in case.path_parameters and len(case.path_parameters["jobId"]) % 2:
        case.path_parameters["jobId"] = job_id
    for place in (case.query, case.body):
        wait = place.get("wait_seconds") if isinstance(place, dict) else None
        if isinstance(place, dict) and isinstance(wait, int | float) and 0.01 < wait <= 60:
            place["wait_seconds"] = 0.01


def answers_as_documented(case: Case, server: Server) -> None:
    bring_near(case, server.job_id)
    case.call_and_validate(base_url=server.url, excluded_checks=excluded(case))


def _test_of(operation: Any) -> tuple[str, Callable[..., None]]:
    """One function for each operation: a name of its own keeps it apart where tests run in parallel."""
    bounded = settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )

    def test(case: Case, server: Server) -> None:
        answers_as_documented(case, server)

    words = re.findall(r"[A-Za-z0-9]+", operation.path)
    test.__name__ = test.__qualname__ = f"test_{operation.method}_{'_'.join(words)}_as_documented"
    only = schema.include(path=operation.path, method=operation.method.upper())
    return test.__name__, only.parametrize()(bounded(test))


_TESTS = dict(
    _test_of(found.ok()) for found in schema.get_all_operations() if isinstance(found, Ok)
)
globals().update(_TESTS)


def test_every_operation_has_its_test() -> None:
    assert len(_TESTS) == len(ROUTES)
