"""`lucius settings` and `lucius protocols`: what is in force."""

from typing import Any

import click

from lucius.cli.session import Session, console, echo_json, with_json, with_server


@click.command()
@with_json
def settings(as_json: bool) -> None:
    """Show every setting, its value, and where it came from; secrets are masked."""
    from lucius.settings import load_settings

    found = load_settings()
    lines = list(found.lines())
    if as_json:
        rows = [line._asdict() for line in lines]
        echo_json({"settings": rows, "warnings": list(found.warnings)})
        return
    width = max(len(line.name) for line in lines)
    for line in lines:
        click.echo(f"{line.name:<{width}}  {line.value}  ({line.source})")
    for warning in found.warnings:
        click.echo(warning, err=True)


@click.command()
@with_server
def protocols(session: Session) -> None:
    """Show the protocols that the server has loaded."""
    session.show(session.call(lambda client: client.protocols()), _show)


def _show(answer: Any) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("request type", "protocol", "steps"):
        table.add_column(name)
    for protocol in answer["protocols"]:
        steps = ", ".join(f"{step['step_id']} ({step['service']})" for step in protocol["steps"])
        table.add_row(*map(escape, (protocol["request_type"], protocol["protocol_id"], steps)))
    console().print(table)
