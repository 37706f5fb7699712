"""A refusal is raised as its kind, with the problem document in it."""

from pathlib import Path

import pytest
from aiohttp import web

from lucius.client import (
    Client,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ProblemError,
    Saturated,
    Unauthenticated,
    Unavailable,
)
from lucius.contract.codes import CODES
from tests.api.live import ENVELOPE, live
from tests.client.answering import answering, through

KINDS = {
    400: Invalid,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: Saturated,
    431: Invalid,
    503: Unavailable,
}
OF_NO_KIND = {405, 408, 421, 500, 501}
"""A defect, of the server or of the client: there is nothing that a program could do about it."""


def test_every_status_that_the_server_has_is_of_a_kind_or_a_defect() -> None:
    assert {known.status for known in CODES.values()} == KINDS.keys() | OF_NO_KIND


@pytest.mark.parametrize("status", sorted(KINDS.keys() | OF_NO_KIND))
async def test_the_status_says_the_kind(status: int) -> None:
    document = {"code": "SOME_CODE", "detail": "so it is", "more": 7}

    async def handle(request: web.BaseRequest) -> web.Response:
        return web.json_response(document, status=status, headers={"retry-after": "9"})

    async with answering(handle) as url, Client(url, retries=0) as client:
        with pytest.raises(ProblemError) as caught:
            await client.job("x")
    error = caught.value
    assert type(error) is KINDS.get(status, ProblemError)
    assert (error.status, error.code, error.document) == (status, "SOME_CODE", document)
    assert error.retry_after == 9


@pytest.mark.parametrize("said", ["", "soon", "-1", "²", "Wed, 21 Oct 2026 07:28:00 GMT"])
async def test_what_is_no_number_of_seconds_is_no_advice_when_to_come_back(said: str) -> None:
    async def handle(request: web.BaseRequest) -> web.Response:
        return web.json_response({}, status=429, headers={"retry-after": said})

    async with answering(handle) as url, Client(url, retries=0) as client:
        with pytest.raises(Saturated) as caught:
            await client.job("x")
    assert caught.value.retry_after is None


async def test_what_a_server_in_between_says_is_a_problem_document_too() -> None:
    document = {"code": 7, "title": None, "errors": [None, {"pointer": 3, "parameter": None}]}

    async def handle(request: web.BaseRequest) -> web.Response:
        return web.json_response(document, status=502)

    async with answering(handle) as url, Client(url, retries=0) as client:
        with pytest.raises(Unavailable) as caught:
            await client.job("x")
    problem = caught.value.problem
    assert (problem.type, problem.status, problem.code) == ("about:blank", 502, "7")
    assert [each.pointer for each in caught.value.errors] == [None, "3"]


async def test_a_server_refuses_by_kind(tmp_path: Path) -> None:
    async with (
        live(tmp_path, max_inflight="1") as lucius,
        answering(through(lucius.client)) as url,
        Client(url, retries=0) as client,
    ):
        with pytest.raises(NotFound, match="JOB_NOT_FOUND"):
            await client.job("job_none")
        with pytest.raises(Invalid) as invalid:
            await client.submit({**ENVELOPE, "payload": 7, "request_type": ""})
        assert invalid.value.problem.title == "The command is not valid"
        places = {each.pointer for each in invalid.value.errors}
        assert places == {"/payload", "/request_type"}
        job_id = await lucius.accepted("one")
        with pytest.raises(Conflict, match="NOT_REDRIVABLE"):
            await client.redrive(job_id)
        with pytest.raises(Saturated, match="GLOBAL_SATURATED") as saturated:
            await client.submit(ENVELOPE)
        assert saturated.value.retry_after == 1
