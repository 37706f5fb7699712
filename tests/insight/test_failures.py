"""Failed attempts that are alike are one group; jobs are found by how they failed."""

from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.ledgers.memory import MemoryLeases
from lucius.core.job import Fault
from lucius.core.text import fingerprint, normal, place_in
from lucius.operations.failures import MOST_TENANTS, OTHERS, FailureStore
from tests.api.live import Live, live
from tests.insight.ward import FATAL, LATER, Ward
from tests.virtual import VirtualLoop, run_virtually


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("page 7 of 9 cannot be read", "page 12 of 9 cannot be read"),
        ("no such file: '/data/a/in.pdf'", "no such file: '/data/b/x.pdf'"),
        ("s3://bucket/a.pdf is gone", "s3://other/b.pdf is gone"),
        ("job_0199aa12bc45 failed after 1.5 s", "job_0199ff12bc99 failed after 12 s"),
        ("KeyError: 'a'", 'KeyError: "b"'),
        ("it broke at 0x7f3a11", "it broke at 0x99ffee"),
    ],
)
def test_messages_that_differ_in_numbers_ids_and_names_are_one_group(one: str, other: str) -> None:
    assert normal(one) == normal(other)
    assert fingerprint("ocr", Fault("C", one)) == fingerprint("ocr", Fault("C", other))


@pytest.mark.parametrize(
    "other",
    [("sis", "C", "it broke"), ("ocr", "D", "it broke"), ("ocr", "C", "it is broken")],
)
def test_another_step_code_or_message_is_another_group(other: tuple[str, str, str]) -> None:
    step_id, code, message = other
    assert fingerprint("ocr", Fault("C", "it broke")) != fingerprint(step_id, Fault(code, message))


def test_the_place_in_the_services_code_tells_groups_apart() -> None:
    one, other = (Fault("C", f"it broke (at ocr.py:{line})") for line in (12, 40))
    assert place_in(one.message) == "ocr.py:12"
    assert fingerprint("ocr", one) != fingerprint("ocr", other)


def test_every_failed_attempt_is_counted_with_its_tenant_trend_and_example() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop)
        async with ward.running("ocr"):
            ward.services["ocr"].fails = {"tenant_a": FATAL, "tenant_b": LATER}
            for _ in range(3):
                failed = await ward.submit()
                await ward.ended(failed)
            retried = await ward.submit(tenant_id="tenant_b")
            await ward.ended(retried)
            book = ward.activity.failures
            groups = {group.message.split()[0]: group for group in await book.groups(None)}
            final, again = groups["page"], groups["the"]
            assert (final.count, again.count) == (3, 3), "three jobs, and three attempts of one"
            assert (final.tenants, again.tenants) == (("tenant_a",), ("tenant_b",))
            assert final.message == "page <n> of <n> cannot be read"
            assert final.example == failed
            assert sum(final.trend) == 3
            assert again.first_at < again.last_at
            assert [group.group for group in await book.groups(["tenant_b"])] == [again.group]

    run_virtually(main)


def test_what_two_processes_count_adds_up_and_survives_them() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop)
        other = FailureStore(ward.ledger.shared_records(), now=loop.now)
        async with ward.running("ocr"):
            ward.services["ocr"].fails["*"] = FATAL
            await ward.ended(await ward.submit())
            await ward.activity.failures.write()
            await ward.activity.failures.write()
            job = await ward.job(await ward.submit())
            other._count(job, await _failure(ward))
            await other.write()
            fresh = FailureStore(ward.ledger.shared_records(), now=loop.now)
            assert [group.count for group in await fresh.groups(None)] == [2]

    run_virtually(main)


async def _failure(ward: Ward) -> Any:
    from lucius.core.text import failures_in

    ended = [record.job for record in ward.ledger.jobs.values() if record.job.terminal]
    return failures_in(ended[0])[0]


def test_tenants_of_a_group_are_bounded_and_the_rest_is_shown_to_nobody_bound() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop)
        async with ward.running("ocr"):
            ward.services["ocr"].fails["*"] = FATAL
            for number in range(MOST_TENANTS + 5):
                await ward.ended(await ward.submit(tenant_id=f"t{number}"))
            (group,) = await ward.activity.failures.groups(None)
            assert group.count == MOST_TENANTS + 5
            assert OTHERS in group.tenants
            assert len(group.tenants) <= MOST_TENANTS + 1
            assert await ward.activity.failures.groups(["t0"]) == []

    run_virtually(main)


async def test_a_success_is_not_written_down() -> None:
    store = MemoryLeases()
    await FailureStore(store, now=lambda: pytest.fail("nobody asks")).write()
    assert await store.rows() == []


# -- over HTTP -------------------------------------------------------------------------------


async def found(lucius: Live, query: str) -> list[str]:
    answer = await lucius.client.get(f"/v1/jobs?{query}")
    assert answer.status_code == 200, answer.text
    return [job["jobId"] for job in answer.json()["jobs"]]


async def test_jobs_are_found_by_code_step_service_group_and_life(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        failed = await lucius.failed("one")
        waiting = await lucius.accepted("two")
        (group,) = (await lucius.client.get("/v1/failures")).json()["groups"]
        assert (group["code"], group["step_id"], group["example"]) == ("BROKEN", "ocr", failed)
        one = await lucius.client.get(f"/v1/failures/{group['group']}")
        assert one.json() == group
        for query in ("code=BROKEN", f"group={group['group']}", "code=OTHER,BROKEN"):
            assert await found(lucius, query) == [failed]
        assert await found(lucius, "step=ocr") == [waiting, failed]
        assert await found(lucius, "service=ocr&live=true") == [waiting]
        assert await found(lucius, "code=OTHER") == []
        assert await found(lucius, "service=sis") == []
        dlq = await lucius.client.get("/v1/admin/dlq?code=BROKEN")
        assert [job["jobId"] for job in dlq.json()["jobs"]] == [failed]
        counted = await lucius.bulk("redrive", {"group": group["group"]}, dry_run=True)
        assert counted["matched"] == 1
        assert (await lucius.bulk("redrive", {"code": "OTHER"}, dry_run=True))["matched"] == 0
        assert (await lucius.bulk("cancel", {"stuck": True}, dry_run=True))["matched"] == 0
        assert (await lucius.bulk("cancel", {"live": True}, dry_run=True))["matched"] == 1
        assert await found(lucius, "stuck=true") == []


@pytest.mark.parametrize("query", ["codes=BROKEN", "groups=1", "live=maybe", "code=", "service="])
async def test_a_filter_that_is_misspelt_or_empty_is_refused(tmp_path: Path, query: str) -> None:
    async with live(tmp_path) as lucius:
        assert (await lucius.client.get(f"/v1/jobs?{query}")).status_code == 422


@pytest.mark.parametrize("given", [{"group": 5}, {"code": []}, {"stuck": "yes"}, {"live": True}])
async def test_a_bulk_filter_that_is_wrong_moves_nothing(tmp_path: Path, given: Any) -> None:
    async with live(tmp_path) as lucius:
        await lucius.failed("one")
        answer = await lucius.post("/v1/jobs:redrive", {"filter": given})
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_BODY")
        assert len(await lucius.dlq()) == 1
