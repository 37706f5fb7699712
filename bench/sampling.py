"""Samples the stacks of a running server with py-spy. Where that is not allowed it says why, and no more."""

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from bench.components import Profile, profile

RATE = 200
"""Samples a second."""


class NotSampledError(Exception):
    """There is no profile; the message is one line that says why."""


async def sample(pid: int, seconds: int, raw: Path) -> Profile:
    """Look at a process for so long. Raises NotSampledError."""
    await _record(_sampler(), pid, seconds, raw)
    return _summed(raw)


def _sampler() -> str:
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = shutil.which("py-spy", path=beside)
    if found is None:
        raise NotSampledError("py-spy is not installed")
    return found


async def _record(sampler: str, pid: int, seconds: int, raw: Path) -> None:
    options = ("-f", "raw", "-o", str(raw), "-p", str(pid), "-d", str(seconds), "-r", str(RATE))
    process = await asyncio.create_subprocess_exec(
        sampler, "record", *options, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    _, said = await process.communicate()
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines()
        raise NotSampledError(lines[0] if lines else f"py-spy ended with {process.returncode}")


def _summed(raw: Path) -> Profile:
    found = profile(raw.read_text().splitlines() if raw.exists() else ())
    if not found.counts:
        raise NotSampledError("nothing ran while the server was sampled")
    return found
