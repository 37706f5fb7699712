"""Every check can fail: for each there is a service that breaks its promise, and only then it says so."""

import asyncio
from pathlib import Path

import pytest

from lucius.certificate.certification import BROKEN, KEPT, Grade
from lucius.certificate.checks import CHECKS
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
