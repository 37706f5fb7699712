"""What was at work is found by the next process, however much it was, and a full disk stops no work."""

import os
from pathlib import Path
from typing import Any

import pytest

from lucius.bootstrap.at_work import AtWork
from lucius.platform.directive import Directive, parse_directive


def _directive(number: int) -> Directive:
    return parse_directive(
        {
            "jobId": f"job_{number}",
            "stepId": "ocr",
            "step_type": "OCR",
            "tenant_id": "acme",
            "lease_id": f"lease_{number}",
            "attempt_no": 1,
            "lane": 4,
            "payload": {},
        }
    )


async def test_all_that_was_at_work_is_found_and_what_was_done_is_not(tmp_path: Path) -> None:
    path = tmp_path / "at-work"
    at_work = AtWork(path)
    directives = [_directive(number) for number in range(300)]
    for directive in directives:
        await at_work.begin(directive, "worker")
    for directive in directives[:100]:
        await at_work.finish(directive, {})
    await at_work.forget(directives[100], "worker")
    await at_work.begin(_directive(1000), "worker")  # takes a slot that has become free
    left = AtWork(path)  # the file is as a killed process leaves it: nothing was closed
    found = {each.job_id: each.ack for each in left.left()}
    assert set(found) == {f"job_{number}" for number in (*range(101, 300), 1000)}
    assert found["job_299"].lease_id == "lease_299"
    assert found["job_299"].worker_id == "worker"
    left.clear()
    assert not list(left.left())
    left.close()
    at_work.close()


async def test_after_a_clear_notes_are_written_again(tmp_path: Path) -> None:
    at_work = AtWork(tmp_path / "at-work")
    await at_work.begin(_directive(1), "worker")
    at_work.clear()
    await at_work.begin(_directive(2), "worker")
    assert [each.job_id for each in at_work.left()] == ["job_2"]
    at_work.close()


async def test_a_full_disk_stops_no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    at_work = AtWork(tmp_path / "at-work")
    monkeypatch.setattr(os, "pwrite", full)
    assert (await at_work.begin(_directive(1), "worker")).mine
    await at_work.finish(_directive(1), {})
    assert not list(at_work.left())
    at_work.close()
