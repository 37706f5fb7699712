"""What the dependencies say. Anyone may know which one is down; why is for operators and the log."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from starlette.requests import Request

from lucius.core.job import Job
from lucius.http.context import ApiContext, HealthCheck
from lucius.http.problems import offered

OK: Final = "ok"
FAILED: Final = "failed"
SILENT: Final = "no answer in time"
log = logging.getLogger("lucius")


class Said(NamedTuple):
    """`word` is `OK`, `FAILED` or `SILENT`. `text` is for those who may know more."""

    word: str
    text: str


class Readiness:
    def __init__(self, checks: Mapping[str, HealthCheck], seconds: float) -> None:
        self._checks = checks
        self._seconds = seconds
        self._last: dict[str, Said] = {}
        self._asking: asyncio.Task[dict[str, Said]] | None = None

    async def ask(self) -> dict[str, Said]:
        """Every dependency at once. Those who ask meanwhile share the answer: anyone may ask, uncounted."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def up(self) -> dict[str, bool]:
        return {name: each.word == OK for name, each in (await self.ask()).items()}

    async def _ask(self) -> dict[str, Said]:
        """A change of what a dependency says is logged."""
        said = await asyncio.gather(*(self._asked(check) for check in self._checks.values()))
        found = dict(zip(self._checks, said, strict=True))
        for name, now in found.items():
            if now != self._last.get(name, Said(OK, OK)):
                level = logging.INFO if now.word == OK else logging.WARNING
                log.log(level, "the check of %s says: %s", name, now.text)
        self._last = found
        return found

    async def _asked(self, check: HealthCheck) -> Said:
        try:
            async with asyncio.timeout(self._seconds):
                await check()
        except TimeoutError:
            return Said(SILENT, f"no answer within {self._seconds:g} s")
        except Exception as error:
            return Said(FAILED, str(error) or type(error).__name__)
        return Said(OK, OK)


# Which jobs are stuck, and what does not answer: asked of the doctor and of the readiness checks.


async def troubles_of(request: Request) -> dict[str, str]:
    """What does not answer, as `/readyz` finds it."""
    readiness: Readiness = request.app.state.readiness
    return {name: each.text for name, each in (await readiness.ask()).items() if each.word != OK}


async def stuck_among(
    context: ApiContext, request: Request, jobs: Sequence[Job]
) -> Collection[str]:
    """The ids of those that do not go on by themselves."""
    return await offered(context.diagnoser).stuck(jobs, await troubles_of(request))
