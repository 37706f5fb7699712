"""Signing in: with an API key or at an issuer, into a cookie that no script reads and no other site sends."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser

from lucius.app.access import key_file
from lucius.http.console.sessions import COOKIE, Seals
from lucius.http.console.signing_in import PENDING, local
from lucius.http.context import Role
from lucius.http.tokens import CallbackTokens
from tests.console.browser import visiting
from tests.console.conftest import IN_BROWSER
from tests.console.issuer import CLIENT_ID, CLIENT_SECRET, SCOPES, SignInIssuer
from tests.console.served import Served, served
from tests.console.test_orders import token_in
from tests.security.issuer import AUDIENCE, fresh_keys

pytestmark = IN_BROWSER
KEYS = fresh_keys()


@asynccontextmanager
async def visitor_of(server: Served, **how: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, **how) as visitor:
        yield visitor


async def signed_in(visitor: httpx.AsyncClient, key: str, **headers: str) -> httpx.Response:
    token = token_in((await visitor.get("/sign-in")).text)
    return await visitor.post("/sign-in", data={"key": key, "form_token": token}, headers=headers)


@pytest.fixture
def issuer() -> Iterator[SignInIssuer]:
    with SignInIssuer(KEYS).running() as running:
        yield running


@asynccontextmanager
async def served_with(issuer: SignInIssuer, data: Path, **more: str) -> AsyncIterator[Served]:
    settings = {
        "auth": "jwt",
        "jwt_issuer": issuer.base,
        "jwt_audience": AUDIENCE,
        "jwt_jwks_url": issuer.url,
        "console_client_id": CLIENT_ID,
        "console_client_secret": CLIENT_SECRET,
        "console_scopes": SCOPES,
        **more,
    }
    async with served(data, **settings) as server:
        yield server


async def test_nobody_is_shown_anything_before_they_sign_in(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path, auth="keys") as server:
        key = server.key(name="anna")
        server.authorized(key)
        job_id = await server.accepted()
        async with visiting(browser, server.url) as visit:
            for path in ("/", "/jobs", f"/jobs/{job_id}", "/services", "/protocols", "/search?q=x"):
                await visit.to(path)
                assert visit.page.url.startswith(f"{server.url}/sign-in?next="), path
                assert job_id not in await visit.text()
            assert await visit.faults() == []
            await visit.to(f"/jobs/{job_id}")
            await visit.page.fill("input[name=key]", "lk_no_key")
            await visit.submit("Sign in")
            assert "not known" in await visit.text()
            await visit.page.fill("input[name=key]", key)
            await visit.submit("Sign in")
            assert visit.page.url == f"{server.url}/jobs/{job_id}"
            assert "anna" in await visit.text("header")
            assert await visit.page.evaluate("document.cookie") == ""
            (cookie,) = await visit.context.cookies()
            assert key not in cookie["value"]
            assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
            await visit.submit("Sign out")
            await visit.to("/jobs")
            assert "/sign-in" in visit.page.url


async def test_a_revoked_key_is_signed_out_at_once(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path, auth="keys") as server:
        key = server.key()
        async with visiting(browser, server.url) as visit:
            await visit.sign_in(key)
            assert await visit.to("/jobs") == 200
            key_file(server.runtime.settings).revoke(key.split("_")[1])
            await visit.page.wait_for_url("**/sign-in*")


@pytest.mark.parametrize(
    ("headers", "url", "secure"),
    [
        ({}, "", False),
        ({"origin": "https://ops.test", "host": "ops.test"}, "", True),
        ({}, "https://ops.test", True),
    ],
)
async def test_the_cookie_is_for_https_where_that_is_used(
    tmp_path: Path, headers: dict[str, str], url: str, secure: bool
) -> None:
    async with (
        served(tmp_path, auth="keys", console_url=url) as server,
        visitor_of(server) as visitor,
    ):
        answer = await signed_in(visitor, server.key(), **headers)
    assert ("; Secure" in answer.headers["set-cookie"]) == secure
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=strict" in answer.headers["set-cookie"]


async def test_a_session_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser forgets the cookie by itself; here the server is shown it once more."""
    monkeypatch.setattr("lucius.app.access.SESSION", timedelta(milliseconds=1))
    async with (
        served(tmp_path, auth="keys") as server,
        visitor_of(server) as visitor,
    ):
        answer = await signed_in(visitor, server.key())
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert "Max-Age=0" in answer.headers["set-cookie"]
        again = await visitor.get("/jobs", headers={"cookie": cookie})
    assert (again.status_code, again.headers["location"]) == (303, "/sign-in?next=%2Fjobs")


async def test_a_forged_or_foreign_cookie_opens_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, auth="keys") as server:
        key = server.key()
        content = {"until": 9e9, "salt": "x", "key": key.split("_")[1]}
        others = Seals(CallbackTokens({"k": b"another key of another server"}))
        ours = Seals(server.runtime.tokens)
        forged = [others.close("session", content), ours.close("sign-in", content), "x", "x.y"]
        async with httpx.AsyncClient(base_url=server.url) as visitor:
            for cookie in forged:
                answer = await visitor.get("/jobs", headers={"cookie": f"{COOKIE}={cookie}"})
                assert answer.status_code == 303, cookie
            good = ours.close("session", content)
            answer = await visitor.get("/jobs", headers={"cookie": f"{COOKIE}={good}"})
            assert answer.status_code == 200
            api = await visitor.get("/v1/jobs", headers={"cookie": f"{COOKIE}={good}"})
            assert api.status_code == 401, "the cookie is for the console alone"


async def test_people_sign_in_at_their_issuer(
    browser: Browser, tmp_path: Path, issuer: SignInIssuer
) -> None:
    issuer.claims_of = {"sub": "anna@example.org", "roles": ["read"], "tenants": ["tenant_a"]}
    async with served_with(issuer, tmp_path) as server:
        async with visiting(browser, server.url) as visit:
            await visit.to("/jobs?state=PAUSED")
            await visit.page.get_by_role("link", name="Sign in at your organisation").click()
            await visit.page.wait_for_url(f"{server.url}/jobs?state=PAUSED")
            header = await visit.text("header")
            assert "anna@example.org" in header
            assert "tenant_a" in header
            assert await visit.to("/jobs/order?verb=cancel") == 403
            names = {each["name"]: each["sameSite"] for each in await visit.context.cookies()}
            assert names == {COOKIE: "Strict"}
        (asked,) = issuer.asked_for
        assert (asked["client_id"], asked["scope"]) == (CLIENT_ID, SCOPES)
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        assert asked["redirect_uri"] == f"{server.url}/sign-in/done"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ({"refuses": "<b>not you</b>"}, "&lt;b&gt;not you&lt;/b&gt;"),
        ({"claims_of": {"aud": "another"}}, "not accepted"),
        ({"claims_of": {"exp": 1}}, "not accepted"),
        ({"claims_of": {"nonce": "another"}, "opaque": True}, "another sign-in"),
        ({"claims_of": {"nonce": "another"}}, "another sign-in"),
        ({"calls_itself": "https://evil.test"}, "another name"),
        ({"answers_as": "https://evil.test"}, "another issuer"),
        ({"promises_iss": True}, "another issuer"),
    ],
)
async def test_a_sign_in_that_is_not_right_opens_nothing(
    tmp_path: Path, issuer: SignInIssuer, spoil: dict[str, Any], said: str
) -> None:
    for name, value in spoil.items():
        setattr(issuer, name, value)
    async with (
        served_with(issuer, tmp_path) as server,
        visitor_of(server, follow_redirects=True) as visitor,
    ):
        answer = await visitor.get("/sign-in/oidc")
        assert said in answer.text
        assert answer.status_code in (401, 503)
        assert COOKIE not in visitor.cookies


async def test_the_way_back_from_the_issuer_is_bound_to_this_browser(
    tmp_path: Path, issuer: SignInIssuer
) -> None:
    async with (
        served_with(issuer, tmp_path) as server,
        httpx.AsyncClient(base_url=server.url) as visitor,
    ):
        begun = await visitor.get("/sign-in/oidc")
        there = await visitor.get(begun.headers["location"])
        back = there.headers["location"]
        async with httpx.AsyncClient() as other:
            refused = await other.get(back)
            assert (refused.status_code, COOKIE in other.cookies) == (401, False)
        state = back.rpartition("state=")[2]
        refused = await visitor.get(back.replace(state, "another"))
        assert refused.status_code == 401
        assert (await visitor.get(back)).status_code == 200
        assert PENDING not in visitor.cookies
        assert COOKIE in visitor.cookies


async def test_a_session_is_over_with_its_token(tmp_path: Path, issuer: SignInIssuer) -> None:
    """The seconds of the cookie are those that the token has left."""
    async with (
        served_with(issuer, tmp_path) as server,
        visitor_of(server, follow_redirects=True) as visitor,
    ):
        answer = await visitor.get("/sign-in/oidc")
    kept = next(each for each in answer.headers.get_list("set-cookie") if each.startswith(COOKIE))
    seconds = int(kept.partition("Max-Age=")[2].partition(";")[0])
    assert seconds <= 630, "600 s of the token, 30 s of leeway"


@pytest.mark.parametrize(
    ("target", "leads_to"),
    [
        ("/jobs?state=PAUSED", "/jobs?state=PAUSED"),
        ("//evil.test/", "/"),
        ("https://evil.test/", "/"),
        ("/\\evil.test", "/"),
        ("/\t/evil.test", "/"),
        ("/sign-out", "/"),
        ("", "/"),
        (None, "/"),
    ],
)
async def test_signing_in_leads_nowhere_else(target: str | None, leads_to: str) -> None:
    assert local(target, "") == leads_to
    rooted = None if target is None else f"/ops{target}"
    if leads_to != "/":
        assert local(rooted, "/ops") == f"/ops{leads_to}"
    assert local(target, "/ops") == "/ops/"


async def test_a_role_is_needed_to_look(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path, auth="keys") as server, visiting(browser, server.url) as visit:
        await visit.sign_in(server.key(Role.SUBMIT))
        assert await visit.to("/jobs") == 403
        assert "role read" in await visit.text()
