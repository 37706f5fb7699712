"""`lucius temporal provision`: register what a Temporal namespace needs for jobs to be found in it."""

from pathlib import Path

import click

from lucius.cli.ledger import settings_of_command, with_data
from lucius.cli.screen import printed
from lucius.cli.session import echo_json, run, with_json


@click.group()
def temporal() -> None:
    """Prepare the Temporal server."""


@temporal.command()
@with_data
@with_json
def provision(data: Path, as_json: bool) -> None:
    """Register the search attributes of jobs in LUCIUS_TEMPORAL_NAMESPACE.

    They are LuciusTenant, LuciusRequestType and LuciusState. The namespace must be there. A second run
    changes nothing.
    """
    from lucius.bootstrap.temporal import provision_temporal

    added = list(run(provision_temporal(settings_of_command(data))))
    if as_json:
        echo_json({"changes": added})
        return
    for name in printed(added):
        click.echo(f"registered the search attribute {name}")
    if not added:
        click.echo("nothing to change")
