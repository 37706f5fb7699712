"""The records of begun and finished work, in memory and in a workspace."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lucius.platform import MemoryRecords, Records, WorkspaceRecords
from lucius.platform.directive import Directive, parse_directive
from lucius.platform.records import MINE, OTHERS, Begun
from lucius.workspaces.memory import MemoryWorkspace
from tests.virtual import VirtualLoop, run_virtually

Story = Callable[[Records, Directive], Awaitable[None]]
RESULT = {"status": "SUCCEEDED", "output_ref": "mem://x"}


def _directive(attempt_no: int = 1) -> Directive:
    return parse_directive(
        {
            "jobId": "job_1",
            "stepId": "ocr",
            "tenant_id": "tenant_a",
            "step_type": "OCR",
            "attempt_no": attempt_no,
            "lease_id": f"lease_{attempt_no}",
            "workspace_ref": "mem://job_1/",
            "lane": 4,
            "lease_seconds": 60.0,
        }
    )


@pytest.fixture(params=["memory", "workspace"])
def tell(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    def told(story: Story) -> None:
        async def main(loop: VirtualLoop) -> None:
            in_workspace = WorkspaceRecords(MemoryWorkspace(), clock=loop.time)
            records = MemoryRecords() if request.param == "memory" else in_workspace
            await story(records, _directive())

        run_virtually(main)

    return told


Tell = Callable[[Story], None]


def test_work_is_taken_once(tell: Tell) -> None:
    async def story(records: Records, directive: Directive) -> None:
        assert await records.begin(directive, "a") == MINE
        assert await records.begin(directive, "b") == OTHERS
        assert await records.begin(_directive(2), "b") == MINE, "another attempt is other work"

    tell(story)


def test_of_many_takers_one_wins(tell: Tell) -> None:
    async def story(records: Records, directive: Directive) -> None:
        takers = (records.begin(directive, f"owner {n}") for n in range(8))
        assert (await asyncio.gather(*takers)).count(MINE) == 1

    tell(story)


def test_finished_work_gives_its_result(tell: Tell) -> None:
    async def story(records: Records, directive: Directive) -> None:
        await records.begin(directive, "a")
        await records.finish(directive, RESULT)
        assert await records.begin(directive, "b") == Begun(False, RESULT)

    tell(story)


def test_work_of_an_owner_whose_lease_ran_out_is_taken_over(tell: Tell) -> None:
    async def story(records: Records, directive: Directive) -> None:
        await records.begin(directive, "a")
        await asyncio.sleep(61)
        assert await records.begin(directive, "b") == MINE
        assert await records.begin(directive, "c") == OTHERS

    tell(story)


def test_an_owner_that_renews_keeps_its_work(tell: Tell) -> None:
    async def story(records: Records, directive: Directive) -> None:
        await records.begin(directive, "a")
        for _ in range(3):
            await asyncio.sleep(40)
            await records.renew(directive, "a")
        assert await records.begin(directive, "b") == OTHERS

    tell(story)


def test_work_that_was_given_back_can_be_taken(tell: Tell) -> None:
    async def story(records: Records, directive: Directive) -> None:
        await records.begin(directive, "a")
        await records.forget(directive, "a")
        assert await records.begin(directive, "b") == MINE

    tell(story)


def test_a_restarted_worker_takes_up_its_predecessors_work() -> None:
    async def main(loop: VirtualLoop) -> None:
        workspace = MemoryWorkspace()
        await WorkspaceRecords(workspace, loop.time).begin(_directive(), "worker-0")
        restarted = WorkspaceRecords(workspace, loop.time)
        assert await restarted.begin(_directive(), "worker-1") == OTHERS
        assert await restarted.begin(_directive(), "worker-0") == MINE
        assert await restarted.begin(_directive(), "worker-0") == OTHERS, "it is running here"

    run_virtually(main)


def test_memory_forgets_the_oldest_results_and_no_more() -> None:
    async def main(loop: VirtualLoop) -> None:
        records = MemoryRecords(kept=2)
        for attempt in (1, 2, 3):
            await records.begin(_directive(attempt), "a")
            await records.finish(_directive(attempt), RESULT)
        assert await records.begin(_directive(1), "a") == MINE
        assert await records.begin(_directive(3), "a") == Begun(False, RESULT)

    run_virtually(main)
