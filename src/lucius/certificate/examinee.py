"""The service under examination: a process that is started, stopped and killed here, or somebody else's."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from lucius.bootstrap.broker import die_with_parent
from lucius.certificate.exam import NotApplicableError

LOG_LINES: Final = 15


class Examinee(Protocol):
    async def start(self) -> None: ...

    def terminate(self) -> None:
        """Ask it to end in order (SIGTERM)."""

    async def kill(self) -> None:
        """End it at once (SIGKILL). None is fine too."""

    async def ended(self) -> int:
        """Its exit code, once it has ended."""

    def log(self) -> str:
        """The last lines that it wrote."""


class ProcessExaminee:
    """A command in a process group of its own, so that what it starts ends with it."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._words = words
        self._env = env
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._words,
                env=dict(self._env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )

    def terminate(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    async def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def ended(self) -> int:
        assert self._process is not None, "it was started"
        return await self._process.wait()

    def log(self) -> str:
        lines = self._log.read_text("utf-8", "replace").splitlines() if self._log.exists() else []
        return "\n".join(lines[-LOG_LINES:])


class ElsewhereExaminee:
    """A service that somebody else has started and pointed at the gateway."""

    async def start(self) -> None: ...

    def terminate(self) -> None:
        raise _not_ours()

    async def kill(self) -> None: ...

    async def ended(self) -> int:
        """Nobody would know."""
        await asyncio.Event().wait()
        raise AssertionError

    def log(self) -> str:
        return ""


def _not_ours() -> NotApplicableError:
    return NotApplicableError(
        "the service was not started by the certificate, so it cannot be stopped: give MODULE:NAME or"
        " --command"
    )
