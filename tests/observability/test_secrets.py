"""No secret and no token gets into the logs, whoever says what to whom."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from time import process_time
from typing import Any

import httpx
import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.app.access import key_file
from lucius.app.settings import load_settings
from lucius.http.context import Role
from lucius.platform import FatalError, Task
from lucius.system.logs import MAX_TEXT, JsonFormatter, redacted
from tests.faults.server import Server, command, ready
from tests.observability.served import ENVELOPE, ended, serving, submitted
from tests.observability.world import Scripted, logged

PASSWORD, KEY, BEARER = "hunter2-in-clear", "sk-live-0123456789", "opaque-token-0123456789"
CARELESS = {"LUCIUS_AUTH": "keys", "LUCIUS_ALLOW_PAYLOAD_SECRETS": "*"}
PAYLOAD = {"password": PASSWORD, "nested": {"api_key": KEY}, "note": f"Bearer {BEARER}"}


@pytest.mark.parametrize(
    "text",
    [
        "{'password': 'SECRET', 'x': 1}",
        '{"password": "SECRET"}',
        '{"db_password":"SECRET"}',
        r"{\"password\": \"SECRET\"}",
        "password=SECRET",
        "DB_PASSWORD: SECRET",
        "client_secret = SECRET, other=1",
        "callback_token='SECRET'",
        "Authorization: SECRET",
        "api-key:SECRET",
        "Bearer SECRET",
        "bearer   SECRET",
        "Basic SECRET",
        "https://user:SECRET@host/path",
        "https://SECRET@host/path",
        "amqps://u:SECRET@host",
        "https://a.blob.core.windows.net/c/b?sv=2024&sig=SECRET&se=1",
        "AccountName=x;AccountKey=SECRET;EndpointSuffix=y",
        "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=SECRET",
        "lk_abc_SECRET",
        "whsec_SECRET",
        "token eyJSECRET.eyJzdWIiOiJ4In0.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nSECRET\n-----END RSA PRIVATE KEY-----",
        f"k1.dGVuYW50X2E.SECRET{'x' * 37}",
    ],
)
def test_what_looks_like_a_secret_is_blotted_out(text: str) -> None:
    assert "SECRET" not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "the callback token is not for this attempt",
        "job_01J8:ocr:1:lease_9f3b:RESULT failed: EMPTY: no page has text",
        "a reply is set aside (BAD_TOKEN): the reply carries no callback token",
        "there is no object s3://bucket/tenant_a/1.pdf",
        "listening on http://127.0.0.1:8700",
        "POST /v1/callbacks/ack: LedgerUnavailableError('database is locked')",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "word", ["a", "a-", "token", "token:", "a.", "//", "eyJ.", "eyJ-", '\\"', "=", "-"]
)
def test_no_text_keeps_the_process_busy(word: str) -> None:
    started = process_time()  # a busy machine takes none of that
    assert len(redacted(word * 100_000)) < 3 * MAX_TEXT
    assert process_time() - started < 1


def tokens_on(bus: object) -> list[str]:
    """Every callback token that was published, noted as it passes by."""
    found: list[str] = []
    assert isinstance(bus, MemoryBus)
    publish = bus.publish

    async def noting(topic: str, messages: Any) -> None:
        found.extend(str(m.body["callback_token"]) for m in messages if "callback_token" in m.body)
        await publish(topic, messages)

    bus.publish = noting  # type: ignore[method-assign]
    return found


async def careless(task: Task) -> None:
    """A service that puts all it knows into its error."""
    said = {**task.payload, "token": task.directive["callback_token"]}
    raise FatalError(f"cannot work with {said} of {task.directive['input_ref']}")


async def test_a_job_leaves_none_of_its_secrets_in_the_logs(tmp_path: Path) -> None:
    settings = load_settings({"LUCIUS_DATA_DIR": str(tmp_path)})
    keys = key_file(settings)
    _, api_key = keys.create("tester", (Role.SUBMIT, Role.READ, Role.SERVICE), None)
    with logged(JsonFormatter(), logging.DEBUG) as lines:
        async with serving(tmp_path, [Scripted(careless)], **CARELESS) as (runtime, client):
            client.headers["authorization"] = f"Bearer {api_key}"
            minted = tokens_on(runtime.bus)
            await troubled(client)
            hooks = [f"https://hooks.invalid/{KEY}?token={BEARER}"]
            job_id = await submitted(client, payload=PAYLOAD, callback_urls=hooks)
            assert (await ended(client, job_id))["state"] == "FAILED_FINAL"
    assert minted
    files = [(tmp_path / name).read_text() for name in ("callback.key", "webhook.key")]
    text = "\n".join(lines)
    assert "cannot work with" in text, "the careless service was logged at all"
    for secret in (PASSWORD, KEY, BEARER, api_key, *minted, *files):
        assert secret not in text
    assert [json.loads(line) for line in lines]


async def troubled(client: httpx.AsyncClient) -> None:
    """Requests that are refused, each with a secret in it."""
    refused: list[Mapping[str, Any]] = [
        {**ENVELOPE, "input_ref": f"https://user:{PASSWORD}@host/x"},
        {**ENVELOPE, "input_ref": f"https://host/x?sig={KEY}"},
        {**ENVELOPE, "request_type": PASSWORD},
    ]
    for envelope in refused:
        assert (await client.post("/v1/orchestrate", json=envelope)).status_code == 422
    bound = {"jobId": "j", "stepId": "s", "attempt_no": 1, "lease_id": "l"}
    headers = {"authorization": f"Bearer {BEARER}"}
    answer = await client.post("/v1/callbacks/ack", json=bound, headers=headers)
    assert answer.status_code == 401
    assert (await client.get("/v1/jobs", headers=headers)).status_code == 401


async def test_a_server_writes_nothing_but_json_and_no_secret(tmp_path: Path) -> None:
    more = {"LUCIUS_LOG_LEVEL": "DEBUG", "LUCIUS_ALLOW_PAYLOAD_SECRETS": "password"}
    server = Server(tmp_path / "data", **more)
    server.start()
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            await ready(client, server)
            given = command(1, {"alpha": {}, "beta": {}, "gamma": {}}, server)
            answer = await client.post("/v1/orchestrate", json={**given, "password": PASSWORD})
            await ended(client, answer.json()["jobId"])
        assert server.stop() == 0
    finally:
        server.close()
    text = (tmp_path / "server.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert "listening on" in text
    assert any(line.get("jobId") == answer.json()["jobId"] for line in lines)
    assert PASSWORD not in text
