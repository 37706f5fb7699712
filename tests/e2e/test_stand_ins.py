"""A stand-in that ends is started again where it was: the stack goes on."""

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.stacks import client_of, ended, running, submitted
from tests.e2e.test_chaos import PATIENT

pytestmark = pytest.mark.xdist_group("stacks")
STAND_INS = ("standins.service_bus", "standins.app_configuration")


async def test_jobs_go_on_after_the_stand_ins_were_killed(tmp_path: Path) -> None:
    """What the bus loses is found by the ledger's clocks; its topics are made again."""
    with running("azure", tmp_path, **PATIENT) as stack:
        async with client_of(stack) as client:
            slow = {"alpha": {"seconds": 2}}
            job_ids = [await submitted(client, stack.command(n, slow)) for n in range(5)]
            for name in STAND_INS:
                (pid,) = stack.parts(name)
                os.kill(pid, signal.SIGKILL)
            job_ids += [await submitted(client, stack.command(n, {})) for n in range(5, 10)]
            states = {(await ended(client, job_id))["state"] for job_id in job_ids}
        assert states == {"SUCCEEDED"}, stack.log()
