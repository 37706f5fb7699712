"""Every check can fail: for each there is a service that breaks its promise, and only then it says so."""

import asyncio
from pathlib import Path

import pytest

from lucius.dev.certificate.certification import BROKEN, KEPT, SKIPPED, Grade
from lucius.dev.certificate.checks import CHECKS
from lucius.dev.certificate.examinee import Sample, Samples
from tests.certificate.breaking import Constant, Failing, Mixing
from tests.certificate.defects import DEFECTS
from tests.certificate.worker import Defect, InlineLoop, found


def run(folder: Path, defect: Defect, *names: str) -> dict[str, Grade]:
    with asyncio.Runner(loop_factory=InlineLoop) as runner:
        return runner.run(found(folder, defect, *names))


def test_a_service_that_keeps_the_contract_keeps_every_promise(tmp_path: Path) -> None:
    findings = run(tmp_path, Defect())
    assert {name: f.seen for name, f in findings.items() if f.outcome != KEPT} == {}
    assert len(findings) == len(CHECKS) >= 30


def test_there_is_a_broken_service_for_every_check() -> None:
    assert set(DEFECTS) == {check.name for check in CHECKS}


@pytest.mark.parametrize("name", list(DEFECTS))
def test_a_promise_that_is_broken_is_found_and_explained(name: str, tmp_path: Path) -> None:
    words, defect = DEFECTS[name]
    finding = run(tmp_path, defect, name)[name]
    assert finding.outcome == BROKEN
    assert words in finding.seen


def test_a_service_that_mixes_the_documents_of_jobs_is_found(tmp_path: Path) -> None:
    finding = run(tmp_path, Defect(Mixing), "jobs-do-not-mix")["jobs-do-not-mix"]
    assert finding.outcome == BROKEN
    assert "had the same output at once, and others when alone" in finding.seen


def test_a_service_whose_output_never_follows_the_document_mixes_nothing(tmp_path: Path) -> None:
    defect = Defect(Constant, samples=Samples(slow=Sample()))
    assert run(tmp_path, defect, "jobs-do-not-mix")["jobs-do-not-mix"].outcome == KEPT


def test_where_the_sample_fails_nothing_else_is_blamed_and_nobody_waits(tmp_path: Path) -> None:
    findings = run(tmp_path, Defect(Failing))
    assert findings.pop("work-succeeds").outcome == BROKEN
    assert {(each.outcome, each.seen) for each in findings.values()} == {
        (SKIPPED, "work-succeeds comes first, and is broken")
    }


def test_slow_work_that_is_not_slow_is_said_and_proves_nothing(tmp_path: Path) -> None:
    findings = run(tmp_path, Defect(samples=Samples(slow=Sample())))
    assert {each.outcome for each in findings.values()} == {KEPT, SKIPPED}
    skipped = {name for name, each in findings.items() if each.outcome == SKIPPED}
    assert skipped == {
        "no-effect-before-the-end",
        "heartbeats-while-working",
        "stale-lease-commits-nothing",
        "expired-lease-commits-nothing",
        "cancel-is-answered",
    }
    assert "name some that takes 4 s" in findings["heartbeats-while-working"].seen
