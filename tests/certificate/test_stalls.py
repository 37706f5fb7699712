"""A machine that stands still proves nothing: what is broken meanwhile is looked at again."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

from lucius.dev.certificate.certification import BROKEN, KEPT, LOOKS, Certification
from lucius.dev.certificate.checks import CHECKS
from lucius.dev.certificate.exam import BrokenError
from lucius.dev.certificate.examinee import Examined
from lucius.dev.certificate.trial import Trial
from tests.certificate.worker import Defect, InlineLoop, World


def looked(folder: Path, stalled: int, broken: int) -> tuple[str, int]:
    """A check that is broken so often, while the machine stands still so often: outcome, and looks."""
    looks = 0

    async def look(trial: Trial) -> None:
        nonlocal looks
        looks += 1
        if looks <= stalled:
            cast(InlineLoop, asyncio.get_running_loop()).stand_still(2)
        if looks <= broken:
            raise BrokenError("seen")

    async def work() -> str:
        defect = Defect()
        world = World(folder, defect)
        check = replace(CHECKS[0], look=look)
        certification = Certification(
            Examined("shout", "SHOUT"), defect.samples, world.folders, world
        )
        (grade,) = await certification.run([check])
        return grade.outcome

    with asyncio.Runner(loop_factory=InlineLoop) as runner:
        return runner.run(work()), looks


def test_what_broke_while_the_machine_stood_still_gets_another_look(tmp_path: Path) -> None:
    assert looked(tmp_path, stalled=1, broken=1) == (KEPT, 2)


def test_what_broke_while_the_machine_ran_is_broken(tmp_path: Path) -> None:
    assert looked(tmp_path, stalled=0, broken=1) == (BROKEN, 1)


def test_what_stays_broken_is_broken_in_the_end(tmp_path: Path) -> None:
    assert looked(tmp_path, stalled=9, broken=9) == (BROKEN, LOOKS)


def test_a_promise_that_was_kept_gets_no_other_look(tmp_path: Path) -> None:
    assert looked(tmp_path, stalled=1, broken=0) == (KEPT, 1)
