"""Anyone may begin to sign in. The issuer is asked seldom, by few at once, and its answers are bounded."""

import asyncio
from types import SimpleNamespace
from typing import cast

import httpx
import orjson
import pytest
from starlette.requests import Request

from lucius.http.access import MAX_BYTES, JwtAccess
from lucius.http.console.signing_in import AT_ONCE, ENDPOINTS_SECONDS, Oidc, OidcClient
from lucius.http.problems import Problem

ISSUER = "https://issuer.test"
DISCOVERY = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
}
VISIT = Request({"type": "http", "headers": [], "scheme": "https", "path": "/", "server": ("h", 1)})


class Answering(httpx.AsyncBaseTransport):
    """Answers once it is let to, and counts."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = content or orjson.dumps(DISCOVERY)
        self.asked = self.under_way = self.most = 0
        self.free = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.free.wait()
        finally:
            self.under_way -= 1
        return httpx.Response(200, content=self.content)


def signing_in(issuer: Answering, clock: list[float]) -> Oidc:
    client = OidcClient(ISSUER, "console", url="https://lucius.test")
    nobody = cast(JwtAccess, SimpleNamespace(caller=None))
    return Oidc(client, nobody, lambda: clock[0], issuer)


async def test_many_who_begin_at_once_cause_one_question() -> None:
    issuer, clock = Answering(), [0.0]
    oidc = signing_in(issuer, clock)
    begun = [asyncio.create_task(oidc.begin(VISIT, "/")) for _ in range(100)]
    await asyncio.sleep(0)
    begun[0].cancel()
    issuer.free.set()
    assert len(await asyncio.gather(*begun[1:])) == 99
    await oidc.begin(VISIT, "/")
    assert issuer.asked == 1
    clock[0] = ENDPOINTS_SECONDS
    await oidc.begin(VISIT, "/")
    assert issuer.asked == 2


async def test_no_more_than_a_few_codes_are_exchanged_at_once() -> None:
    issuer = Answering()
    issuer.free.set()
    oidc = signing_in(issuer, [0.0])
    _, pending = await oidc.begin(VISIT, "/")
    issuer.free.clear()
    query = f"code=x&state={pending['state']}".encode()
    back = Request({**VISIT.scope, "query_string": query})
    done = [asyncio.create_task(oidc.finish(back, pending)) for _ in range(5 * AT_ONCE)]
    for _ in range(50):
        await asyncio.sleep(0)
    issuer.free.set()
    said = await asyncio.gather(*done, return_exceptions=True)
    assert {type(each) for each in said} == {Problem}, "it gives no tokens"
    assert (issuer.asked, issuer.most) == (1 + 5 * AT_ONCE, AT_ONCE)


@pytest.mark.parametrize("content", [b"[" * 100_000, b'"' + b"a" * MAX_BYTES + b'"', b"[]"])
async def test_an_answer_that_is_not_one_is_refused(content: bytes) -> None:
    issuer = Answering(content)
    issuer.free.set()
    with pytest.raises(Problem) as refused:
        await signing_in(issuer, [0.0]).begin(VISIT, "/")
    assert refused.value.known.code == "AUTHENTICATION_UNAVAILABLE"
