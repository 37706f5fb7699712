"""`lucius bus provision`: create what the bus needs, with rights that running processes do not have."""

from pathlib import Path

import click

from lucius.cli.ledger import settings_for, with_data
from lucius.cli.screen import printed
from lucius.cli.session import echo_json, run, with_json


@click.group()
def bus() -> None:
    """Look after the bus."""


@bus.command()
@with_data
@with_json
def provision(data: Path, as_json: bool) -> None:
    """Create the topics, subscriptions and rules of LUCIUS_LANE_TOPOLOGY and the protocols.

    What is there already is changed where it differs, and never deleted. Repeating it changes nothing.
    """
    from lucius import bootstrap

    changes = list(run(bootstrap.provision_bus(settings_for(data))))
    if as_json:
        echo_json({"changes": changes})
        return
    for change in printed(changes):
        click.echo(change)
    click.echo(f"{len(changes)} changes" if changes else "nothing to change")
