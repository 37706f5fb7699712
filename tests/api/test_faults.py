"""What does not fit a model is said all at once: where it is, and what must be there."""

from typing import Any

import httpx
import pytest

from lucius.contract.models.control import CancelManyBody
from lucius.http.problems import Problem, read_as
from tests.api.world import World, client_of, context_of


def faults(body: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(Problem) as raised:
        read_as(CancelManyBody, body)
    assert raised.value.known.code == "INVALID_BODY"
    return {str(each["pointer"]): str(each["detail"]) for each in raised.value.errors}


def test_every_fault_is_named_and_each_place_once() -> None:
    assert faults({"filter": {"tenant_id": 7, "nope": 1}, "limit": 0, "dry_run": "x"}) == {
        "/filter/tenant_id": "must be a string or must be a list",
        "/filter/nope": "is not known here",
        "/limit": "must be greater than or equal to 1",
        "/dry_run": "must be true or false",
    }


def test_what_is_missing_has_a_place() -> None:
    assert faults({}) == {"/filter": "is missing"}


@pytest.mark.parametrize(
    ("name", "pointer"),
    [("a/b~c", "/filter/a~1b~0c"), ("x" * 500, "/filter/" + "x" * 64), ("7", "/filter/7")],
)
def test_a_name_that_a_caller_made_up_is_escaped_and_cut(name: str, pointer: str) -> None:
    assert list(faults({"filter": {name: 1}})) == [pointer]


def test_an_item_of_a_list_is_named_by_its_number() -> None:
    assert "/filter/state/1" in faults({"filter": {"state": ["QUEUED", 7]}})


def test_what_was_given_is_not_repeated() -> None:
    said = faults({"filter": {"created_to": "hunter2"}, "reason": ["hunter2"], "limit": "hunter2"})
    assert len(said) == 3
    assert "hunter2" not in str(said)


async def test_faults_of_parameters_and_of_the_body_come_together(world: World) -> None:
    async with client_of(context_of(world)) as client:
        answer = await client.get("/v1/jobs?limit=0&live=maybe&created_to=soon")
    assert answer.json()["code"] == "INVALID_PARAMETER"
    assert [each["parameter"] for each in answer.json()["errors"]] == [
        "live",
        "created_to",
        "limit",
    ]


async def test_a_body_of_another_type_is_not_read_as_json(client: httpx.AsyncClient) -> None:
    for media in ("text/x+json", "text/plain", "application/jsonp"):
        answer = await client.post(
            "/v1/jobs:cancel", content=b'{"filter": {}}', headers={"content-type": media}
        )
        assert (answer.status_code, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    for media in ("application/json", "application/x+json; charset=utf-8", "APPLICATION/JSON"):
        answer = await client.post(
            "/v1/jobs:cancel", content=b'{"filter": {}}', headers={"content-type": media}
        )
        assert answer.status_code == 200
