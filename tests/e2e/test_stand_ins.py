"""A stand-in that ends is started again where it was. A stack may be told to end while it starts."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.stacks import Stack, client_of, ended, running, submitted
from tests.e2e.test_chaos import PATIENT

pytestmark = pytest.mark.xdist_group("stacks")
PATIENCE = 240.0
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


def test_a_stack_that_is_told_to_end_while_it_starts_starts_no_more(tmp_path: Path) -> None:
    stack = Stack("azure", tmp_path)
    try:
        said, deadline = stack.launch(), time.monotonic() + PATIENCE
        while not stack.parts("azurite"):
            assert time.monotonic() < deadline, stack.log()
            time.sleep(0.05)
        assert stack.stop() == 0, stack.log()
        assert said.readline() == "", "it was never ready"
        assert not (tmp_path / "data" / "orchestrator-1").exists(), "nor was anything else started"
    finally:
        stack.close()
