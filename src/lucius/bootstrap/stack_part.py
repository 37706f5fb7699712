"""A process of `lucius up --stack azure`: started, waited for, started again when it ends, stopped."""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from lucius.bootstrap.broker import die_with_parent
from lucius.core.errors import LuciusError

log = logging.getLogger("lucius")

PATIENCE: Final = 120.0
"""Seconds within which a part is ready, on a busy machine too."""
PAUSE: Final = 1.0


class PartMissingError(LuciusError):
    """The stack cannot be started: a part of it is not installed, or does not come up."""


async def _nothing() -> None:
    """Nothing has to be done when it has been started again."""


class Part:
    """A process of the stack. What it says first on standard output says that it is ready, if it `speaks`.

    `again`: what has to be done whenever it has been started again.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        speaks: bool = True,
        again: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self.name = name
        self.said = ""
        self._command = command
        self._environ = environ
        self._speaks = speaks
        self._again = again
        self._process: asyncio.subprocess.Process | None = None
        self._ending = False

    @property
    def is_ours(self) -> bool:
        """A process of LUCIUS, which needs the stand-ins for its end, too."""
        return "lucius" in self._command

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=dict(self._environ),
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process alone: it ends the parts in order
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )
        if self._speaks:
            try:
                async with asyncio.timeout(PATIENCE):
                    self.said = (await self._out.readline()).decode().strip()
            except TimeoutError:
                raise PartMissingError(f"the {self.name} is not ready in {PATIENCE:g} s") from None
            if not self.said:
                raise self._ended()

    def _ended(self) -> PartMissingError:
        return PartMissingError(f"the {self.name} does not start; the lines above say why")

    async def answers(self, act: Callable[[], Awaitable[None]]) -> None:
        """Ask, again and again for as long as it lives, until it answers."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE
        while True:
            try:
                await act()
                return
            except Exception as error:
                if self._process is None or self._process.returncode is not None:
                    raise self._ended() from error
                if loop.time() > give_up_at:
                    raise PartMissingError(f"the {self.name} does not answer: {error}") from error
                await asyncio.sleep(0.1)

    @property
    def _out(self) -> asyncio.StreamReader:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout

    async def keep(self) -> None:
        """Start it again whenever it ends by itself. If it is stopped meanwhile, it stays stopped."""
        while not self._ending and self._process is not None:
            while await self._out.read(65536):
                pass
            status = await self._process.wait()
            if not self._ending:
                log.warning("the %s has ended (%d) and is started again", self.name, status)
                await asyncio.sleep(PAUSE)
            if not self._ending:
                await self._restart()
        await self.stop()

    async def _restart(self) -> None:
        try:
            await self.start()
            await self.answers(self._again)
        except PartMissingError as error:
            log.warning("%s", error)

    async def stop(self) -> None:
        self._ending = True
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()
