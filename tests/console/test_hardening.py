"""What a hostile visitor tries: every page and order as nobody, without the role, from another site."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from lucius.api.context import Caller, Role
from lucius.api.operation import Operation
from lucius.api.problems import Problem
from lucius.console.oidc import Oidc, OidcClient
from lucius.console.sessions import COOKIE, MOST_ENDED, Seals, Sessions, cookie_prefix
from lucius.console.site import POLICY
from tests.api.world import TOKENS, accepted, client_of, context_of
from tests.console.rooms import HOST, Guarded, guarded
from tests.console.test_orders import token_in

ALICE = Caller("alice", frozenset((Role.READ,)), frozenset(("tenant_a",)))


def address(operation: Operation) -> str:
    path = operation.path
    for name in ("jobId", "verb", "service", "planId", "version", "name"):
        path = path.replace(f"{{{name}}}", "pause" if name == "verb" else f"some_{name}")
    return path


def ours(server: Guarded, method: str) -> list[Operation]:
    return [each for each in server.room.operations if each.method == method]


async def test_every_page_and_order_asks_who_comes_and_for_the_role(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        lesser = {Role.READ: server.key(Role.SUBMIT), Role.OPERATE: server.key(Role.READ)}
        guarded_ones = [each for each in server.room.operations if each.role is not None]
        assert len(guarded_ones) >= 15
        for operation in guarded_ones:
            assert operation.role is not None
            async with server.visitor() as stranger:
                answer = await stranger.request(operation.method, address(operation))
                assert answer.status_code == 303, operation.path
                assert answer.headers["location"].startswith("/sign-in"), operation.path
            async with server.visitor(lesser[operation.role]) as visitor:
                answer = await visitor.request(operation.method, address(operation))
                assert answer.status_code == 403, operation.path
                assert "FORBIDDEN" in answer.text, operation.path


CROSS: list[dict[str, str]] = [
    {"origin": "https://evil.test"},
    {"origin": "null"},
    {"origin": "http://lucius:8080"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
]


async def test_no_order_is_taken_from_another_site_or_without_the_token_of_the_session(
    tmp_path: Path,
) -> None:
    """Signing in and out are orders too."""
    async with guarded(tmp_path) as server:
        key = server.key()
        async with server.visitor(key) as visitor, server.visitor(key) as other:
            mine = token_in((await visitor.get("/jobs")).text)
            theirs = token_in((await other.get("/jobs")).text)
            nobodys = token_in(
                (await httpx.AsyncClient(transport=server.transport).get(f"{HOST}/sign-in")).text
            )
            orders = ours(server, "POST")
            assert {"/sign-in", "/sign-out"} <= {each.path for each in orders}
            for operation in orders:
                for token in ("", "x", "\u00b2", theirs, nobodys):
                    answer = await visitor.post(address(operation), data={"form_token": token})
                    assert answer.status_code == 403, (operation.path, token)
                for headers in CROSS:
                    answer = await visitor.post(
                        address(operation), data={"form_token": mine, "key": key}, headers=headers
                    )
                    assert answer.status_code == 403, (operation.path, headers)
                    assert "CROSS_ORIGIN" in answer.text
                    assert "set-cookie" not in answer.headers


async def test_every_answer_of_the_console_has_its_headers(tmp_path: Path) -> None:
    """Pages, orders, streams, redirects and errors; also where there is no such page."""
    async with guarded(tmp_path) as server:
        key = server.key()
        async with server.visitor() as stranger, server.visitor(key) as visitor:
            for operation in server.room.operations:
                if operation.path == "/live":  # it never ends
                    continue
                for who in (stranger, visitor):
                    answer = await who.request(operation.method, address(operation))
                    assert answer.headers["content-security-policy"] == POLICY, operation.path
                    assert answer.headers["x-frame-options"] == "DENY", operation.path
                    assert answer.headers["cache-control"] == "no-store", operation.path
            lost = await stranger.get("/no/such/page", headers={"accept": "text/html,*/*"})
            assert (lost.status_code, lost.headers["content-security-policy"]) == (404, POLICY)
            assert "<h1>" in lost.text
            plain = await stranger.get("/no/such/page")
            assert plain.json()["code"] == "NOT_FOUND", "for programs it is a document"


async def test_who_has_signed_out_is_out_whoever_has_the_cookie(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server, server.visitor(server.key()) as visitor:
        stolen = visitor.cookies[COOKIE]
        assert (await visitor.get("/jobs")).status_code == 200
        token = token_in((await visitor.get("/jobs")).text)
        await visitor.post("/sign-out", data={"form_token": token})
        assert COOKIE not in visitor.cookies
        async with server.visitor(cookies={COOKIE: stolen}) as thief:
            answer = await thief.get("/jobs")
        assert (answer.status_code, answer.headers["location"][:8]) == (303, "/sign-in")


def request_with(cookie: str) -> Request:
    headers = [(b"cookie", f"{COOKIE}={cookie}".encode())]
    return Request({"type": "http", "method": "GET", "headers": headers})


async def test_what_a_session_has_opened_is_closed_with_it_and_few_are_remembered() -> None:
    clock = [1000.0]
    sessions = Sessions(Seals(TOKENS), 60.0, lambda: clock[0])
    caller = replace(ALICE, key_id=None)
    first, _ = sessions.begin(caller)
    known = await sessions(request_with(first))
    assert known.stands()
    sessions.end(request_with(first))
    assert not known.stands(), "its event streams end"
    for _ in range(MOST_ENDED + 5):
        sessions.end(request_with(sessions.begin(caller)[0]))
    assert len(sessions._ended) <= MOST_ENDED
    clock[0] += 61
    last, _ = sessions.begin(caller)
    sessions.end(request_with(last))
    assert len(sessions._ended) == 1, "those that are over anyway are forgotten"


async def test_a_sign_in_that_was_begun_too_long_ago_is_not_finished() -> None:
    access: Any = None
    oidc = Oidc(OidcClient("https://issuer.test", "us"), access, lambda: 1000.0)
    back: Any = Request({"type": "http", "query_string": b"state=s&code=c", "headers": []})
    pending = {"state": "s", "verifier": "v", "nonce": "n", "until": 999.0}
    with pytest.raises(Problem, match="too long ago"):
        await oidc.finish(back, pending)


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("", ""),
        ("http://ops.test", ""),
        ("https://ops.test", "__Host-"),
        ("https://ops.test/", "__Host-"),
        ("https://ops.test/lucius", "__Secure-"),
    ],
)
async def test_no_other_host_of_the_domain_can_set_the_cookie(
    tmp_path: Path, url: str, prefix: str
) -> None:
    assert cookie_prefix(url) == prefix
    async with guarded(tmp_path, url) as server:
        key = server.key()
        async with server.visitor(headers={"host": "ops.test"}) as visitor:
            token = token_in((await visitor.get("/sign-in")).text)
            form = {"key": key, "form_token": token}
            said = (await visitor.post("/sign-in", data=form)).headers["set-cookie"]
            assert said.startswith(f"{prefix}{COOKIE}=")
            assert ("; Secure" in said) == (prefix != "")
            value = said.partition("=")[2].partition(";")[0]
            for name in (COOKIE, f"__Host-{COOKIE}", f"__Secure-{COOKIE}"):
                cookie = {"cookie": f"{name}={value}"}
                opened = (await visitor.get("/jobs", headers=cookie)).status_code == 200
                assert opened == (name == f"{prefix}{COOKIE}"), name


async def test_commands_to_copy_go_where_the_settings_say(tmp_path: Path) -> None:
    """A key must not be sent to the host that a request names, or in the clear behind a proxy."""
    async with guarded(tmp_path, "https://ops.test/lucius") as server:
        async with client_of(context_of(server.world)) as client:
            job_id = await accepted(client)
        async with server.visitor() as visitor:
            token = token_in((await visitor.get("/sign-in")).text)
            form = {"key": server.key(), "form_token": token}
            said = (await visitor.post("/sign-in", data=form)).headers["set-cookie"]
            headers = {"cookie": said.partition(";")[0], "host": "evil.test"}
            headers |= {"x-forwarded-host": "evil.test", "x-forwarded-proto": "javascript"}
            for path in (f"/jobs/{job_id}", "/services", "/jobs/order?verb=pause"):
                page = (await visitor.get(path, headers=headers)).text
                assert "https://ops.test/lucius/v1/" in page, path
                assert "evil.test" not in page, path
                assert "javascript:" not in page, path


FORMS: list[tuple[str, dict[str, str]]] = [
    ("/jobs/order", {"verb": "pause", "counted": "\u00b2"}),
    ("/jobs/order", {"verb": "pause", "counted": "9" * 5000}),
    ("/jobs/order", {"verb": "pause", "counted": "-1"}),
    ("/jobs/order", {"verb": "pause", "counted": "9", "created_from": "\x00"}),
    ("/jobs/order", {"verb": "pause", "counted": "9", "state": "\ud7ff" * 99}),
    ("/failures/redrive", {"group": "g", "canary": "9" * 30}),
    ("/failures/redrive", {"group": "g", "rate": "1e999"}),
    ("/failures/redrive", {"group": "g", "rate": "nan"}),
    ("/failures/redrive", {"group": "\x00\u202e", "stop_after": "9" * 60000}),
    ("/services/%00/pause", {"reason": "x" * 9000}),
    ("/redrives/%F0%9F%92%A9/stop", {}),
    ("/jobs/%2e%2e/cancel", {"reason": "\x1b[2J"}),
]


@pytest.mark.parametrize(("path", "fields"), FORMS, ids=range(len(FORMS)))
async def test_a_form_that_no_page_of_ours_sent_is_refused_and_never_a_defect(
    tmp_path: Path, path: str, fields: dict[str, str]
) -> None:
    async with guarded(tmp_path) as server, server.visitor(server.key()) as visitor:
        token = token_in((await visitor.get("/jobs")).text)
        answer = await visitor.post(path, data={**fields, "form_token": token})
    assert 400 <= answer.status_code < 500, answer.text


QUERIES = [
    "%ff%fe",
    "%00",
    "a" * 4000,
    "%F0%9F%92%A9",
    "..%2f..%2fetc",
    "%0d%0aset-cookie:x",
    "last",
]


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
async def test_what_is_searched_and_filtered_for_may_be_anything(
    tmp_path: Path, query: str
) -> None:
    async with guarded(tmp_path) as server, server.visitor(server.key()) as visitor:
        for path in ("/search?q=", "/jobs?tenant_id=", "/jobs?cursor=", "/failures/redrive?group="):
            answer = await visitor.get(path + query)
            assert answer.status_code < 500, (path, answer.text)
            assert "set-cookie" not in answer.headers


async def test_a_link_cannot_make_a_page_say_what_was_not_done(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server, server.visitor(server.key()) as visitor:
        async with client_of(context_of(server.world)) as client:
            job_id = await accepted(client)
        lie = "Call%20555%20to%20restore"
        for path in (f"/jobs/{job_id}?done=", "/failures?done=", "/services?done=pause&service="):
            assert 'class="notice"' not in (await visitor.get(path + lie)).text, path
        for path in (f"/jobs/{job_id}?done=pause", "/failures?done=stop"):
            assert ": taken." in (await visitor.get(path)).text
