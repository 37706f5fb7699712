"""`lucius service`: a platform service in a process of its own."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.ledger import settings_beside, settings_for, with_data
from lucius.cli.processes import logs, run_quickly, search_here, told, with_health
from lucius.cli.screen import age
from lucius.cli.session import (
    Session,
    echo_json,
    reason_option,
    with_api_key,
    with_json,
    with_server,
)
from lucius.cli.settings import show_table

if TYPE_CHECKING:
    from lucius.platform.chaos import Chaos


# `lucius services`, `lucius service pause | resume`: who works, how fast, and what is held back.


@click.command()
@click.option("--workers", is_flag=True, help="List the workers of each service too.")
@with_server
def services(session: Session, workers: bool) -> None:
    """List services: workers, what waits and runs, pace, failures."""
    answer = session.call(lambda client: client.services())
    session.show(answer, lambda shown: _show(shown, workers=workers))


def _show(answer: dict[str, Any], *, workers: bool) -> None:
    names = (
        "service",
        "state",
        "workers",
        "seen",
        "waiting",
        "running",
        "per min",
        "failed",
        "steps",
    )
    show_table(names, [_row(service) for service in answer["services"]])
    for service in answer["services"] if workers else ():
        for each in service["workers"]:
            slots = f"{each['running']}/{each['slots']}" if each["slots"] else f"{each['running']}"
            version = f", version {each['version']}" if each["version"] else ""
            seen = f"seen {age(each['last_seen'])} ago"
            click.echo(
                f"{service['service']}: {each['worker_id']}: {slots} at work, {seen}{version}"
            )


def _row(service: dict[str, Any]) -> tuple[str, ...]:
    return (
        service["service"],
        _state(service),
        str(len(service["workers"])),
        f"{age(service['last_seen'])} ago" if service["last_seen"] else "never",
        _number(service["waiting"]),
        _number(service["running"]),
        _number(service["rate_per_minute"]),
        f"{service['failure_rate']:.0%}" if service["failure_rate"] is not None else "-",
        ", ".join(service["step_types"]),
    )


def _state(service: dict[str, Any]) -> str:
    if service["paused"] is not None:
        return "paused"
    if not service["subscribed"]:
        return "not subscribed"
    if service["refused_at"] is not None:
        return "BAD_TOKEN"
    if service.get("here"):
        return "runs here"
    return "never seen" if service["last_seen"] is None else "seen"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


@click.command("pause")
@click.argument("name")
@reason_option
@with_server
def pause_service(session: Session, name: str, reason: str | None) -> None:
    """Release nothing to a service until it is resumed. What it has may go on."""
    answer = session.call(lambda client: client.pause_service(name, reason=reason))
    session.show(answer, lambda shown: _tell(shown, "paused"))


@click.command("resume")
@click.argument("name")
@with_server
def resume_service(session: Session, name: str) -> None:
    """Release to a service again what was held back."""
    answer = session.call(lambda client: client.resume_service(name))
    session.show(answer, lambda shown: _tell(shown, "resumed"))


@click.command("drop")
@click.argument("worker_id", metavar="WORKER")
@reason_option
@with_server
def drop_worker(session: Session, worker_id: str, reason: str | None) -> None:
    """Take back what a dead worker has in hand.

    Its steps are tried again at once. `lucius services --workers` lists workers. One that lives after all
    changes nothing any more.
    """
    answer = session.call(lambda client: client.drop_worker(worker_id, reason=reason))
    session.show(answer, _show_dropped)


def _show_dropped(answer: dict[str, Any]) -> None:
    jobs = "1 job is" if answer["dropped"] == 1 else f"{answer['dropped']} jobs are"
    click.echo(f"{answer['worker_id']} is dropped: {jobs} tried again")


def _tell(answer: dict[str, Any], done: str) -> None:
    repeated = " (it already was)" if answer["outcome"] == "already" else ""
    click.echo(f"{answer['service']} {done}{repeated}")


class ChaosWords(click.ParamType["Chaos"]):
    """Faults such as drop=0.01,delay=2s."""

    name = "faults"

    def convert(self, value: Any, param: Any, ctx: Any) -> "Chaos":
        from lucius.platform.chaos import ChaosError, parse_chaos

        try:
            return parse_chaos(str(value))
        except ChaosError as error:
            self.fail(str(error), param, ctx)


@click.group()
def service() -> None:
    """Write a platform service, run it, pause or resume it."""


@service.command("new")
@click.argument("folder", metavar="NAME", type=click.Path(path_type=Path))
@click.option("--step-type", required=True, help="What the service executes, such as PAGE_COUNT.")
@with_json
def new_service(folder: Path, step_type: str, as_json: bool) -> None:
    """Write a project for a service, to be forked.

    It makes a folder NAME with the service, its tests, a protocol file, a container file and Helm
    values. The project passes its own tests as it is.
    """
    from lucius.dev.scaffold import write_project

    written = write_project(folder, step_type)
    if as_json:
        echo_json({"folder": str(folder), "files": [str(path) for path in written]})
        return
    for path in written:
        click.echo(path)
    click.echo(f"\nNow: cd {folder}, and follow README.md")


@service.command("run")
@click.argument("name", metavar="MODULE:NAME")
@click.option(
    "--slots",
    default=8,
    show_default=True,
    type=click.IntRange(1, 65_536),
    help="How many steps run at once. A process-isolated service has its own number of processes.",
)
@click.option(
    "--url",
    metavar="URL",
    help="Pull directives from this server over HTTP, instead of the bus of the settings.",
)
@with_api_key("API key for --url, with the role service.")
@click.option(
    "--mode",
    type=click.Choice(["DEFAULT", "BURST"], case_sensitive=False),
    help="Serve only this mode. Needs a bus with LUCIUS_LANE_TOPOLOGY=filtered.  [default: both]",
)
@click.option(
    "--pool",
    metavar="POOL",
    help="Serve only the tenants that have this pool for the service, by their configuration.",
)
@click.option(
    "--chaos",
    type=ChaosWords(),
    metavar="FAULTS",
    help="Break on purpose, for tests: drop=0.01,delay=2s,crash=0.001,duplicate=0.05,seed=7.",
)
@with_health
@with_data
@with_json
def run_service(
    name: str,
    slots: int,
    url: str | None,
    api_key: str | None,
    mode: str | None,
    pool: str | None,
    chaos: "Chaos | None",
    data: Path,
    health_host: str,
    health: int | None,
    as_json: bool,
) -> None:
    """Run a platform service until it is stopped.

    With --url it works for any server, such as a plain `lucius up`. Without, it takes directives from
    the bus that LUCIUS_BUS_BACKEND names.

    On SIGTERM it takes no more steps, and those that run may finish for LUCIUS_DRAIN_SECONDS.

    With --json its logs are JSON, and one line on standard output says when it is ready.
    """
    from lucius.app import standalone
    from lucius.app.services import named_service
    from lucius.app.telemetry import observed
    from lucius.client.plain import PlainClient
    from lucius.core.plan import Mode

    settings = settings_beside(data, **logs(as_json))
    if url is None and settings.bus_backend == "memory":
        raise click.ClickException(
            "the memory bus lives inside one process, so a service outside of it receives nothing.\n"
            f"Run it over HTTP: lucius service run {name} --url http://127.0.0.1:8700\n"
            f"Or with the server: lucius up --service {name}\n"
            "Or share a bus: set LUCIUS_BUS_BACKEND, for this process and for the server."
        )
    if url is not None and mode is not None:
        raise click.UsageError("--mode is for a bus: a server hands out both modes over --url")
    if url is not None and pool is not None:
        raise click.UsageError(
            "--pool is for a bus: over --url the tenants of the key say the pool"
        )
    search_here()
    found = named_service(name, settings)
    with observed(settings):
        run_quickly(
            standalone.run_service(
                settings,
                found,
                slots=slots,
                ready=lambda: told(as_json, service=found.name),
                health_host=health_host,
                health=health,
                mode=Mode(mode) if mode else None,
                pool=pool,
                gateway=partial(PlainClient, url, api_key=api_key, retries=0) if url else None,
                chaos=chaos,
            )
        )


@service.command("schema")
@click.argument("name", metavar="MODULE:NAME")
@with_data
@with_json
def service_schema(name: str, data: Path, as_json: bool) -> None:
    """Print the JSON schema of a service's payload.

    It is what a protocol file has under the step type. There is only JSON to print.
    """
    from lucius.app.services import named_service
    from lucius.platform import payload_schema

    search_here()
    found = named_service(name, settings_for(data))
    click.echo(json.dumps(payload_schema(found.payload_model), indent=2))
