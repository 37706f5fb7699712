"""A process with the threads of Temporal's library ends before the interpreter is taken down around them."""

import subprocess
import sys

import pytest

SCRIPT = """
import atexit, os, sys, types


class Late:
    def __del__(self, write=os.write):
        write(1, b"taken down ")


if "loaded" in sys.argv:
    sys.modules["temporalio.bridge.temporal_sdk_bridge"] = types.ModuleType("bridge")
late = Late()
atexit.register(print, "at its end", end=" ")
sys.argv = ["lucius", "no-such-command"]
from lucius.cli.main import main

main()
"""


@pytest.mark.parametrize(
    ("words", "said"), [((), "at its end taken down "), (("loaded",), "at its end ")]
)
def test_what_is_due_at_the_end_is_done_and_the_exit_code_stays(
    words: tuple[str, ...], said: str
) -> None:
    command = [sys.executable, "-c", SCRIPT, *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, said)
    assert "no-such-command" in ended.stderr
