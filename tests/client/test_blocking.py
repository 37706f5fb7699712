"""The client without `async`, against a server in another thread."""

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lucius.client import BlockingClient, Client, ProblemError
from tests.api.world import ENVELOPE
from tests.cli.server import Server, running


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def test_each_call_returns_when_it_is_done(server: Server) -> None:
    with BlockingClient(server.url) as client:
        job_id = client.submit(ENVELOPE).jobId
        assert client.job(job_id).state == "DISPATCHING"
        assert client.cancel(job_id, immediate=True).state == "CANCELLED"
        assert client.wait(job_id).state == "CANCELLED"
        kinds = [event.event_type for event in client.follow(job_id)]
        assert kinds[-1] == "cancel"


def test_a_stream_may_be_left_early(server: Server) -> None:
    with BlockingClient(server.url) as client:
        job_id = client.submit(ENVELOPE).jobId
        events = client.follow(job_id)
        assert next(events).event_type == "submitted"
        events.close()  # type: ignore[attr-defined]


def test_what_the_server_refuses_is_raised_here(server: Server) -> None:
    with BlockingClient(server.url) as client, pytest.raises(ProblemError, match="JOB_NOT_FOUND"):
        client.job("job_none")


def test_it_works_where_a_loop_runs_already(server: Server) -> None:
    """As in a notebook."""

    async def cell() -> str:
        with BlockingClient(server.url) as client:
            return client.submit(ENVELOPE).state

    assert asyncio.run(cell()) == "DISPATCHING"


def test_a_script_that_never_closes_it_ends_quietly(server: Server) -> None:
    script = (
        f"from lucius.client import BlockingClient\nprint(BlockingClient({server.url!r}).jobs())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "next_cursor" in done.stdout


def test_it_has_every_call_of_the_client() -> None:
    calls = {name for name, value in vars(Client).items() if inspect.isfunction(value)}
    public = {name for name in calls if not name.startswith("_")}
    assert public - set(vars(BlockingClient)) == set()
