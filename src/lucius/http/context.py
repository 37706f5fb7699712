"""What the API is given: the ports it asks, who may call it, and its limits. Built by bootstrap."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry
from starlette.requests import Request

from lucius import __version__
from lucius.core.routing import TOPOLOGIES
from lucius.http.limits import HostCheck, RateLimit, WaitLimit
from lucius.http.problems import Problem
from lucius.http.tokens import CallbackTokens
from lucius.operations.refusals import Refusals
from lucius.ports.config import ConfigSource
from lucius.ports.diagnosis import Diagnoser
from lucius.ports.engine import Engine
from lucius.ports.failures import FailureGroups
from lucius.ports.redrives import Redrives
from lucius.ports.services import ServiceBook
from lucius.ports.webhooks import FailedWebhooks

# Callers that wait: whoever loses its key or its token meanwhile is answered 401, and gets nothing more.
#
# Requests that do not wait are not slowed down by this. Those that do are looked at once a second.

LOOK_SECONDS: Final = 1.0
Stands = Callable[[], bool]
"""Whether a caller may call still."""


class CallerWatch:
    """Ends the waits of callers that may call no longer."""

    def __init__(self) -> None:
        self._waits: dict[asyncio.Timeout, Stands] = {}

    def look(self) -> None:
        """Now: every wait of a caller that was revoked, or has expired, is over."""
        lost = [wait for wait, stands in self._waits.items() if not stands()]
        for wait in lost:
            if not wait.expired():
                wait.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    @asynccontextmanager
    async def while_it(self, stands: Stands) -> AsyncIterator[None]:
        """What is awaited inside is for a caller, as long as it may call. Raises the 401."""
        wait = asyncio.timeout(None)
        try:
            async with wait:
                self._waits[wait] = stands
                yield
        except TimeoutError:
            if not wait.expired():
                raise
        finally:
            self._waits.pop(wait, None)
        check(stands)


def check(stands: Stands) -> None:
    """Asked once more before anything is handed out."""
    if not stands():
        raise Problem(
            "UNAUTHENTICATED",
            "the key or token of this request was revoked or has expired while it waited",
            headers={"www-authenticate": "Bearer"},
        )


class Role(StrEnum):
    SUBMIT = "submit"
    READ = "read"
    OPERATE = "operate"
    SERVICE = "service"
    ADMIN = "admin"
    MONITOR = "monitor"


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `tenants` is None for a caller that is bound to none and may act for all."""

    name: str
    roles: frozenset[Role]
    tenants: frozenset[str] | None = None
    key_id: str | None = None
    """Of its API key: names of keys may be the same."""
    stands: Stands = field(default=_always, compare=False)
    """Whether it may call still: its key may be revoked, its token expire."""
    ends_at: float | None = field(default=None, compare=False)
    """When its token expires, in seconds since 1970; None: that is not known from the start."""

    @property
    def counted_as(self) -> str:
        """What its requests are counted by."""
        return f"key {self.key_id}" if self.key_id is not None else f"caller {self.name}"

    @property
    def known_as(self) -> str:
        """Who it is in events and notes: its name, and the id of its key if it has one. Never a secret."""
        return f"{self.name} (key {self.key_id})" if self.key_id is not None else self.name

    def may_act_for(self, tenant_id: str) -> bool:
        return self.tenants is None or tenant_id in self.tenants


ANYONE = Caller("anyone", frozenset(Role))
Authenticate = Callable[[Request], Awaitable[Caller]]
HealthCheck = Callable[[], Awaitable[None]]
"""Returns if the dependency is well; raises with a sentence that says what is wrong."""


class PullGateway(Protocol):
    """Hands directives to workers that speak only HTTP."""

    async def admit(self, service: str, tenants: frozenset[str] | None) -> object:
        """RequestError: a worker of these tenants may not pull for this service."""

    async def pull(
        self,
        service: str,
        limit: int,
        wait_seconds: float,
        tenants: frozenset[str] | None,
        gone: Callable[[], Awaitable[object]],
        may: Stands,
    ) -> Sequence[Mapping[str, Any]]:
        """Up to `limit` directives, settled as they are handed out, with `callback_token` and URLs.

        `gone` returns when the worker has hung up: nothing is handed out to it then. `may` is asked
        before anything is handed out: whether the worker may have it still.
        """

    def knows(self, service: str) -> bool:
        """Whether a protocol names the service, or has since this process began."""


@dataclass(frozen=True, slots=True)
class ApiOptions:
    max_body_bytes: int = 1024 * 1024
    keep_alive_seconds: float = 15.0
    """How often a silent event stream says that it is alive."""
    check_seconds: float = 2.0
    """How long a health check may take."""
    docs: bool = True
    root_path: str = ""
    """Under which a proxy serves this to browsers, such as `/lucius`; it begins with a slash or is empty."""
    topology: str = TOPOLOGIES[0]
    """Whose topics new jobs take, for the document of the bus."""
    topic_prefix: str = ""


def _no_settings() -> Mapping[str, Any]:
    return {"version": __version__, "settings": [], "warnings": []}


@dataclass(frozen=True, slots=True)
class ApiContext:
    engine: Engine
    config: ConfigSource
    tokens: CallbackTokens
    checks: Mapping[str, HealthCheck] = field(default_factory=dict)
    registry: CollectorRegistry | None = None
    authenticate: Authenticate | None = None
    """None: authentication is off, and whoever is served may do everything."""
    rate: RateLimit | None = None
    """For each caller, or for each address where callers are not known."""
    worker_rate: RateLimit | None = None
    """For workers: replies by the tenant of their token, the pull gateway by caller or address."""
    waits: WaitLimit | None = None
    """For event streams, long polls and pulls: of each caller, or of each address as above."""
    hosts: HostCheck | None = None
    """None: requests may name any host."""
    refresh: Callable[[Mapping[str, bool]], Awaitable[None]] | None = None
    """Called before each scrape with the dependencies that are up and those that are not."""
    retry_outbox: Callable[[], Awaitable[Mapping[str, object]]] | None = None
    gateway: PullGateway | None = None
    services: ServiceBook | None = None
    refusals: Refusals | None = None
    """What was refused, for whoever asks why."""
    webhooks: FailedWebhooks | None = None
    diagnoser: Diagnoser | None = None
    failures: FailureGroups | None = None
    redrives: Redrives | None = None
    watch: CallerWatch = field(default_factory=CallerWatch)
    warnings: Callable[[], Mapping[str, str]] = dict
    """What is wrong without making the process unready, by part; everyone may read it."""
    settings: Callable[[], Mapping[str, Any]] = _no_settings
    """Those of this process as they are in force, secrets masked."""
    stopping: Callable[[], bool] = lambda: False
    """Whether the process is about to end: no new job is taken then."""
    options: ApiOptions = ApiOptions()
