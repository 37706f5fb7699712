"""The start of a process over storage and a bus that others run: what is away is waited for.

Its port answers from the beginning: alive, not ready. What no waiting helps against ends the process: bad
settings, a ledger that cannot be read, the bus of another deployment.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from lucius.app.adapters import open_config
from lucius.app.settings import Settings
from lucius.core.errors import (
    BusUnavailableError,
    ConfigUnavailableError,
    LedgerCorruptError,
    LedgerUnavailableError,
    LuciusError,
    OtherDeploymentError,
    WorkflowsUnavailableError,
    WorkspaceError,
    WorkspaceRefusedError,
)
from lucius.http.owner import OPEN
from lucius.http.problems import Problem, problem_response
from lucius.http.routing import json_response
from lucius.platform import Service
from lucius.ports.config import Catalog

if TYPE_CHECKING:
    from lucius.client.plain import PlainClient


# Whether any job will reach a service: its step types against the protocols that are in force.

Doers = Mapping[str, Sequence[str]]
"""By step type, the services that protocols name for it."""


def doers_of(pairs: Iterable[tuple[str, str]]) -> Doers:
    """From pairs of step type and service."""
    found: dict[str, list[str]] = {}
    for step_type, service in pairs:
        if service not in found.setdefault(step_type, []):
            found[step_type].append(service)
    return found


def doers_in(catalog: Catalog) -> Doers:
    steps = (step for protocol in catalog.protocols.values() for step in protocol.steps)
    return doers_of((step.step_type, step.service) for step in steps)


def unreached(service: Service, doers: Doers) -> Iterator[str]:
    """Why no job reaches some of its step types, one sentence each."""
    for step_type in service.step_types:
        names = doers.get(step_type)
        if names is None:
            close = get_close_matches(step_type, doers, 1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            yield (
                f"no protocol has the step type {step_type} of the service {service.name}{hint}, so no job"
                " reaches it"
            )
        elif service.name not in names:
            yield (
                f"protocols have {step_type} done by {' or '.join(names)}, not by a service named"
                f" {service.name}, so no job reaches it"
            )


def warn_unreached(services: Iterable[Service], doers: Doers, where: str) -> None:
    """`where` says whose protocols they are, and what to do."""
    for service in services:
        for sentence in unreached(service, doers):
            log.warning("%s: %s", sentence, where)


def here(settings: Settings) -> str:
    if settings.config_source == "appconfig":
        return "add a protocol to App Configuration"
    return f"add a protocol file to LUCIUS_PROTOCOLS, which is {','.join(settings.protocols)}"


async def look_at_settings(settings: Settings, service: Service) -> None:
    """For a process with a bus: the protocols that its own settings name, if they can be read."""
    try:
        config = await open_config(settings)
    except LuciusError as error:
        log.info("step types were not compared with protocols: %s", error)
        return
    where = f"{here(settings)}, unless the server has others than this process"
    warn_unreached([service], doers_in(config.catalog()), where)
    await config.close()


async def look_at_server(server: "PlainClient", service: Service) -> None:
    """For a process over HTTP: the protocols of the server, if the key may read them."""
    from lucius.client import ClientError, ProblemError  # only this process needs the client

    try:
        answer = await server.protocols()
    except ProblemError as error:
        log.info("step types were not compared with the server's protocols: %s", error)
    except ClientError:
        return  # the runner says that the server does not answer
    else:
        steps = [step for protocol in answer["protocols"] for step in protocol["steps"]]
        doers = doers_of((step["step_type"], step["service"]) for step in steps)
        warn_unreached([service], doers, "add a protocol file to the server's LUCIUS_PROTOCOLS")


T = TypeVar("T")
log = logging.getLogger("lucius")
AWAY: Final = (
    BusUnavailableError,
    ConfigUnavailableError,
    LedgerUnavailableError,
    WorkflowsUnavailableError,
    WorkspaceError,
)
FOR_GOOD: Final = (LedgerCorruptError, OtherDeploymentError, WorkspaceRefusedError)
PAUSES: Final = (1.0, 2.0, 5.0, 10.0)
"""Seconds between two attempts; the last one again and again."""


class Starting:
    """What a port serves. Until `app` is set it says that the process is alive, and not ready."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.app or _meanwhile(scope))(scope, receive, send)


def _meanwhile(scope: Scope) -> ASGIApp:
    if scope.get("path") == OPEN:
        return json_response({"status": "ok"})
    return problem_response(
        Problem("NOT_READY", "the process waits for what it needs to start; its log says for what")
    )


async def entered(
    stack: AsyncExitStack,
    make: Callable[[], AbstractAsyncContextManager[T]],
    stopping: asyncio.Event,
) -> T | None:
    """Enter what `make` makes, again and again while something is away. None: told to stop meanwhile."""
    attempts, told = 0, ""
    while not stopping.is_set():
        try:
            return await stack.enter_async_context(make())
        except AWAY as error:
            if isinstance(error, FOR_GOOD):
                raise
            told = _tell(error, told)
        pause = PAUSES[min(attempts, len(PAUSES) - 1)]
        attempts += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await stopping.wait()
    return None


def _tell(error: LuciusError, told: str) -> str:
    """Each reason once, while it stays the same."""
    if str(error) != told:
        log.warning("not ready, and waiting: %s", error)
    return str(error)
