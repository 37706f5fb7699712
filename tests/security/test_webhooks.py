"""Completion webhooks: signed so that clients can trust them, bounded so that clients cannot hurt us."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from secrets import token_bytes
from typing import Any

import pytest

from lucius.operations.webhooks import (
    WebhookFailedError,
    WebhookRefusedError,
    Webhooks,
    WebhookSecretError,
    sign,
    tenant_secrets,
)
from tests.api.world import ENVELOPE, START, World
from tests.security.receiver import HOST, Received, Receiver

URL = f"https://{HOST}/done?x=1"


def fresh_secret() -> str:
    return "whsec_" + base64.b64encode(token_bytes(32)).decode()


def verified(secret: str, received: Received) -> bool:
    """As the specification tells a receiver to, with nothing of ours."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    stamp, name = received.headers["webhook-timestamp"], received.headers["webhook-id"]
    content = b".".join((name.encode(), stamp.encode(), received.body))
    mac = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return f"v1,{mac}" in received.headers["webhook-signature"].split(" ")


def test_the_published_example_is_signed_as_published() -> None:
    """The vector that Standard Webhooks libraries are tested with; its secret is public."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    assert (
        sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.fixture
async def receiver(tmp_path: Path) -> AsyncIterator[Receiver]:
    async with Receiver(tmp_path).running() as receiver:
        yield receiver


async def told(receiver: Receiver, secret: str, url: str = URL, **envelope: Any) -> bool:
    world = World()
    made = await world.submit({**ENVELOPE, **envelope})
    hooks = Webhooks(secret, now=lambda: START, transport=receiver.transport())
    try:
        return await hooks.notify(world.jobs[made.job_id], "notify-0", url)
    finally:
        await hooks.close()


async def test_a_receiver_can_verify_what_it_is_told(receiver: Receiver) -> None:
    secret = fresh_secret()
    assert await told(receiver, secret)
    (received,) = receiver.received
    (mine,) = tenant_secrets(secret, "tenant_a")
    assert verified(mine, received)
    assert received.target == "/done?x=1"
    assert received.headers["webhook-timestamp"] == str(int(START.timestamp()))
    body = json.loads(received.body)
    assert body["data"]["jobId"] == received.headers["webhook-id"].partition(":")[0]
    assert body["data"]["tenant_id"] == "tenant_a"
    received.body += b" "
    assert not verified(mine, received)


async def test_no_tenant_can_sign_for_another(receiver: Receiver) -> None:
    secret = fresh_secret()
    await told(receiver, secret)
    (theirs,) = tenant_secrets(secret, "tenant_b")
    assert not verified(theirs, receiver.received[0])
    assert not verified(secret, receiver.received[0])


async def test_both_secrets_sign_while_they_are_rotated(receiver: Receiver) -> None:
    old, new = fresh_secret(), fresh_secret()
    await told(receiver, f"{new}, {old}")
    for secret in (old, new):
        assert verified(tenant_secrets(secret, "tenant_a")[0], receiver.received[0])


async def test_a_repetition_has_the_same_id(receiver: Receiver) -> None:
    for _ in range(2):
        await told(receiver, fresh_secret())
    assert len({each.headers["webhook-id"] for each in receiver.received}) == 1


@pytest.mark.parametrize("secret", ["", "whsec_", "plain text", "whsec_c2hvcnQ=", "a" * 400, "é"])
def test_a_secret_that_is_none_stops_the_start(secret: str) -> None:
    with pytest.raises(WebhookSecretError):
        Webhooks(secret, now=lambda: START)


@pytest.mark.parametrize(
    ("answer", "taken"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n" + b"x" * 65536, True),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffff\r\n", True),
        (b"HTTP/1.1 302 Found\r\nlocation: https://127.0.0.1/\r\n\r\n", False),
        (b"HTTP/1.1 307 Again\r\nlocation: https://169.254.169.254/\r\n\r\n", False),
        (b"HTTP/1.1 400 Bad\r\n\r\n", False),
        (b"HTTP/1.1 503 Later\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 2_000_000, False),
        (b"HTTP/1.1 100 Continue\r\n\r\n", False),
        (b"SSH-2.0-x\r\n", False),
        (b"", False),
    ],
)
async def test_only_the_status_of_an_answer_counts(
    receiver: Receiver, answer: bytes, taken: bool
) -> None:
    receiver.answers = [answer]
    with nullcontext() if taken else pytest.raises(WebhookFailedError):
        assert await told(receiver, fresh_secret())
    assert len(receiver.received) == 1


async def test_an_answer_that_does_not_come_is_given_up(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lucius.operations.webhooks.LONGEST", timedelta(milliseconds=200))
    receiver.held = asyncio.Event()
    with pytest.raises(WebhookFailedError):
        await told(receiver, fresh_secret())
    receiver.held.set()


async def test_a_receiver_that_wants_no_more_is_told_no_more(receiver: Receiver) -> None:
    receiver.answers = [b"HTTP/1.1 410 Gone\r\n\r\n"]
    with pytest.raises(WebhookRefusedError, match="410"):
        await told(receiver, fresh_secret())


async def test_a_certificate_of_another_host_is_not_accepted(receiver: Receiver) -> None:
    receiver.name = "other.client.example"
    with pytest.raises(WebhookFailedError):
        await told(receiver, fresh_secret(), f"https://{receiver.name}/")
    assert receiver.received == []


async def test_a_retry_does_not_overtake_the_delivery_under_way(receiver: Receiver) -> None:
    world = World()
    made = await world.submit(ENVELOPE)
    job = world.jobs[made.job_id]
    hooks = Webhooks(fresh_secret(), now=lambda: START, transport=receiver.transport())
    receiver.held = asyncio.Event()
    first = asyncio.create_task(hooks.notify(job, "notify-0", URL))
    await receiver.arrived.wait()
    assert await hooks.notify(job, "notify-0", URL) is False
    receiver.held.set()
    assert await first
    assert len(receiver.received) == 1
    await hooks.close()
