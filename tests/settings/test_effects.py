"""What settings do to a job and to those who ask for one."""

import asyncio
import base64
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.requests import Request

from lucius.adapters.buses.service_bus.wire import MissingEntityError
from lucius.app.access import authenticator
from lucius.app.adapters import ingress_policy, open_bus, open_config, open_workspace
from lucius.app.settings import Settings, load_settings
from lucius.app.telemetry import observed
from lucius.cli.main import main
from lucius.core.errors import RequestError, WorkspaceRefusedError
from lucius.core.plan import Plan
from lucius.dev.standins.service_bus import StandIn
from lucius.engine.admission.ingress import Ingress
from lucius.http.context import Authenticate
from lucius.http.problems import Problem
from lucius.operations.webhooks import tenant_secrets
from lucius.ports.bus import Subscription
from tests.ingress.requests import NOW, request
from tests.security.issuer import Issuer, fresh_keys


def load(**variables: str) -> Settings:
    return load_settings({f"LUCIUS_{name}": text for name, text in variables.items()})


def plan(settings: Settings, **changes: Any) -> Plan:
    ingress = Ingress(asyncio.run(open_config(settings)), ingress_policy(settings))
    return ingress.admit(request(**changes), job_id="job_1", now=NOW).plan


@pytest.mark.parametrize(
    ("name", "text", "of", "value"),
    [
        ("MAX_ATTEMPTS", "5", lambda plan: plan.steps[0].policy.max_attempts, 5),
        ("ACK_TIMEOUT_SECONDS", "7", lambda plan: plan.steps[0].policy.ack_timeout.seconds, 7),
        ("LEASE_SECONDS", "8", lambda plan: plan.steps[0].policy.lease.seconds, 8),
        ("DISPATCH_BACKOFF_SECONDS", "9", lambda plan: plan.steps[0].policy.publish_backoff, 9),
        ("ACK_BACKOFF_SECONDS", "10", lambda plan: plan.steps[0].policy.ack_backoff, 10),
        (
            "EXECUTION_BACKOFF_SECONDS",
            "11",
            lambda plan: plan.steps[0].policy.execution_backoff,
            11,
        ),
        ("JOB_SLA_SECONDS", "12", lambda plan: plan.sla.job.seconds, 12),
        ("JOB_SLA_SECONDS", "13", lambda plan: plan.sla.pause.total_seconds() / 7, 13),
        ("SLA_ACTION", "fail", lambda plan: plan.sla.fail_job and plan.sla.fail_pause, True),
        ("LANE_TOPOLOGY", "isolated", lambda plan: plan.routing.topic, "global-burst-p15"),
        ("ROUTING_DELIMITER", "|", lambda plan: plan.routing.routing_key_used, "tenant_a|d"),
    ],
)
def test_a_job_begins_with_what_is_set(
    name: str, text: str, of: Callable[[Plan], Any], value: Any
) -> None:
    default = of(plan(load(), mode="BURST", doc_id="d"))
    found = of(plan(load(**{name: text}), mode="BURST", doc_id="d"))
    assert found == ((timedelta(seconds=value),) if isinstance(found, tuple) else value)
    assert found != default


@pytest.mark.parametrize(
    ("name", "text", "change"),
    [
        ("REFERENCE_HOSTS", "other", {}),
        ("REFERENCE_SCHEMES", "https", {}),
        ("WEBHOOK_HOSTS", "other.example", {"callback_urls": ["https://client.example/done"]}),
    ],
)
def test_a_request_is_refused_by_what_is_set(name: str, text: str, change: dict[str, Any]) -> None:
    plan(load(), **change)
    with pytest.raises(RequestError):
        plan(load(**{name: text}), **change)


async def test_files_are_read_and_written_where_is_set_and_nowhere_else(tmp_path: Path) -> None:
    read, written = tmp_path / "read", tmp_path / "written"
    for folder in (read, written):
        folder.mkdir()
        (folder / "x").write_text("text")
    roots = {"INPUT_ROOTS": str(read), "OUTPUT_ROOTS": str(written)}
    workspace = open_workspace(load(DATA_DIR=str(tmp_path / "data"), **roots))
    assert await workspace.read((read / "x").as_uri()) == b"text"
    await workspace.write((written / "y").as_uri(), b"")
    with pytest.raises(WorkspaceRefusedError):
        await workspace.write((read / "y").as_uri(), b"")
    with pytest.raises(WorkspaceRefusedError):
        await open_workspace(load(**{**roots, "INPUT_ROOTS": ","})).read((read / "x").as_uri())


@pytest.mark.parametrize(("level", "logged"), [("WARNING", False), ("INFO", True)])
def test_less_severe_lines_are_not_logged(
    level: str, logged: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    try:
        with observed(load(LOG_LEVEL=level, LOG_FORMAT="text")):
            logging.getLogger("lucius").info("something happened")
    finally:
        root.setLevel(before[0])
        root.handlers[:] = before[1]
    assert ("something happened" in capsys.readouterr().err) is logged


def test_the_secret_of_a_tenant_follows_from_the_one_that_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = "whsec_" + base64.b64encode(b"x" * 24).decode()
    monkeypatch.setenv("LUCIUS_WEBHOOK_SECRET", given)
    shown = CliRunner().invoke(main, ["keys", "webhook", "acme", "--data", str(tmp_path)])
    assert shown.stdout.split() == list(tenant_secrets(given, "acme"))


async def test_a_process_creates_topics_only_where_it_may() -> None:
    wanted = [Subscription("t", "ocr", {"step_type": ("OCR",)})]
    async with StandIn() as stand_in:
        given = {"BUS_BACKEND": "servicebus", "SERVICEBUS_CONNECTION": stand_in.connection_string}
        for provision in ("check", "auto"):
            bus = open_bus(load(**given, BUS_PROVISION=provision))
            try:
                await bus.ensure(wanted)
            except MissingEntityError:
                assert provision == "check"
            finally:
                await bus.close()
            assert (stand_in.broker.topic("t") is not None) is (provision == "auto")


# -- tokens ----------------------------------------------------------------------------------

JWT = {
    "AUTH": "jwt",
    "JWT_ISSUER": "https://issuer.other",
    "JWT_AUDIENCE": "others",
}
CLAIMS = {
    "iss": "https://issuer.other",
    "aud": "others",
    "roles": ["read"],
    "tenants": ["acme"],
}


async def _caller(access: Authenticate | None, token: str) -> Any:
    assert access is not None
    headers = [(b"authorization", f"Bearer {token}".encode())]
    return await access(Request({"type": "http", "headers": headers}))


async def test_a_token_is_read_as_is_set() -> None:
    with Issuer(fresh_keys()).running() as issuer:
        access = authenticator(load(**JWT, JWT_JWKS_URL=issuer.url), None)
        caller = await _caller(access, issuer.token("ed", **CLAIMS))
        assert (set(caller.roles), caller.tenants) == ({"read"}, frozenset({"acme"}))
        for change in ({"iss": "https://issuer.test"}, {"aud": "lucius"}):
            with pytest.raises(Problem):
                await _caller(access, issuer.token("ed", **{**CLAIMS, **change}))
        assert issuer.fetches == 1
