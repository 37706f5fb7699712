"""What a hostile visitor tries: every page and order as nobody, without the role, from another site."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from lucius.adapters.ledgers.memory import MemoryLeases
from lucius.core.errors import LedgerUnavailableError
from lucius.http.console.sessions import (
    COOKIE,
    LOOK,
    MOST,
    OLDEST,
    EndedSessions,
    Seals,
    Sessions,
    cookie_prefix,
)
from lucius.http.console.signing_in import Oidc, OidcClient
from lucius.http.console.site import POLICY
from lucius.http.context import Caller, Role
from lucius.http.problems import Problem
from lucius.http.routing import ApiRoute
from lucius.ports.leases import LeaseRow, LeaseStore
from tests.api.world import TOKENS, accepted, client_of, context_of
from tests.conformance.lease_registry import ADAPTERS
from tests.conformance.on_every import on_every
from tests.console.rooms import HOST, Guarded, guarded
from tests.console.served import served
from tests.console.test_orders import token_in

ALICE = Caller("alice", frozenset((Role.READ,)), frozenset(("tenant_a",)))


def address(route: ApiRoute) -> str:
    path = route.path
    for name in ("jobId", "verb", "service", "planId", "version", "name"):
        path = path.replace(f"{{{name}}}", "pause" if name == "verb" else f"some_{name}")
    return path


def ours(server: Guarded, method: str) -> list[ApiRoute]:
    return [each for each in server.section.routes if each.method == method]


async def test_every_page_and_order_asks_who_comes_and_for_the_role(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        lesser = {Role.READ: server.key(Role.SUBMIT), Role.OPERATE: server.key(Role.READ)}
        guarded_ones = [each for each in server.section.routes if each.access.role is not None]
        assert len(guarded_ones) >= 15
        for route in guarded_ones:
            assert route.access.role is not None
            async with server.visitor() as stranger:
                answer = await stranger.request(route.method, address(route))
                assert answer.status_code == 303, route.path
                assert answer.headers["location"].startswith("/sign-in"), route.path
            async with server.visitor(lesser[route.access.role]) as visitor:
                answer = await visitor.request(route.method, address(route))
                assert answer.status_code == 403, route.path
                assert "FORBIDDEN" in answer.text, route.path


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
            for route in orders:
                for token in ("", "x", "\u00b2", theirs, nobodys):
                    answer = await visitor.post(address(route), data={"form_token": token})
                    assert answer.status_code == 403, (route.path, token)
                for headers in CROSS:
                    answer = await visitor.post(
                        address(route), data={"form_token": mine, "key": key}, headers=headers
                    )
                    assert answer.status_code == 403, (route.path, headers)
                    assert "CROSS_ORIGIN" in answer.text
                    assert "set-cookie" not in answer.headers


async def test_every_answer_of_the_console_has_its_headers(tmp_path: Path) -> None:
    """Pages, orders, streams, redirects and errors; also where there is no such page."""
    async with guarded(tmp_path) as server:
        key = server.key()
        async with server.visitor() as stranger, server.visitor(key) as visitor:
            for route in server.section.routes:
                if route.path == "/live":  # it never ends
                    continue
                for who in (stranger, visitor):
                    answer = await who.request(route.method, address(route))
                    assert answer.headers["content-security-policy"] == POLICY, route.path
                    assert answer.headers["x-frame-options"] == "DENY", route.path
                    assert answer.headers["cache-control"] == "no-store", route.path
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


def sessions_over(notes: LeaseStore, clock: list[float]) -> Sessions:
    """As a process has them."""
    return Sessions(Seals(TOKENS), 60.0, lambda: clock[0], EndedSessions(notes, lambda: clock[0]))


async def is_known(sessions: Sessions, cookie: str) -> bool:
    try:
        await sessions(request_with(cookie))
    except Problem as problem:
        if problem.known.code != "UNAUTHENTICATED":
            raise
        return False
    return True


async def test_what_a_session_has_opened_is_closed_with_it() -> None:
    clock = [1000.0]
    sessions = sessions_over(MemoryLeases(), clock)
    first, _ = sessions.begin(ALICE)
    other, _ = sessions.begin(ALICE)
    known = await sessions(request_with(first))
    assert known.stands()
    await sessions.end(request_with(first))
    assert not known.stands(), "its event streams end"
    assert await is_known(sessions, other), "another one of the same caller goes on"


@on_every(ADAPTERS)
async def test_a_session_that_was_ended_stays_so_after_a_restart_and_elsewhere(
    notes: LeaseStore,
) -> None:
    clock = [1000.0]
    here, there = sessions_over(notes, clock), sessions_over(notes, clock)
    ended, _ = here.begin(ALICE)
    other, _ = here.begin(ALICE)
    assert await is_known(there, ended)
    await here.end(request_with(ended))
    restarted = sessions_over(notes, clock)
    assert (await is_known(restarted, ended), await is_known(restarted, other)) == (False, True)
    clock[0] += LOOK + 1
    assert (await is_known(there, ended), await is_known(there, other)) == (False, True)


async def test_a_caller_who_ends_too_many_sessions_ends_all_and_those_of_nobody_else() -> None:
    clock, notes = [1000.0], MemoryLeases()
    sessions = sessions_over(notes, clock)
    mallory = replace(ALICE, name="mallory", key_id=None)
    first, _ = sessions.begin(ALICE)
    await sessions.end(request_with(first))
    kept, _ = sessions.begin(mallory)
    for _ in range(MOST + 1):
        await sessions.end(request_with(sessions.begin(mallory)[0]))
    (_, row) = sorted(await notes.rows(), key=lambda row: len(row.content["salts"]), reverse=True)
    assert row.content["salts"] == {}
    assert not await is_known(sessions, kept)
    assert not await is_known(sessions, first), "nobody crowds out another"
    clock[0] += 61
    last, _ = sessions.begin(ALICE)
    await sessions.end(request_with(last))
    assert len(await notes.rows()) == 1, "those that are over anyway are forgotten"


@pytest.mark.parametrize("content", [{}, {"salts": [], "before": "x", "until": None}])
async def test_a_damaged_note_of_one_caller_stops_no_session_of_anybody(
    content: dict[str, Any],
) -> None:
    clock, notes = [1000.0], MemoryLeases()
    sessions = sessions_over(notes, clock)
    cookie, _ = sessions.begin(ALICE)
    await sessions.end(request_with(sessions.begin(ALICE)[0]))
    (row,) = await notes.rows()
    assert await notes.put(replace(row, content=content)) is not None
    clock[0] += LOOK + 1
    assert await is_known(sessions, cookie)
    await sessions.end(request_with(sessions.begin(replace(ALICE, name="bob", key_id=None))[0]))
    assert [row.key for row in await notes.rows()] != [row.key], "it is gone"
    await sessions.end(request_with(cookie))
    assert not await is_known(sessions, cookie)


async def test_where_nobody_can_say_which_sessions_have_ended_none_opens_anything() -> None:
    clock, notes = [1000.0], Unreachable()
    sessions = sessions_over(notes, clock)
    cookie, _ = sessions.begin(ALICE)
    assert await is_known(sessions, cookie)
    notes.away = True
    with pytest.raises(LedgerUnavailableError):
        await sessions.end(request_with(cookie))
    clock[0] += OLDEST
    assert await is_known(sessions, cookie)
    clock[0] += 1
    with pytest.raises(Problem) as refused:
        await sessions(request_with(cookie))
    assert refused.value.known.code == "AUTHENTICATION_UNAVAILABLE"


class Unreachable(MemoryLeases):
    away = False

    async def rows(self) -> Sequence[LeaseRow]:
        if self.away:
            raise LedgerUnavailableError("the storage is away")
        return await super().rows()


async def test_where_the_ledger_forgets_sessions_end_with_the_process(tmp_path: Path) -> None:
    """The seals are kept in the data directory, and would open them again."""
    for backend, outlives in (("memory", False), ("sqlite", True)):
        cookies: list[str] = []
        for _ in range(2):
            async with served(tmp_path, auth="keys", storage_backend=backend) as server:
                key = server.key(Role.READ)
                if not cookies:
                    token = token_in((await server.client.get("/sign-in")).text)
                    form = {"key": key, "form_token": token}
                    signed = await server.client.post("/sign-in", data=form)
                    cookies.append(signed.cookies[COOKIE])
                server.client.cookies.clear()
                server.client.cookies[COOKIE] = cookies[0]
                answer = await server.client.get("/jobs")
        assert (answer.status_code == 200) == outlives, backend


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
