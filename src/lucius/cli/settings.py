"""`lucius settings` and `lucius protocols`: what is in force."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lucius.cli.ledger import settings_in_force, settings_of_command, with_data
from lucius.cli.screen import column_widths, printed
from lucius.cli.session import ListByDefault, Session, echo_json, run, with_json, with_server

# `lucius bus provision`: create what the bus needs, with rights that running processes do not have.


@click.group()
def bus() -> None:
    """Create what the bus needs."""


@bus.command()
@with_data
@with_json
def provision(data: Path, as_json: bool) -> None:
    """Create topics, subscriptions and rules on Service Bus.

    Which ones follows from LUCIUS_LANE_TOPOLOGY and from the protocols. Those that exist are changed
    where they differ, and never deleted. A second run changes nothing.
    """
    from lucius.app.provisioning import provision_bus

    changes = list(run(provision_bus(settings_of_command(data))))
    if as_json:
        echo_json({"changes": changes})
        return
    for change in printed(changes):
        click.echo(change)
    many = "1 change" if len(changes) == 1 else f"{len(changes)} changes"
    click.echo(many if changes else "nothing to change")


# `lucius temporal provision`: register what a Temporal namespace needs for jobs to be found in it.


@click.group()
def temporal() -> None:
    """Prepare the Temporal server."""


@temporal.command("provision")
@with_data
@with_json
def temporal_provision(data: Path, as_json: bool) -> None:
    """Register the search attributes of jobs.

    They are LuciusTenant, LuciusRequestType and LuciusState, in LUCIUS_TEMPORAL_NAMESPACE, which must be
    there. A second run changes nothing.
    """
    from lucius.app.temporal import provision_temporal

    added = list(run(provision_temporal(settings_of_command(data))))
    if as_json:
        echo_json({"changes": added})
        return
    for name in printed(added):
        click.echo(f"registered the search attribute {name}")
    if not added:
        click.echo("nothing to change")


@click.command()
@click.option(
    "--server", is_flag=True, help="Those of the running server, not those of this environment."
)
@with_server
def settings(session: Session, server: bool) -> None:
    """Show every setting, its value and its source. Secrets are masked."""
    found = (
        session.call(lambda client: client.settings()) if server else settings_in_force({}).shown()
    )
    session.show(found, _show_settings)


def _show_settings(found: dict[str, Any]) -> None:
    rows = [(each["name"], each["value"], each["source"]) for each in found["settings"]]
    show_table(("variable", "value", "source"), rows)
    for warning in found["warnings"]:
        click.echo(f"lucius: warning: {printed(warning)}", err=True)


@click.group(cls=ListByDefault)
def protocols() -> None:
    """Show the protocols of the server, or check a file."""


@protocols.command("list")
@with_server
def listed(session: Session) -> None:
    """Show the protocols that the server has loaded."""
    session.show(session.call(lambda client: client.protocols()), _show)


@protocols.command("check")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@with_json
def check(file: Path, as_json: bool) -> None:
    """Say whether a file or folder of protocols is valid. No server is asked.

    It may use what the packaged protocols define, as with LUCIUS_PROTOCOLS=packaged,FILE.
    """
    from lucius.adapters.configs.files import PACKAGED, FileConfig
    from lucius.core.errors import ProtocolError

    beside = ""
    try:
        found = FileConfig(file).catalog().protocols
    except ProtocolError as alone:
        try:
            found = FileConfig((PACKAGED, file)).catalog().protocols
        except ProtocolError as both:
            raise min(both, alone, key=lambda each: str(each).count("\n")) from None
        known = FileConfig(PACKAGED).catalog().protocols
        found = {name: each for name, each in found.items() if name not in known}
        beside = f" beside the packaged ones (LUCIUS_PROTOCOLS=packaged,{file})"
    if as_json:
        echo_json({"file": str(file), "request_types": sorted(found)})
        return
    click.echo(f"{file} is valid{beside}: {', '.join(sorted(found)) or 'no protocols'}")


def _show(answer: Any) -> None:
    if answer["warning"]:
        click.echo(f"lucius: warning: {answer['warning']}", err=True)
    rows = [
        (protocol["request_type"], protocol["protocol_id"], _steps(protocol["steps"]))
        for protocol in answer["protocols"]
    ]
    show_table(("request type", "protocol", "steps"), rows)


def show_table(names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """One line a row, below the names of the columns. A cell without text is a dash."""
    cells = [tuple(printed(text) or "-" for text in row) for row in rows]
    widths = column_widths(names, cells)
    for number, row in enumerate((names, *cells)):
        line = "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True))
        click.secho(line.rstrip(), bold=number == 0)


def _steps(steps: Any) -> str:
    """The steps, each with its service where that has another name."""
    return ", ".join(
        step["step_id"]
        if step["service"] == step["step_id"]
        else f"{step['step_id']} ({step['service']})"
        for step in steps
    )
