"""What the tests of upkeep begin with: settings, and one job that has succeeded."""

from pathlib import Path

import pytest

from lucius.app.building import build
from lucius.app.settings import Settings
from lucius.core.job import Job
from tests.services.scripted import Scripted
from tests.upkeep.installation import envelope, settings_in


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
async def job(settings: Settings) -> Job:
    """One job that has succeeded, and whose process has ended."""
    runtime = await build(settings, [Scripted()])
    async with runtime.running():
        submitted = await runtime.engine.submit(envelope(settings))
        ended = await runtime.engine.ended(submitted.job_id, 30)
    assert ended is not None
    assert ended.terminal
    return ended
