"""Exactly-once effects. Beside each guard, the same story with the guard taken out."""

import asyncio
from collections.abc import Mapping
from unittest.mock import patch

import pytest

from lucius.core.errors import BusUnavailableError, WorkspaceError
from lucius.platform import CommitRecord, Commits, FatalError, Output, Task
from lucius.platform.commit import record_uri
from lucius.platform.errors import LeaseExpiredError
from lucius.platform.lease import Lease
from lucius.platform.messages import Directive, parse_directive
from lucius.platform.records import MemoryRecords
from lucius.platform.task import SMALL, Staged
from tests.platform.bench import Bench, Writer, kill, on_the_bench

PROMOTED = "mem://lucius/tenant_a/job_1/ocr/output.txt"


class RecordAlone(Commits):
    """As on a storage that has no better way: nothing is promoted together with the record."""

    async def commit(
        self, directive: Directive, worker_id: str, output: Output, staged: Mapping[str, Staged]
    ) -> tuple[CommitRecord, int]:
        record = self._proposal(directive, worker_id, output, tuple(staged.values()))
        assert await self._workspace.create(record_uri(directive), record.encoded())
        return record, 0


class DiesBeforePromotion(RecordAlone):
    async def promote(self, directive: Directive, record: CommitRecord, filled: int = 0) -> None:
        await asyncio.Event().wait()


class LargeWriter(Writer):
    async def execute(self, task: Task) -> Output | None:
        await task.stage("output.txt", "x" * (SMALL + 1))
        return None


@on_the_bench
async def test_a_first_attempt_under_a_second_lease_meets_the_record_and_has_no_effect(
    bench: Bench,
) -> None:
    """Its worker died before the RESULT, and the lease was ended without a charge."""
    await bench.runner(Writer())
    await bench.send(1)
    lost = await bench.result(1)
    await bench.send(1, lease_id="another")
    results = await bench.replies("RESULT", 2)
    assert [each["lease_id"] for each in results] == [lost["lease_id"], "another"]
    assert results[1]["output_ref"] == lost["output_ref"]
    assert bench.workspace.effects(PROMOTED) == [b"by attempt 1"]


@on_the_bench
async def test_a_first_attempt_that_fails_under_a_second_lease_reports_what_was_committed(
    bench: Bench,
) -> None:
    class OnceOnly(Writer):
        async def execute(self, task: Task) -> Output | None:
            if self.begun:
                raise FatalError("the input is gone", code="INPUT_MISSING")
            return await super().execute(task)

    await bench.runner(OnceOnly())
    await bench.send(1)
    lost = await bench.result(1)
    await bench.send(1, lease_id="another")
    _, again = await bench.replies("RESULT", 2)
    assert (again["status"], again["output_ref"]) == ("SUCCEEDED", lost["output_ref"])


@on_the_bench
async def test_a_first_attempt_that_has_lost_its_lease_puts_nothing_anywhere(bench: Bench) -> None:
    """Another attempt has succeeded, and the client has taken its output away."""
    await bench.runner(Writer())
    await bench.send(2)
    await bench.result()
    del bench.workspace.objects[PROMOTED]

    async def fails() -> tuple[CommitRecord, int]:
        raise LeaseExpiredError("the lease ran out")

    late, commits = parse_directive(bench.directive(1)), Commits(bench.workspace)
    with pytest.raises(LeaseExpiredError):
        await commits.once(late, fails, lambda: False)
    assert PROMOTED not in bench.workspace.objects
    await commits.once(late, fails, lambda: True)
    assert PROMOTED in bench.workspace.objects, (
        "the record is there, and counts while the lease stands"
    )


async def _outlives_its_lease(bench: Bench) -> dict[str, object]:
    """The bus is away for longer than the lease, so no heartbeat gets through."""
    await bench.runner(Writer(60))
    await bench.send(1, lease_seconds=30.0)
    await bench.replies("ACK")
    bench.bus.fail_with(BusUnavailableError("away"))
    await asyncio.sleep(70)
    bench.bus.fail_with(None)
    return await bench.result()


@on_the_bench
async def test_nothing_is_committed_under_an_expired_lease(bench: Bench) -> None:
    result = await _outlives_its_lease(bench)
    assert result["status"] == "FAILED_RETRY"
    assert result["error"]["code"] == "LEASE_EXPIRED"  # type: ignore[index]
    assert bench.workspace.effects(PROMOTED) == []


@on_the_bench
async def test_without_the_check_of_the_lease_a_zombie_commits(bench: Bench) -> None:
    with patch.object(Lease, "check", lambda self: None):
        result = await _outlives_its_lease(bench)
    assert result["status"] == "SUCCEEDED"
    assert bench.workspace.effects(PROMOTED) == [b"by attempt 1"]


@on_the_bench
async def test_an_expired_lease_still_reports_what_another_committed(bench: Bench) -> None:
    await bench.runner(Writer())
    await bench.send(1)
    await bench.result(1)
    with patch.object(Lease, "check", side_effect=AssertionError("not asked")):
        await bench.send(2)
        assert (await bench.result(2))["status"] == "SUCCEEDED"


@on_the_bench
async def test_a_redriven_job_meets_the_record_of_the_job_it_came_from(bench: Bench) -> None:
    writer = Writer()
    await bench.runner(writer)
    first = await bench.send(1)
    await bench.result(1)
    await bench.send(1, jobId="job_2", effect_key=first["effect_key"])
    result = await bench.result(2)
    assert writer.begun == [1]
    assert (result["jobId"], result["output_ref"]["uri"]) == ("job_2", PROMOTED)


@on_the_bench
async def test_another_input_or_payload_is_another_effect(bench: Bench) -> None:
    writer = Writer()
    await bench.runner(writer)
    await bench.send(1)
    await bench.result(1)
    await bench.send(2, effect_key="job_1:ocr:other")
    await bench.result(2)
    assert writer.begun == [1, 2]


@on_the_bench
async def test_a_committed_output_that_is_gone_fails_for_good(bench: Bench) -> None:
    runner = await bench.runner(LargeWriter(), commits=DiesBeforePromotion(bench.workspace))
    body = await bench.send(1)
    await asyncio.sleep(1)
    await kill(runner)
    bench.workspace.objects[parse_directive(body).staging + "output.txt"] = b"other bytes"
    await bench.runner(Writer())
    await bench.send(2)
    result = await bench.result()
    assert result["status"] == "FAILED_FINAL"
    assert result["error"]["code"] == "COMMITTED_OUTPUT_LOST"


@on_the_bench
async def test_a_promotion_that_failed_is_finished_by_the_next_attempt(bench: Bench) -> None:
    class Full(RecordAlone):
        async def promote(
            self, directive: Directive, record: CommitRecord, filled: int = 0
        ) -> None:
            raise WorkspaceError("the disk is full")

    writer = Writer()
    await bench.runner(writer, subscription="first", commits=Full(bench.workspace))
    await bench.send(1)
    failed = await bench.result(1)
    assert failed["error"]["code"] == "WORKSPACE_UNAVAILABLE"
    await bench.runner(writer, subscription="second", records=MemoryRecords())
    await bench.send(2)
    results = {body["status"] for body in await bench.replies("RESULT", 3)}
    assert results == {"FAILED_RETRY", "SUCCEEDED"}
    assert writer.begun == [1]
    assert bench.workspace.effects(PROMOTED) == [b"by attempt 1"]


@on_the_bench
async def test_the_last_output_also_goes_where_the_client_wants_it(bench: Bench) -> None:
    await bench.runner(Writer())
    await bench.send(1, final_step=True, output_ref={"uri": "mem://client/out.txt"})
    result = await bench.result(1)
    assert result["output_ref"]["uri"] == "mem://client/out.txt"
    assert bench.workspace.effects("mem://client/out.txt") == [b"by attempt 1"]
    assert bench.workspace.effects(PROMOTED) == [b"by attempt 1"]
