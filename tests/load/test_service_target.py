"""A load for one service: real executions of the kit, in virtual time."""

import asyncio
from pathlib import Path

from lucius.dev.certificate.certification import Certification
from lucius.dev.certificate.examinee import Examined
from lucius.dev.load import Driver, LoadPlan, LoadTally
from lucius.dev.load_targets import DIRECTIVE_FAILURES, ServiceTarget
from tests.certificate.worker import Defect, InlineLoop, World


def driven(folder: Path, defect: Defect, plan: LoadPlan) -> LoadTally:
    async def work() -> LoadTally:
        world = World(folder, defect)
        examined = Examined("shout", "SHOUT")
        certification = Certification(examined, defect.samples, world.folders, world)
        async with certification.trial() as trial:
            driver = Driver(ServiceTarget(trial), plan)
            await driver.run()
            return driver.tally

    with asyncio.Runner(loop_factory=InlineLoop) as runner:
        return runner.run(work())


def test_a_service_is_driven_with_directives_of_every_kind(tmp_path: Path) -> None:
    mix = dict.fromkeys(DIRECTIVE_FAILURES, 0.25)
    tally = driven(tmp_path, Defect(), LoadPlan(concurrency=3, jobs=60, failures=mix))
    assert (tally.ended, tally.errors) == (60, {})
    assert tally.succeeded
    assert tally.as_meant
