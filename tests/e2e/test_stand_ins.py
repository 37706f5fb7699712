"""A stand-in that ends is started again where it was. A stack may be told to end while it starts."""

import time
from pathlib import Path

import pytest

from tests.e2e.stacks import Stack

pytestmark = pytest.mark.xdist_group("stacks")
PATIENCE = 240.0


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
