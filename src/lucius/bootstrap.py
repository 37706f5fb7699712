"""The composition root: the only place that names adapters. It builds a runtime and runs it."""

import asyncio
import base64
import contextlib
import importlib
import logging
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from lucius.api.access import JwtAccess, JwtPolicy, KeyAccess
from lucius.api.app import create_app
from lucius.api.context import ApiContext, ApiOptions, Authenticate
from lucius.api.keys import KeyFile
from lucius.api.tokens import CallbackTokens
from lucius.buses.memory import MemoryBus
from lucius.configs.files import FileConfig
from lucius.core.errors import LuciusError
from lucius.core.inputs import Callback
from lucius.core.routing import directive_topics
from lucius.demo import SERVICES
from lucius.engines.dispatcher import Dispatcher
from lucius.engines.gateway import BusGateway
from lucius.engines.ingress import Ingress
from lucius.engines.metrics import EngineMetrics
from lucius.engines.outbox import OutboxEngine
from lucius.engines.reconciler import EMBEDDED, Reconciler
from lucius.engines.webhooks import Webhooks
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sqlite import SqliteLedger
from lucius.platform import Service, ServiceRunner
from lucius.ports.bus import Bus
from lucius.ports.config import ConfigSource
from lucius.ports.ledger import Ledger
from lucius.ports.workspace import Workspace
from lucius.settings import Settings
from lucius.workspaces.by_scheme import WorkspaceByScheme
from lucius.workspaces.local import LocalWorkspace
from lucius.workspaces.memory import MemoryWorkspace

log = logging.getLogger("lucius")

LEDGER_FILE: Final = "ledger.db"
SLOTS: Final = 64
"""Steps that each embedded service runs at once."""


class UnsupportedError(LuciusError):
    """A backend that this build does not have."""


@dataclass
class Runtime:
    """Everything in one process. Enter `running` to start it; leaving it stops it in order."""

    settings: Settings
    ledger: Ledger
    bus: Bus
    config: ConfigSource
    workspace: Workspace
    services: Sequence[Service] = ()
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        settings = self.settings
        self.tokens = CallbackTokens(callback_keys(settings))
        ingress = Ingress(self.config, settings.ingress_policy())
        self.engine = OutboxEngine(self.ledger, ingress, now=utc_now, limits=ingress.limits)
        self.metrics = EngineMetrics(self.engine, self.registry)
        self.engine.listeners.append(self.metrics.listen)
        self.webhooks = Webhooks(
            webhook_secret(settings),
            hosts=settings.webhook_hosts,
            schemes=settings.webhook_schemes,
            now=utc_now,
        )
        self.dispatcher = Dispatcher(
            self.engine, self.bus, decorate=self._decorate, notify=self.webhooks.notify
        )
        self.reconciler = Reconciler(
            self.engine,
            self.dispatcher,
            self.bus,
            longest_lease=longest_lease(self.config),
            guard=self._guard,
        )
        self.runners = [self._runner(service) for service in self.services]

    def _runner(self, service: Service) -> ServiceRunner:
        return ServiceRunner(
            service,
            self.bus,
            self.workspace,
            slots=SLOTS,
            worker_id=f"{EMBEDDED}{service.name}",
            topics=directive_topics(self.settings.lane_topology),
        )

    def _decorate(self, body: dict[str, Any]) -> dict[str, Any]:
        """What a directive needs to be answered; minted at publish, stored nowhere."""
        base = self.settings.public_url.rstrip("/")
        body["callback_urls"] = {
            kind: f"{base}/v1/callbacks/{kind}"
            for kind in ("ack", "result", "heartbeat", "release")
        }
        body["callback_token"] = self.tokens.mint(
            body["tenant_id"], body["jobId"], body["stepId"], body["attempt_no"], body["lease_id"]
        )
        return body

    def _guard(self, body: Mapping[str, Any], job_id: str, received: Callback) -> str | None:
        """Bus replies are checked when they carry a token, and must carry one where so configured."""
        token = body.get("callback_token")
        if token is None:
            needed = self.settings.require_reply_token
            return "the reply carries no callback token" if needed else None
        bound = (job_id, received.step_id, received.attempt_no, received.lease_id)
        if self.tokens.verify(str(token), *bound) is None:
            return "the callback token is not for this attempt"
        return None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Runtime"]:
        await self.reconciler.prepare()
        background = [
            asyncio.create_task(self.reconciler.run(), name="reconciler"),
            asyncio.create_task(self._refresh_forever(), name="configuration"),
        ]
        for runner in self.runners:
            await runner.start()
        try:
            yield self
        finally:
            for runner in self.runners:
                await runner.stop()
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self.engine.close()
            await self.webhooks.close()
            await self.bus.close()
            await self.ledger.close()

    async def _refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.config_refresh.total_seconds())
            if await self.config.refresh():
                log.info("the configuration has changed: %s", self.config.catalog().version)

    def app(self) -> FastAPI:
        return create_app(
            ApiContext(
                engine=self.engine,
                ledger=self.ledger,
                config=self.config,
                tokens=self.tokens,
                checks={"ledger": self._check_ledger, "bus": self._check_bus},
                registry=self.registry,
                authenticate=authenticator(self.settings),
                backlog=self.metrics.rows,
                gateway=BusGateway(self.bus, self.config, topology=self.settings.lane_topology),
                options=ApiOptions(max_body_bytes=self.settings.max_body_bytes),
            )
        )

    async def _check_ledger(self) -> None:
        await self.ledger.inflight()

    async def _check_bus(self) -> None:
        if not self.dispatcher.available:
            raise LuciusError("the bus does not take directives")


# -- adapters --------------------------------------------------------------------------------


async def build(settings: Settings, services: Sequence[Service] = ()) -> Runtime:
    """A runtime of the adapters that the settings name."""
    config = FileConfig(settings.protocol_paths(), policy=settings.retry_policy())
    return Runtime(
        settings=settings,
        ledger=await open_ledger(settings),
        bus=open_bus(settings),
        config=config,
        workspace=open_workspace(settings),
        services=services,
    )


async def open_ledger(settings: Settings, *, readonly: bool = False) -> Ledger:
    if settings.storage_backend == "memory":
        return MemoryLedger()
    if settings.storage_backend == "sqlite":
        path = ledger_path(settings)
        opened = SqliteLedger.open_readonly(path) if readonly else SqliteLedger.open(path)
        return await opened
    raise UnsupportedError(f"LUCIUS_STORAGE_BACKEND={settings.storage_backend} is not built yet")


def open_bus(settings: Settings) -> Bus:
    if settings.bus_backend == "memory":
        return MemoryBus()
    raise UnsupportedError(f"LUCIUS_BUS_BACKEND={settings.bus_backend} is not built yet")


def open_workspace(settings: Settings) -> Workspace:
    """The scheme of a reference chooses. `file` reaches the workspace and the current directory."""
    root, here = settings.data_dir.absolute() / "workspace", Path.cwd()
    local = LocalWorkspace(root, readable=[here], writable=[here])
    return WorkspaceByScheme({"file": local, "mem": MemoryWorkspace()})


def ledger_path(settings: Settings) -> Path:
    return settings.data_dir / LEDGER_FILE


def authenticator(settings: Settings) -> Authenticate | None:
    if settings.auth == "keys":
        return KeyAccess(KeyFile(settings.data_dir / "keys.json"))
    if settings.auth == "jwt":
        return JwtAccess(
            JwtPolicy(
                issuer=settings.jwt_issuer,
                audience=settings.jwt_audience,
                jwks_url=settings.jwt_jwks_url,
                algorithms=settings.jwt_algorithms,
            )
        )
    return None


def callback_keys(settings: Settings) -> dict[str, bytes]:
    """From the settings, or one that is made once in the data directory."""
    if settings.callback_keys:
        pairs = (entry.split(":", 1) for entry in settings.callback_keys)
        return {key_id: secret.encode() for key_id, secret in pairs}
    return {"k1": made_once(settings.data_dir / "callback.key")}


def webhook_secret(settings: Settings) -> str:
    if settings.webhook_secret:
        return settings.webhook_secret
    return base64.b64encode(made_once(settings.data_dir / "webhook.key")).decode()


def made_once(path: Path) -> bytes:
    """A random secret in a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_hex(32).encode())
            file.flush()
            os.fsync(file.fileno())
    return path.read_bytes()


def longest_lease(config: ConfigSource) -> timedelta:
    policies = [
        step.policy for protocol in config.catalog().protocols.values() for step in protocol.steps
    ]
    return max(max(policy.lease, policy.ack_timeout) for policy in policies)


def demo_services() -> list[Service]:
    return [service() for service in SERVICES]


def named_service(name: str) -> Service:
    """`package.module:Name`, a Service class or instance."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UnsupportedError(f"{name} is not a service: {error}") from error
    made = found() if isinstance(found, type) else found
    if not isinstance(made, Service):
        raise UnsupportedError(f"{name} is not a lucius.platform.Service")
    return made


def utc_now() -> datetime:
    return datetime.now(UTC)
