"""Which jobs are stuck, and what does not answer: asked of the doctor and of the readiness checks."""

from collections.abc import Collection, Sequence

from starlette.requests import Request

from lucius.api.context import ApiContext
from lucius.api.problems import offered
from lucius.api.readiness import OK, Readiness
from lucius.core.job import Job


async def troubles_of(request: Request) -> dict[str, str]:
    """What does not answer, as `/readyz` finds it."""
    readiness: Readiness = request.app.state.readiness
    return {name: each.text for name, each in (await readiness.ask()).items() if each.word != OK}


async def stuck_among(
    context: ApiContext, request: Request, jobs: Sequence[Job]
) -> Collection[str]:
    """The ids of those that do not go on by themselves."""
    return await offered(context.doctor).stuck(jobs, await troubles_of(request))
