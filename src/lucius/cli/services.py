"""`lucius services`, `lucius service pause | resume`: who works, how fast, and what is held back."""

from typing import Any

import click

from lucius.cli.screen import age
from lucius.cli.session import Session, reason_option, with_server
from lucius.cli.settings import show_table


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


def _tell(answer: dict[str, Any], done: str) -> None:
    repeated = " (it already was)" if answer["outcome"] == "already" else ""
    click.echo(f"{answer['service']} {done}{repeated}")
