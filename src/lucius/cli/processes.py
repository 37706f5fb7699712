"""The processes: `lucius up`, `lucius orchestrator`, `lucius reconciler`, `lucius service run`."""

import json
import logging
import os
import sys
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lucius.cli.ledger import settings_for, with_data
from lucius.cli.session import run, with_json

if TYPE_CHECKING:
    from lucius.platform import Service
    from lucius.settings import Settings

STACKS: Final[dict[str, dict[str, str]]] = {
    "embedded": {},
    "nats": {"LUCIUS_BUS_BACKEND": "nats"},
    "azure": {
        "LUCIUS_STORAGE_BACKEND": "ledger",
        "LUCIUS_BUS_BACKEND": "servicebus",
        "LUCIUS_CONFIG_SOURCE": "appconfig",
    },
    "temporal": {"LUCIUS_TEMPORAL_ENABLED": "true"},
}
"""What each stack sets; everything else comes from the environment."""


def with_address(command: Any) -> Any:
    for option in (
        click.option("--port", default=8700, show_default=True, type=click.IntRange(0, 65535)),
        click.option("--host", default="127.0.0.1", show_default=True),
    ):
        command = option(command)
    return command


def with_stack(command: Any) -> Any:
    choice = click.Choice(list(STACKS))
    return click.option("--stack", type=choice, default="embedded", show_default=True)(command)


@click.command()
@with_address
@with_data
@click.option("--no-services", is_flag=True, help="Without the packaged services.")
@click.option(
    "--service",
    "named",
    multiple=True,
    metavar="MODULE:NAME",
    help="Also run this service; may be given several times. The current directory is searched last.",
)
@with_stack
@with_json
def up(
    host: str,
    port: int,
    data: Path,
    no_services: bool,
    named: tuple[str, ...],
    stack: str,
    as_json: bool,
) -> None:
    """Run everything in one process: API, reconciler and the packaged services.

    With --json its logs are JSON, and one line on standard output says when it is ready.
    """
    from lucius import bootstrap

    if named:
        search_here()
    broker: AbstractContextManager[dict[str, str]] = (
        bootstrap.local_nats(os.environ, data) if stack == "nats" else nullcontext({})
    )
    with broker as found:
        settings = settings_for(data, **STACKS[stack], **found, **logs(as_json))
        services, note = ([], "") if no_services else packaged(settings)
        services += [bootstrap.named_service(name, settings) for name in named]
        serve(settings, as_json, note, host=host, port=port, services=services)


def packaged(settings: "Settings") -> "tuple[list[Service], str]":
    """The services that come with LUCIUS, or none and the reason: a server can do without them."""
    from lucius import bootstrap

    try:
        return bootstrap.packaged_services(settings), ""
    except bootstrap.LibrariesMissingError as error:
        return [], str(error)


def search_here() -> None:
    """For services alone, and last: nothing in the current folder takes the place of a library."""
    sys.path.append(str(Path.cwd()))


def serve(settings: "Settings", as_json: bool, note: str = "", **how: Any) -> None:
    """`note` is logged first: what somebody who starts it should know."""
    from lucius import bootstrap

    with bootstrap.observed(settings):
        if note:
            logging.getLogger("lucius").warning("%s", note)
        run_quickly(bootstrap.serve(settings, **how, ready=lambda url: told(as_json, url=url)))


@click.command()
@with_address
@with_data
@with_stack
@with_json
def orchestrator(host: str, port: int, data: Path, stack: str, as_json: bool) -> None:
    """Run the API alone, beside `lucius reconciler`, over a shared ledger and bus."""
    from lucius import bootstrap

    settings = settings_for(data, **STACKS[stack], **logs(as_json))
    bootstrap.check_address(settings, host)
    check_shared(settings, "orchestrator")
    serve(settings, as_json, host=host, port=port, reconciles=False)


@click.command()
@with_data
@with_stack
@with_json
def reconciler(data: Path, stack: str, as_json: bool) -> None:
    """Run dispatcher, sweepers and reply consumers alone, over a shared ledger and bus."""
    from lucius import bootstrap

    settings = settings_for(data, **STACKS[stack], **logs(as_json))
    check_shared(settings, "reconciler")
    with bootstrap.observed(settings):
        run_quickly(bootstrap.reconcile(settings, ready=lambda: told(as_json)))


def check_shared(settings: "Settings", verb: str) -> None:
    from lucius import bootstrap

    try:
        bootstrap.check_shared(settings, verb)
    except bootstrap.NotSharedError as error:
        raise click.UsageError(str(error)) from None


def logs(as_json: bool) -> dict[str, str]:
    return {"LUCIUS_LOG_FORMAT": "json"} if as_json else {}


def told(as_json: bool, **about: str) -> None:
    """For a program that started this process and waits for it."""
    if as_json:
        click.echo(json.dumps({**about, "ready": True}))


@click.group()
def service() -> None:
    """Platform services in processes of their own."""


@service.command("run")
@click.argument("name", metavar="MODULE:NAME")
@click.option(
    "--slots",
    default=8,
    show_default=True,
    type=click.IntRange(1),
    help="Steps at once; a process-isolated service runs as many as it has processes.",
)
@with_data
@with_json
def run_service(name: str, slots: int, data: Path, as_json: bool) -> None:
    """Run a platform service until it is stopped; it drains first.

    With --json its logs are JSON, and one line on standard output says when it is ready.
    """
    from lucius import bootstrap

    settings = settings_for(data, **logs(as_json))
    if settings.bus_backend == "memory":
        raise click.ClickException(
            "the memory bus lives inside one process, so a service outside of it receives nothing.\n"
            f"Run it with the server: lucius up --service {name}\n"
            "Or share a bus: set LUCIUS_BUS_BACKEND, for this process and for the server."
        )
    search_here()
    found = bootstrap.named_service(name, settings)
    with bootstrap.observed(settings):
        run_quickly(
            bootstrap.run_service(
                settings, found, slots=slots, ready=lambda: told(as_json, service=found.name)
            )
        )


def run_quickly(work: Coroutine[Any, Any, None]) -> None:
    """On uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        run(work)
    else:
        uvloop.run(work)
