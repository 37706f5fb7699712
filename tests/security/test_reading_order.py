"""Nothing of a body is read before it is known who sends it, and no reply before its token is."""

from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from lucius.core.wire import parse_reply
from lucius.http.routes import callbacks
from tests.api.world import TOKENS, World, accepted, bearer, client_of, context_of
from tests.security.routes import CALLBACKS, GUARDED, DocumentedRoute, _nobody

POSTS = [route for route in GUARDED if route.method == "POST"]


class Body:
    """A body that knows whether anyone has begun to read it."""

    def __init__(self) -> None:
        self.read = False

    async def __call__(self) -> AsyncIterator[bytes]:
        self.read = True
        yield b"{}"


async def refused(route: DocumentedRoute, headers: Mapping[str, str], **context: Any) -> str:
    """The code that it is refused with, unread."""
    body, world = Body(), World()
    path = route.path.replace("{jobId}", "job_0").replace("{service}", "ocr")
    async with client_of(context_of(world, **context)) as client:
        answer = await client.post(path, content=body(), headers=headers)
    assert answer.status_code == 401
    assert not body.read
    return str(answer.json()["code"])


@pytest.mark.parametrize("route", POSTS, ids=str)
async def test_the_body_of_a_stranger_is_not_read(route: DocumentedRoute) -> None:
    assert await refused(route, {}, authenticate=_nobody) == "UNAUTHENTICATED"


def forged() -> str:
    """As LUCIUS would have made it, but for the key."""
    binding = urlsafe_b64encode(b'["tenant_a","job_0","ocr",1,"lease_1"]').decode().rstrip("=")
    return f"k1.{binding}.{'A' * 43}"


@pytest.mark.parametrize("token", [None, "k1", "k1.YQ.YQ", forged()])
@pytest.mark.parametrize("route", CALLBACKS, ids=str)
async def test_the_body_of_a_reply_with_a_false_token_is_not_read(
    route: DocumentedRoute, token: str | None
) -> None:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    needed = "CALLBACK_TOKEN_INVALID" if token else "CALLBACK_TOKEN_REQUIRED"
    assert await refused(route, headers) == needed


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps of the replies that were parsed."""
    seen: list[str] = []

    def noted(body: Mapping[str, Any], kind: str | None) -> Any:
        seen.append(str(body.get("stepId")))
        return parse_reply(body, kind)

    monkeypatch.setattr(callbacks, "parse_reply", noted)
    return seen


async def test_of_a_batch_only_replies_with_a_true_token_are_parsed(
    world: World, looked_at: list[str]
) -> None:
    async with client_of(context_of(world)) as client:
        bound = await world.out(await accepted(client))
        large = {"output_ref": [[]] * 1000, "type": "RESULT", "status": "SUCCEEDED"}
        false = [{**bound, **large, "callback_token": each} for each in (forged(), "x", None, 7)]
        true = {**bound, "type": "ACK", "callback_token": bearer(bound)["authorization"][7:]}
        body = {"replies": [*false, true]}
        answer = await client.post("/v1/services/ocr/replies", json=body)
    assert [each["status"] for each in answer.json()["outcomes"]] == [401, 401, 401, 401, 200]
    assert looked_at == [bound["stepId"]]


async def test_a_true_token_of_another_attempt_opens_nothing(world: World) -> None:
    async with client_of(context_of(world)) as client:
        bound = await world.out(await accepted(client))
        other = TOKENS.mint("tenant_a", bound["jobId"], bound["stepId"], 7, bound["lease_id"])
        headers = {"authorization": f"Bearer {other}"}
        answer = await client.post("/v1/callbacks/ack", json=bound, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "CALLBACK_TOKEN_INVALID")
