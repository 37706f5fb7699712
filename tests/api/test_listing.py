"""Lists are filtered, paged and bound to the caller; a cursor continues only its own list."""

from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from lucius.core.job import JobState
from tests.api.live import live
from tests.api.world import World, accepted


async def test_pages_cover_every_job_once_newest_first(client: httpx.AsyncClient) -> None:
    made = [await accepted(client, payload={"n": number}) for number in range(5)]
    seen: list[str] = []
    query = {"limit": "2"}
    while True:
        page = (await client.get("/v1/jobs", params=query)).json()
        seen += [job["jobId"] for job in page["jobs"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == made[::-1]
    assert "steps" not in page["jobs"][0]


async def test_filters_reach_the_ledger(client: httpx.AsyncClient, world: World) -> None:
    await client.get(
        "/v1/jobs",
        params={
            "tenant_id": "a,b",
            "state": "queued,PAUSED",
            "request_type": "OCR→EMBEDDING",
            "created_from": "2026-01-27T10:00:00Z",
            "created_to": "2026-01-27T12:00:00+01:00",
        },
    )
    query = world.ledger.queries[-1]
    assert query.tenant_ids == {"a", "b"}
    assert query.states == {JobState.QUEUED, JobState.PAUSED}
    assert query.request_type == "OCR->EMBEDDING"
    assert query.created_from == datetime(2026, 1, 27, 10, tzinfo=UTC)
    assert query.created_to == datetime(2026, 1, 27, 11, tzinfo=UTC)


@pytest.mark.parametrize(
    "query",
    [
        {"state": "DONE"},
        {"limit": "0"},
        {"limit": "9999999999999999999999"},
        {"limit": "-5"},
        {"created_from": "yesterday"},
        {"created_to": "2026-13-01T00:00:00Z"},
    ],
)
async def test_a_bad_filter_is_refused(client: httpx.AsyncClient, query: dict[str, str]) -> None:
    answer = await client.get("/v1/jobs", params=query)
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_PARAMETER")
    assert answer.json()["errors"][0]["parameter"] in query


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("0001-01-01T00:00:01+02:00", "9999-12-31T23:59:59-02:00"),
        ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"),
    ],
)
async def test_an_instant_at_the_edge_of_the_calendar_is_one(
    tmp_path: Path, since: str, until: str
) -> None:
    async with live(tmp_path) as lucius:
        job_id = await lucius.accepted()
        span = {"created_from": since, "created_to": until}
        jobs = (await lucius.client.get("/v1/jobs", params=span)).json()["jobs"]
        assert [job["jobId"] for job in jobs] == [job_id]
        assert (await lucius.bulk("cancel", span, dry_run=True))["matched"] == 1
        never = {"created_to": since}
        assert (await lucius.bulk("cancel", never, dry_run=True))["matched"] == 0


@pytest.mark.parametrize("cursor", ["2", "x.2", "é.2", "%00", "." * 50])
async def test_a_made_up_cursor_is_refused(client: httpx.AsyncClient, cursor: str) -> None:
    answer = await client.get("/v1/jobs", params={"cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_CURSOR")


async def test_a_cursor_of_another_list_is_refused(client: httpx.AsyncClient) -> None:
    for number in range(2):
        await accepted(client, payload={"n": number})
    query = {"limit": "1", "tenant_id": "tenant_a"}
    cursor = (await client.get("/v1/jobs", params=query)).json()["next_cursor"]
    other = {**query, "tenant_id": "tenant_b", "cursor": cursor}
    assert (await client.get("/v1/jobs", params=other)).json()["code"] == "INVALID_CURSOR"
    longer = {**query, "limit": "2", "cursor": cursor}
    assert (await client.get("/v1/jobs", params=longer)).status_code == 200
