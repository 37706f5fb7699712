"""The bare workflow is what jobs on Temporal are measured against: three activities and six signals."""

import pytest

from bench.temporal import bare
from tests.temporal.server import shared_server

pytestmark = pytest.mark.xdist_group("temporal")


async def test_a_bare_job_has_three_activities_and_six_signals() -> None:
    server = shared_server()
    numbers = await bare(await server.client(), server, jobs=2, in_flight=1)
    assert (numbers["activities_per_job"], numbers["signals_per_job"]) == (3, 6)
    assert numbers["jobs_per_s"] > 0
