"""Limits of live jobs: refused with Retry-After, duplicates answered all the same, slots freed exactly."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.live import Live, live

SCOPES = [
    ({"max_inflight": "2"}, "GLOBAL_SATURATED"),
    ({"max_inflight_per_tenant": "2"}, "TENANT_SATURATED"),
    ({"max_inflight_per_lane": "2"}, "LANE_SATURATED"),
]


async def filled(lucius: Live, count: int = 2) -> list[str]:
    return [await lucius.accepted(str(number)) for number in range(count)]


async def refused(lucius: Live, key: str, code: str, **changes: str) -> None:
    answer = await lucius.submit(key, **changes)
    assert (answer.status_code, answer.json()["code"]) == (429, code)
    assert int(answer.headers["retry-after"]) >= 1
    setting = "LUCIUS_MAX_INFLIGHT" + code.removesuffix("_SATURATED").join(("_PER_", ""))
    assert setting.removesuffix("_PER_GLOBAL") in answer.json()["detail"]


async def live_jobs(lucius: Live) -> int:
    return (await lucius.runtime.ledger.inflight()).total


@pytest.mark.parametrize(("limits", "code"), SCOPES)
async def test_beyond_a_limit_nothing_is_created_and_no_claim_is_held(
    tmp_path: Path, limits: dict[str, Any], code: str
) -> None:
    async with live(tmp_path, **limits) as lucius:
        await filled(lucius)
        await refused(lucius, "k", code)
        assert len((await lucius.client.get("/v1/jobs")).json()["jobs"]) == 2
        ended = await lucius.work()
        answer = await lucius.submit("k", payload={"language": "de"})
        assert (answer.status_code, answer.json()["duplicate"]) == (202, False), "another body"
        assert (await lucius.job(ended))["state"] == "SUCCEEDED"


@pytest.mark.parametrize(("limits", "code"), SCOPES)
async def test_a_duplicate_is_answered_even_when_saturated(
    tmp_path: Path, limits: dict[str, Any], code: str
) -> None:
    async with live(tmp_path, **limits) as lucius:
        first, _ = await filled(lucius)
        again = await lucius.submit("0")
        assert (again.status_code, again.json()["jobId"]) == (202, first)
        other = await lucius.submit("0", payload={"language": "de"})
        assert other.json()["code"] == "IDEMPOTENCY_KEY_REUSED"
        await refused(lucius, "2", code)


async def test_burst_may_have_a_limit_of_its_own(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"max_inflight_per_lane": "3", "max_inflight_per_lane_burst": "1"}
    async with live(tmp_path, **limits) as lucius:
        await filled(lucius, 3)
        await refused(lucius, "3", "LANE_SATURATED")
        await lucius.accepted("b0", mode="BURST", doc_id="one")
        await refused(lucius, "b1", "LANE_SATURATED", mode="BURST", doc_id="one")


async def test_limits_differ_by_tenant_in_the_configuration(tmp_path: Path) -> None:
    own = tmp_path / "tenants.yaml"
    own.write_text(yaml.safe_dump({"tenants": {"small": {"max_inflight": 1}}}))
    settings: dict[str, Any] = {"protocols": f"packaged,{own}", "max_inflight_per_tenant": "2"}
    async with live(tmp_path / "data", **settings) as lucius:
        await lucius.accepted("0", tenant_id="small")
        await refused(lucius, "1", "TENANT_SATURATED", tenant_id="small")
        await filled(lucius)
        own.write_text(yaml.safe_dump({"tenants": {"small": {"max_inflight": 20}}}))
        assert await lucius.runtime.config.refresh()
        await lucius.accepted("1", tenant_id="small")


@pytest.mark.parametrize("end", ["SUCCEEDED", "FAILED_FINAL", "cancel"])
async def test_a_slot_is_freed_exactly_when_its_job_ends(tmp_path: Path, end: str) -> None:
    async with live(tmp_path, max_inflight="1") as lucius:
        job_id = await lucius.accepted("0")
        if end == "cancel":
            (directive,) = await lucius.pull()
            await lucius.reply("ack", directive)
            await lucius.order(job_id, "cancel")
            await refused(lucius, "1", "GLOBAL_SATURATED")
            await lucius.answer(directive)
        else:
            await lucius.work(end)
        assert await live_jobs(lucius) == 0
        await lucius.accepted("1")
        await refused(lucius, "2", "GLOBAL_SATURATED")


async def test_slots_are_what_they_were_after_a_crash(tmp_path: Path) -> None:
    """The files are copied while the ledger is open: that is what a crash leaves behind."""
    async with live(tmp_path / "before", max_inflight="2") as lucius:
        first, second = await filled(lucius)
        ended = await lucius.work()
        await lucius.accepted("2")
        await refused(lucius, "3", "GLOBAL_SATURATED")
        shutil.copytree(tmp_path / "before", tmp_path / "after")
    async with live(tmp_path / "after", max_inflight="2") as lucius:
        assert await live_jobs(lucius) == 2
        await refused(lucius, "3", "GLOBAL_SATURATED")
        assert (await lucius.submit("0")).json()["duplicate"] is True
        assert await lucius.work() in ({first, second} - {ended})
        await lucius.accepted("3")
        await refused(lucius, "4", "GLOBAL_SATURATED")
        assert await lucius.runtime.ledger.verify() == []
