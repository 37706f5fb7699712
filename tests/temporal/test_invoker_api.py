"""The internal API, asked by hand as a workflow would ask: what each question answers, and changes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.app.building import remote_invoker
from lucius.app.health import health_port
from lucius.app.processes import UnsafeAddressError, check_invoker_address
from lucius.app.runtime import Runtime
from lucius.core.effects import Outcome
from lucius.core.errors import BusUnavailableError, PublishRefusedError, WorkflowsUnavailableError
from lucius.core.inputs import (
    AckReceived,
    CancelRequested,
    HeartbeatReceived,
    Input,
    LeaseReturned,
    PauseRequested,
    Redriven,
    ResultReceived,
    ResultStatus,
)
from lucius.core.job import Fault
from lucius.engine.temporal.engine import TemporalEngine
from lucius.engine.temporal.invoker_client import RemoteInvoker, input_json, input_of
from lucius.http.invoker import invoker_app
from tests.temporal.world import Recording, envelope, running, settings_of, submitted

SECRET = "a-secret-of-some-length"
NOBODY = "127.0.0.1:1"
"""No Temporal server: the test is the workflow."""


@asynccontextmanager
async def invoking(
    folder: Path, **environ: str
) -> AsyncIterator[tuple[Runtime, Recording, RemoteInvoker, str]]:
    settings = settings_of(folder, None, LUCIUS_TEMPORAL_ENABLED="true", **environ)
    settings = settings.model_copy(update={"temporal_address": NOBODY})
    async with running(settings, ()) as (runtime, bus):
        transport = httpx.ASGITransport(invoker_app(runtime.invoker, SECRET))
        remote = RemoteInvoker(["http://invoker"], SECRET, transport)
        job_id = await submitted(runtime, envelope())
        yield runtime, bus, remote, job_id
        await remote.close()


def attempt(job_id: str, number: int = 1, lease: str = "lease-1", **more: Any) -> dict[str, Any]:
    bound = {"jobId": job_id, "tenant_id": "acme", "stepId": "alpha"}
    return {**bound, "attempt_no": number, "lease_id": lease, **more}


def directives(bus: Recording) -> list[str]:
    return [str(m.body["lease_id"]) for _, m in bus.published if m.body["type"] == "DIRECTIVE"]


async def test_record_publish_ack_and_result(tmp_path: Path) -> None:
    async with invoking(tmp_path) as (_, bus, remote, job_id):
        recorded = await remote.attempt(attempt(job_id))
        assert recorded is not None
        assert recorded["outcome"] == "applied"
        assert recorded["snapshot"]["publishes"][0]["lease_id"] == "lease-1"
        assert directives(bus) == []
        published = await remote.publish(attempt(job_id))
        assert published is not None
        assert (published["outcome"], directives(bus)) == ("applied", ["lease-1"])
        assert published["snapshot"]["publishes"] == []
        assert 0 < published["snapshot"]["wake_in"] <= 30
        done = ResultReceived("alpha", 1, "lease-1", ResultStatus.SUCCEEDED, "mem://a")
        applied = await remote.apply(job_id, done)
        assert applied is not None
        assert applied.outcome is Outcome.APPLIED
        after = await remote.timeout({"jobId": job_id, "tenant_id": "acme"})
        assert after is not None
        assert after["outcome"] == "already"
        assert after["snapshot"]["attempts"] == [{"stepId": "beta", "attempt_no": 1, "in": 0.0}]


async def test_one_round_trip_records_and_publishes_and_a_replay_changes_nothing(
    tmp_path: Path,
) -> None:
    async with invoking(tmp_path) as (runtime, bus, remote, job_id):
        asked = attempt(job_id, publish=True)
        first = await remote.attempt(asked)
        job = await runtime.engine.job(job_id)
        again = await remote.attempt(asked)
        assert first is not None
        assert again is not None
        assert (first["outcome"], again["outcome"]) == ("applied", "already")
        assert directives(bus) == ["lease-1"]
        assert await runtime.engine.job(job_id) is job


async def test_a_crash_between_recording_and_publishing_is_made_good_by_the_replay(
    tmp_path: Path,
) -> None:
    async with invoking(tmp_path) as (_, bus, remote, job_id):
        await remote.attempt(attempt(job_id))
        again = await remote.attempt(attempt(job_id, publish=True))
        assert again is not None
        assert (again["outcome"], directives(bus)) == ("already", ["lease-1"])


async def test_what_is_not_next_is_superseded(tmp_path: Path) -> None:
    async with invoking(tmp_path) as (_, bus, remote, job_id):
        await remote.attempt(attempt(job_id, publish=True))
        for wrong in (attempt(job_id, 2), attempt(job_id, 1, "other")):
            told = await remote.attempt(wrong)
            assert told is not None
            assert told["outcome"] == "superseded"
        told = await remote.publish(attempt(job_id, 1, "other"))
        assert told is not None
        assert told["outcome"] == "superseded"
        assert directives(bus) == ["lease-1"]


async def test_an_attempt_that_is_not_recorded_is_no_success(tmp_path: Path) -> None:
    """409 with the outcome, for whoever calls it by the specification and looks at the status alone."""
    async with invoking(tmp_path) as (runtime, _, remote, job_id):
        await remote.attempt(attempt(job_id, publish=True))
        transport = httpx.ASGITransport(invoker_app(runtime.invoker))
        async with httpx.AsyncClient(transport=transport, base_url="http://invoker") as client:
            wrong = attempt(job_id, 2)
            for path, body in (("steps/attempt", wrong), ("publish", {"directive": wrong})):
                answer = await client.post(f"/v1/internal/{path}", json=body)
                told = answer.json()
                assert (answer.status_code, told["status"]) == (409, 409)
                assert (told["code"], told["outcome"]) == ("STALE_ATTEMPT", "superseded")
                assert told["snapshot"]["steps"][0]["attempt_no"] == 1


@pytest.mark.parametrize(
    ("path", "changes", "said"),
    [
        ("publish", {"lane": 0}, "/lane"),
        ("steps/attempt", {"lease_expires_at": "tomorrow"}, "/lease_expires_at"),
        ("steps/attempt", {"lease_expires_at": "2026-01-27T10:00:00"}, "/lease_expires_at"),
    ],
)
async def test_a_wrong_lane_or_end_of_a_lease_is_named(
    tmp_path: Path, path: str, changes: dict[str, Any], said: str
) -> None:
    async with invoking(tmp_path) as (runtime, bus, _, job_id):
        job = await runtime.engine.job(job_id)
        assert job is not None
        lane = job.plan.routing.lane
        transport = httpx.ASGITransport(invoker_app(runtime.invoker))
        async with httpx.AsyncClient(transport=transport, base_url="http://invoker") as client:
            await client.post("/v1/internal/steps/attempt", json=attempt(job_id))
            asked = attempt(job_id) if path != "publish" else {"directive": attempt(job_id)}
            wrong = {name: (lane + 1) % 16 if name == "lane" else v for name, v in changes.items()}
            refused = await client.post(f"/v1/internal/{path}", json={**asked, **wrong})
            assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_BODY")
            assert said in [fault["pointer"] for fault in refused.json()["errors"]]
            assert directives(bus) == []
            right = {"lane": lane, "lease_expires_at": "2026-01-27T10:00:00Z"}
            taken = await client.post(f"/v1/internal/{path}", json={**asked, **right})
            assert taken.status_code == 200


async def test_an_attempt_is_held_while_the_window_is_closed(tmp_path: Path) -> None:
    async with invoking(tmp_path) as (runtime, bus, remote, job_id):
        runtime.outbox.windows.close()
        held = await remote.attempt(attempt(job_id, publish=True))
        assert held is not None
        assert (held["outcome"], directives(bus)) == ("held", [])
        assert held["snapshot"]["attempts"] == held["snapshot"]["publishes"] == []
        runtime.outbox.windows.reopen()
        runtime.outbox.releases.pump_all()
        job = await runtime.engine.job(job_id)
        while job is not None and not job.steps[0].out:
            job = await runtime.engine.wait(job_id, job.version, 60)
        assert job is not None
        assert job.steps[0].executions[-1].exec_id == "lease-1"
        assert [owed.target for owed in job.owed] == ["step_released alpha"]


async def test_a_refused_publish_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(topic: str, messages: object) -> None:
        raise PublishRefusedError("too large")

    async with invoking(tmp_path) as (_, bus, remote, job_id):
        monkeypatch.setattr(bus, "publish", refuse)
        told = await remote.attempt(attempt(job_id, publish=True))
        assert told is not None
        (following,) = told["snapshot"]["attempts"]
        assert following["attempt_no"] == 2
        assert following["in"] > 0


async def test_a_broker_that_is_away_is_an_error_and_the_same_attempt_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(topic: str, messages: object) -> None:
        raise BusUnavailableError("no broker")

    async with invoking(tmp_path) as (_, bus, remote, job_id):
        with monkeypatch.context() as patch:
            patch.setattr(bus, "publish", fail)
            with pytest.raises(WorkflowsUnavailableError, match="BUS_UNAVAILABLE"):
                await remote.attempt(attempt(job_id, publish=True))
        told = await remote.attempt(attempt(job_id, publish=True))
        assert told is not None
        assert (told["outcome"], directives(bus)) == ("already", ["lease-1"])


async def test_a_job_or_step_that_is_not_there_and_a_wrong_tenant_are_not_found(
    tmp_path: Path,
) -> None:
    async with invoking(tmp_path) as (_, _, remote, job_id):
        assert await remote.attempt(attempt("job_none")) is None
        assert await remote.attempt({**attempt(job_id), "stepId": "none"}) is None
        assert await remote.timeout({"jobId": job_id, "tenant_id": "other"}) is None
        assert await remote.apply("job_none", PauseRequested()) is None


async def test_only_who_has_the_secret_is_answered(tmp_path: Path) -> None:
    async with invoking(tmp_path) as (runtime, _, _, job_id):
        transport = httpx.ASGITransport(invoker_app(runtime.invoker, SECRET))
        for secret in ("", "wrong"):
            stranger = RemoteInvoker(["http://invoker"], secret, transport)
            with pytest.raises(WorkflowsUnavailableError, match="UNAUTHENTICATED"):
                await stranger.timeout({"jobId": job_id})


def test_without_a_secret_it_listens_on_loopback_only(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, None)
    check_invoker_address(settings, "127.0.0.1")
    with pytest.raises(UnsafeAddressError, match="LUCIUS_INVOKER_SECRET"):
        check_invoker_address(settings, "0.0.0.0")
    with_secret = settings_of(tmp_path, None, LUCIUS_INVOKER_SECRET=SECRET)
    check_invoker_address(with_secret, "0.0.0.0")


def test_without_a_secret_the_system_must_say_whose_a_connection_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lucius.app.processes.known_here", lambda: False)
    with pytest.raises(UnsafeAddressError, match="LUCIUS_INVOKER_SECRET"):
        check_invoker_address(settings_of(tmp_path, None), "127.0.0.1")
    with_secret = settings_of(tmp_path, None, LUCIUS_INVOKER_SECRET=SECRET)
    check_invoker_address(with_secret, "127.0.0.1")


async def test_the_lease_of_a_step_is_the_result_timeout(tmp_path: Path) -> None:
    async with invoking(tmp_path, LUCIUS_STEP_RESULT_TIMEOUT_SECONDS="77") as (runtime, *_, job_id):
        job = await runtime.engine.job(job_id)
        assert job is not None
        assert job.plan.steps[0].policy.lease == timedelta(seconds=77)


async def test_bad_bodies_are_named(tmp_path: Path) -> None:
    async with invoking(tmp_path) as (runtime, _, _, job_id):
        transport = httpx.ASGITransport(invoker_app(runtime.invoker))
        async with httpx.AsyncClient(base_url="http://invoker", transport=transport) as client:
            for path, body in (
                ("/v1/internal/steps/attempt", {"jobId": job_id}),
                (f"/v1/internal/jobs/{job_id}/inputs", {"input": "Nonsense"}),
                (f"/v1/internal/jobs/{job_id}/inputs", {"input": "AckReceived"}),
            ):
                answer = await client.post(path, json=body)
                assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_BODY")
            described = (await client.get("/openapi.json")).json()["paths"]
            assert "/v1/internal/publish" in described


INPUTS: tuple[Input, ...] = (
    AckReceived("a", 1, "l", "worker", "now"),
    HeartbeatReceived("a", 1, "l"),
    LeaseReturned("a", 1, "l"),
    ResultReceived("a", 1, "l", ResultStatus.FAILED_RETRY, None, Fault("X", "y")),
    ResultReceived("a", 1, "l", ResultStatus.SUCCEEDED, {"uri": "mem://a"}),
    CancelRequested(immediate=True),
    Redriven("job_2"),
)


@pytest.mark.parametrize("received", INPUTS)
def test_an_input_comes_back_as_it_was(received: Input) -> None:
    assert input_of(input_json(received)) == received


async def test_an_orchestrator_passes_on_what_jobs_on_temporal_are_told(tmp_path: Path) -> None:
    async with invoking(tmp_path) as (runtime, _, remote, job_id):
        engine = TemporalEngine(runtime.engine, remote)
        applied = await engine.apply(job_id, CancelRequested())
        assert applied is not None
        assert (applied.outcome, applied.job.state.value) == (Outcome.APPLIED, "CANCELLED")
        refused = await engine.apply(job_id, PauseRequested())
        assert refused is not None
        assert (refused.outcome, refused.code) == (Outcome.REJECTED, "JOB_TERMINAL")


async def test_invokers_are_called_in_turn_and_one_that_is_away_is_passed_over(
    tmp_path: Path,
) -> None:
    away = "http://127.0.0.1:1"
    async with invoking(tmp_path) as (runtime, *_, job_id):
        app = invoker_app(runtime.invoker)
        async with health_port(app, "127.0.0.1", 0) as port:
            urls = f"{away},http://127.0.0.1:{port}"
            settings = settings_of(tmp_path, None, LUCIUS_INVOKER_URL=urls)
            remote = remote_invoker(settings)
            for _ in range(3):
                assert await remote.timeout({"jobId": job_id}) is not None
            await remote.close()
        alone = remote_invoker(settings_of(tmp_path, None, LUCIUS_INVOKER_URL=away))
        with pytest.raises(WorkflowsUnavailableError, match="LUCIUS_INVOKER_URL"):
            await alone.timeout({"jobId": job_id})
        await alone.close()


async def test_what_another_invoker_held_is_released_by_the_owner_and_signalled(
    tmp_path: Path,
) -> None:
    """The lane is another's while the workflow asks; then its owner looks."""
    async with invoking(tmp_path) as (runtime, bus, remote, job_id):
        owned, runtime.lanes.owned = runtime.lanes.owned, frozenset()  # type: ignore[misc]
        held = await remote.attempt(attempt(job_id, publish=True))
        runtime.lanes.owned = owned  # type: ignore[misc]
        assert held is not None
        assert held["outcome"] == "held"
        await runtime.engine.look(job_id)
        assert await runtime.outbox.ticks.tick_due()
        job = await runtime.engine.job(job_id)
        assert job is not None
        assert job.steps[0].out
        assert [owed.target for owed in job.owed] == ["step_released alpha"]
        assert directives(bus) == []
