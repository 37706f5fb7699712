"""The processes of a server: `lucius up`, `orchestrator`, `reconciler`, `invoker`, `worker`."""

import json
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lucius.cli.ledger import settings_for, with_data
from lucius.cli.session import run, with_json

if TYPE_CHECKING:
    from lucius.app.settings import Settings

T = TypeVar("T")

AZURE: Final = "azure"
TEMPORAL: Final = "temporal"
STACKS: Final[dict[str, dict[str, str]]] = {
    "embedded": {},
    "nats": {"LUCIUS_BUS_BACKEND": "nats"},
    AZURE: {},
    TEMPORAL: {},
}
"""The stacks that work, and what each sets; everything else comes from the environment."""
BEFORE_AZURE: Final = {
    "LUCIUS_STORAGE_BACKEND": "sqlite",
    "LUCIUS_BUS_BACKEND": "memory",
    "LUCIUS_CONFIG_SOURCE": "files",
}
"""What is needed to read the other settings before the stand-ins are there."""


def with_address(command: Any) -> Any:
    for option in (
        click.option(
            "--port",
            default=8700,
            show_default=True,
            type=click.IntRange(0, 65535),
            help="Port to listen on; 0 takes one that is free.",
        ),
        click.option(
            "--host", default="127.0.0.1", show_default=True, help="Address to listen on."
        ),
    ):
        command = option(command)
    return command


def with_health(command: Any) -> Any:
    """Where a process without the API answers probes."""
    for option in (
        click.option(
            "--health-port",
            "health",
            type=click.IntRange(0, 65535),
            help="Serve /healthz, /readyz and /metrics on this port.",
        ),
        click.option(
            "--health-host", default="127.0.0.1", show_default=True, help="Where it listens."
        ),
    ):
        command = option(command)
    return command


def with_stack(command: Any) -> Any:
    return click.option(
        "--stack",
        type=click.Choice(list(STACKS)),
        default="embedded",
        show_default=True,
        help="What LUCIUS stands on. nats: the bus is a NATS server, which is started where"
        " LUCIUS_NATS_URL names none. azure: the processes of a deployment, over stand-ins for Azure."
        " temporal: the same, with a Temporal server on which jobs run.",
    )(command)


@click.command()
@with_address
@with_data
@click.option("--no-services", is_flag=True, help="Do not run the packaged services.")
@click.option(
    "--service",
    "named",
    multiple=True,
    metavar="MODULE:NAME",
    help="Also run this service; may be given several times. Its module may be in the current directory.",
)
@with_stack
@click.option(
    "--shared-machine",
    is_flag=True,
    help="Start --stack temporal though other people have accounts here. They can use its Temporal server.",
)
@with_json
def up(
    host: str,
    port: int,
    data: Path,
    no_services: bool,
    named: tuple[str, ...],
    stack: str,
    shared_machine: bool,
    as_json: bool,
) -> None:
    """Run the server: API, reconciler and packaged services.

    With --json its logs are JSON, and one line on standard output says when it is ready.
    """
    from lucius.app.services import named_service, packaged_names
    from lucius.app.stacks import local_nats
    from lucius.app.temporal import check_alone

    if stack in (AZURE, TEMPORAL):
        if stack == TEMPORAL and not shared_machine:
            check_alone()
        up_on_azure(host, port, data, not no_services, named, as_json, stack == TEMPORAL)
        return
    if named:
        search_here()
    broker: AbstractContextManager[dict[str, str]] = (
        local_nats(os.environ, data) if stack == "nats" else nullcontext({})
    )
    with broker as found:
        settings = settings_for(data, **{**STACKS[stack], **found}, **logs(as_json))
        names, note = ([], "") if no_services else if_installed(packaged_names)
        names += named
        services = [named_service(name, settings) for name in names]
        serve(settings, as_json, note, host=host, port=port, services=services, apart=names)


def if_installed(packaged: Callable[[], list[T]]) -> tuple[list[T], str]:
    """The services that come with LUCIUS, or none and the reason: a server can do without them."""
    from lucius.app.adapters import LibrariesMissingError

    try:
        return packaged(), ""
    except LibrariesMissingError as error:
        return [], str(error)


def up_on_azure(
    host: str,
    port: int,
    data: Path,
    packaged: bool,
    named: tuple[str, ...],
    as_json: bool,
    temporal: bool,
) -> None:
    from lucius.app.azure_stack import serve_azure
    from lucius.app.processes import check_address
    from lucius.app.services import packaged_names
    from lucius.app.telemetry import observed

    settings = settings_for(data, **BEFORE_AZURE, **logs(as_json))
    check_address(settings, host)
    services, note = if_installed(packaged_names) if packaged else ([], "")
    with observed(settings):
        warn(note)
        run(
            serve_azure(
                settings,
                host=host,
                port=port,
                services=[*services, *named],
                ready=lambda urls: told(as_json, url=urls[0], urls=urls),
                temporal=temporal,
            )
        )


def search_here() -> None:
    """Let services be imported from the current folder. It is searched last, so it replaces no library."""
    sys.path.append(str(Path.cwd()))


def serve(settings: "Settings", as_json: bool, note: str = "", **how: Any) -> None:
    """`note`: what somebody who starts it should know."""
    from lucius.app import processes as server
    from lucius.app.telemetry import observed

    with observed(settings):
        warn(note)
        run_quickly(server.serve(settings, **how, ready=lambda url: told(as_json, url=url)))


def warn(note: str) -> None:
    if note:
        logging.getLogger("lucius").warning("%s", note)


@click.command()
@with_address
@with_data
@with_json
def orchestrator(host: str, port: int, data: Path, as_json: bool) -> None:
    """Run the API alone, over a shared ledger and bus.

    `lucius reconciler` runs beside it.
    """
    from lucius.app.processes import check_address

    settings = settings_for(data, **logs(as_json))
    check_address(settings, host)
    check_shared(settings, "orchestrator")
    serve(settings, as_json, host=host, port=port, reconciles=False)


@click.command()
@with_health
@with_data
@with_json
def reconciler(data: Path, health_host: str, health: int | None, as_json: bool) -> None:
    """Run what moves jobs by itself, over a shared ledger and bus.

    That is the dispatcher, the sweepers and the consumers of replies. Several share the lanes.
    """
    from lucius.app.processes import reconcile
    from lucius.app.telemetry import observed

    settings = settings_for(data, **logs(as_json))
    check_shared(settings, "reconciler")
    with observed(settings):
        run_quickly(
            reconcile(settings, ready=lambda: told(as_json), health_host=health_host, health=health)
        )


@click.command()
@click.option(
    "--port",
    default=8710,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of the internal API and the probes; 0 takes one that is free.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@with_data
@with_json
def invoker(host: str, port: int, data: Path, as_json: bool) -> None:
    """Run what moves jobs on Temporal, over a shared ledger and bus.

    Its internal API answers workers and orchestrators; probes are on the same port. Several share the lanes.
    """
    from lucius.app.processes import check_invoker_address, check_temporal, invoke
    from lucius.app.telemetry import observed

    settings = settings_for(data, **logs(as_json))
    check_temporal(settings, "invoker")
    check_invoker_address(settings, host)
    check_shared(settings, "invoker")
    with observed(settings):
        run_quickly(
            invoke(settings, host=host, port=port, ready=lambda url: told(as_json, url=url))
        )


@click.group(invoke_without_command=True)
@with_health
@with_data
@with_json
@click.pass_context
def worker(
    ctx: click.Context, data: Path, health_host: str, health: int | None, as_json: bool
) -> None:
    """Run workflows on Temporal, or drop a worker that is gone.

    Without a command it runs. It reaches ledger and bus through LUCIUS_INVOKER_URL alone.
    """
    if ctx.invoked_subcommand is not None:
        return
    from lucius.app.processes import check_temporal, work
    from lucius.app.telemetry import observed

    settings = settings_for(data, **logs(as_json))
    check_temporal(settings, "worker")
    with observed(settings):
        run(work(settings, ready=lambda: told(as_json), health_host=health_host, health=health))


def check_shared(settings: "Settings", verb: str) -> None:
    from lucius.app import processes

    try:
        processes.check_shared(settings, verb)
    except processes.NotSharedError as error:
        raise click.UsageError(str(error)) from None


def logs(as_json: bool) -> dict[str, str]:
    """With --json they are JSON, unless a setting says otherwise."""
    return {"LUCIUS_LOG_FORMAT": os.environ.get("LUCIUS_LOG_FORMAT") or "json"} if as_json else {}


def told(as_json: bool, **about: Any) -> None:
    """Tell a program that started this process with --json that it is ready."""
    if as_json:
        click.echo(json.dumps({**about, "ready": True}))


def run_quickly(work: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop if it is installed, else on asyncio's own loop."""
    from lucius.app.lifecycle import quick_loop, run_to_its_end

    run_to_its_end(work, quick_loop())
