"""`lucius bus provision`: create what the bus needs, with rights that running processes do not have."""

from pathlib import Path

import click

from lucius.cli.ledger import settings_of_command, with_data
from lucius.cli.screen import printed
from lucius.cli.session import echo_json, run, with_json


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
    from lucius.bootstrap.provisioning import provision_bus

    changes = list(run(provision_bus(settings_of_command(data))))
    if as_json:
        echo_json({"changes": changes})
        return
    for change in printed(changes):
        click.echo(change)
    many = "1 change" if len(changes) == 1 else f"{len(changes)} changes"
    click.echo(many if changes else "nothing to change")
