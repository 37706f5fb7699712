"""Bodies have one meaning or none: everything else is a problem document, and nothing is created."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.http.body import _keys, _keys_by_level, parsed
from lucius.http.context import ApiOptions
from lucius.http.problems import Problem
from tests.api.live import BOUND, live
from tests.api.live import ENVELOPE as LIVE_ENVELOPE
from tests.api.world import ENVELOPE, World, bearer, client_of, context_of

DEEP = b'{"a":' * 65 + b"1" + b"}" * 65
VERY_DEEP = b"[" * 100_000
BAD = [
    (b"", 400, "INVALID_JSON"),
    (b"{", 400, "INVALID_JSON"),
    (b'{"a": NaN}', 400, "INVALID_JSON"),
    (b'{"a": 1e999}', 400, "INVALID_JSON"),
    (b'{"a": "\xff"}', 400, "INVALID_JSON"),
    (b'{"a": "\\ud800"}', 400, "INVALID_JSON"),
    (b"\xef\xbb\xbf{}", 400, "INVALID_JSON"),
    (b'{"a": 1, "a": 2}', 400, "DUPLICATE_KEY"),
    (b'{"a": {"b" : 1,"b": 1}}', 400, "DUPLICATE_KEY"),
    (b'{"a": 1, "\\u0061": 2}', 400, "DUPLICATE_KEY"),
    (DEEP, 400, "NESTING_TOO_DEEP"),
    (VERY_DEEP, 400, "NESTING_TOO_DEEP"),
    (b"[]", 422, "INVALID_BODY"),
    (b"null", 422, "INVALID_BODY"),
    (b'"text"', 422, "INVALID_BODY"),
]
ANY_TOKEN = bearer({"jobId": "job_x", "stepId": "ocr", "attempt_no": 1, "lease_id": "l"})
"""Without one of LUCIUS's own no callback is read at all."""
ROUTES = ["/v1/orchestrate", "/v1/commands", "/v1/callbacks/ack", "/v1/services/ocr/replies"]


@pytest.mark.parametrize(("body", "status", "code"), BAD)
@pytest.mark.parametrize("route", ROUTES)
async def test_a_bad_body_is_a_problem_and_creates_nothing(
    client: httpx.AsyncClient, world: World, route: str, body: bytes, status: int, code: str
) -> None:
    headers = {"content-type": "application/json", **ANY_TOKEN}
    answer = await client.post(route, content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert world.jobs == {}


async def test_wide_bodies_are_not_deep(client: httpx.AsyncClient) -> None:
    envelope = {**ENVELOPE, "payload": {"list": [{"n": [number]} for number in range(200)]}}
    answer = await client.post("/v1/orchestrate", json=envelope)
    assert answer.status_code == 202


@pytest.mark.parametrize("beside", [0, 100])
def test_the_depth_that_is_allowed_is_the_same_for_many_and_few(beside: int) -> None:
    few = b"[]," * beside
    assert parsed(few.join([b"[", b"[" * 63 + b"]" * 64]))
    with pytest.raises(Problem, match="deep"):
        parsed(few.join([b"[", b"[" * 64 + b"]" * 65]))


async def test_a_long_number_is_read_in_no_time(client: httpx.AsyncClient) -> None:
    body = b'{"a": ' + b"9" * 200_000 + b"}"
    answer = await client.post("/v1/orchestrate", content=body)
    assert answer.status_code in (400, 422)


LONG = ["18446744073709551616", "-9223372036854775809", "123456789012345678901234567890", "9" * 300]


@pytest.mark.parametrize("number", LONG)
async def test_an_integer_that_would_be_changed_is_refused_by_its_place(
    tmp_path: Path, number: str
) -> None:
    """As floats, neighbours are one number: two requests would be one job."""
    payload = {"language": "en", "deep": [{"n/1": "NUMBER"}]}
    body = json.dumps({**LIVE_ENVELOPE, "payload": payload}).replace('"NUMBER"', number)
    headers = {"content-type": "application/json"}
    async with live(tmp_path) as world:
        answer = await world.client.post("/v1/orchestrate", content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_ENVELOPE")
        assert answer.json()["errors"] == [
            {"pointer": "/payload/deep/0/n~11", "detail": "is an integer beyond 64 bits"}
        ]
        job_id = await world.failed("k")
        redriven = f'{{"payload": {{"n": {number}}}}}'
        answer = await world.client.post(
            f"/v1/jobs/{job_id}:redrive", content=redriven, headers=headers
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_ENVELOPE")


@pytest.mark.parametrize("number", LONG)
async def test_a_result_cannot_carry_one_either(tmp_path: Path, number: str) -> None:
    async with live(tmp_path) as world:
        await world.accepted()
        (directive,) = await world.pull()
        reply = {name: directive[name] for name in BOUND} | {"status": "SUCCEEDED"}
        body = json.dumps({**reply, "output_ref": {"uri": "s3://b/x", "size": "NUMBER"}})
        answer = await world.client.post(
            "/v1/callbacks/result",
            content=body.replace('"NUMBER"', number),
            headers={"authorization": f"Bearer {directive['callback_token']}"},
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_CALLBACK")
        assert answer.json()["errors"][0]["pointer"] == "/output_ref/size"


@pytest.mark.parametrize("number", [2**64 - 1, -(2**63), 10**18, 0, -1])
async def test_integers_of_64_bits_are_kept_exactly(tmp_path: Path, number: int) -> None:
    async with live(tmp_path) as world:
        await world.accepted(payload={"n": number})
        (directive,) = await world.pull()
        assert directive["payload"] == {"n": number}
        assert (await world.submit(payload={"n": number})).json()["duplicate"]
        other = number - 1 if number > 0 else number + 1
        assert not (await world.submit(payload={"n": other})).json()["duplicate"]


async def test_a_key_named_twice_beside_a_long_integer_is_still_found(
    client: httpx.AsyncClient,
) -> None:
    body = b'{"n": 123456789012345678901234567890, "a": 1, "a": 2}'
    answer = await client.post("/v1/orchestrate", content=body)
    assert answer.json()["code"] == "DUPLICATE_KEY"


async def test_a_declared_length_over_the_limit_is_refused_unread(world: World) -> None:
    read = []

    async def chunks() -> AsyncIterator[bytes]:
        read.append(1)
        yield b"{}"

    options = ApiOptions(max_body_bytes=1000)
    async with client_of(context_of(world, options=options)) as client:
        headers = {"content-length": "1001"}
        answer = await client.post("/v1/orchestrate", content=chunks(), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "BODY_TOO_LARGE")
    assert answer.headers["connection"] == "close"
    assert read == []


async def test_an_undeclared_length_is_refused_as_soon_as_it_shows(world: World) -> None:
    sent = []

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(100):
            sent.append(number)
            yield b"x" * 100

    options = ApiOptions(max_body_bytes=1000)
    async with client_of(context_of(world, options=options)) as client:
        answer = await client.post("/v1/orchestrate", content=chunks())
    assert answer.status_code == 413
    assert len(sent) < 20


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 5000])
async def test_a_length_that_is_no_number_is_refused(
    client: httpx.AsyncClient, length: str
) -> None:
    headers = {"content-length": length}
    answer = await client.post("/v1/orchestrate", content=b"{}", headers=headers)
    assert answer.status_code == 413


async def test_forms_are_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/orchestrate", data={"tenant_id": "a"})
    assert (answer.status_code, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_a_web_page_of_another_origin_is_refused(client: httpx.AsyncClient) -> None:
    other = {"origin": "https://evil.example"}
    answer = await client.post("/v1/orchestrate", json=ENVELOPE, headers=other)
    assert (answer.status_code, answer.json()["code"]) == (403, "CROSS_ORIGIN")
    same = {"origin": "http://lucius"}
    answer = await client.post("/v1/orchestrate", json=ENVELOPE, headers=same)
    assert answer.status_code == 202


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
async def test_a_page_of_another_site_is_refused_even_if_it_hides_its_origin(
    client: httpx.AsyncClient, world: World, site: str
) -> None:
    other = {"sec-fetch-site": site}
    for path in ("/v1/orchestrate", "/v1/jobs/job_x:cancel", "/v1/services/ocr/directives:pull"):
        answer = await client.post(path, json=ENVELOPE, headers=other)
        assert (answer.status_code, answer.json()["code"]) == (403, "CROSS_ORIGIN")
    assert world.jobs == {}


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_a_page_of_ours_is_not(client: httpx.AsyncClient, site: str) -> None:
    own = {"sec-fetch-site": site}
    answer = await client.post("/v1/orchestrate", json=ENVELOPE, headers=own)
    assert answer.status_code == 202


class Pairs(list[Any]):
    """An object whose keys may repeat."""


PAIRS = st.recursive(
    st.integers(-5, 5) | st.text('":{},\\ x', max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(st.tuples(st.text('":x', max_size=2), inner), max_size=4).map(Pairs)
    ),
    max_leaves=10,
)


def written(value: Any, colon: str) -> str:
    if isinstance(value, Pairs):
        inside = (f"{json.dumps(key)}{colon}{written(item, colon)}" for key, item in value)
        return "{" + ",".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(item, colon) for item in value) + "]"
    return json.dumps(value)


def repeats(value: Any) -> bool:
    if isinstance(value, Pairs):
        keys = [key for key, _ in value]
        return len(set(keys)) < len(keys) or any(repeats(item) for _, item in value)
    return isinstance(value, list) and any(repeats(item) for item in value)


VALUES = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=20,
)


@given(VALUES)
def test_keys_are_counted_alike_level_by_level(value: Any) -> None:
    assert _keys_by_level(value) == _keys(value)


@given(PAIRS, st.sampled_from([":", ": ", " :", "\n:\t"]))
def test_a_key_named_twice_is_found_however_it_is_written(value: Any, colon: str) -> None:
    body = written(value, colon).encode()
    if repeats(value):
        with pytest.raises(Problem) as caught:
            parsed(body)
        assert caught.value.known.code == "DUPLICATE_KEY"
    else:
        assert parsed(body) == json.loads(body)
