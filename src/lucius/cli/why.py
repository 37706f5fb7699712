"""`lucius why [JOB]`: the cause, its evidence, what comes next, and the command that helps."""

from typing import Any

import click

from lucius.cli.completing import job_ids
from lucius.cli.screen import moment
from lucius.cli.session import Session, with_server

COLOURS = {"OUTAGE": "red", "PROBLEM": "yellow", "WAITS": "cyan", "FINE": "green"}


@click.command()
@click.argument("job_id", metavar="[JOB]", required=False, shell_complete=job_ids)
@with_server
def why(session: Session, job_id: str | None) -> None:
    """Say why a job waits or failed, or what is wrong now.

    Without a job: all that is wrong with the system, worst first.
    """
    if job_id is not None:
        session.show(session.call_job(job_id, lambda client, id_: client.why_job(id_)), _show)
    else:
        session.show(session.call(lambda client: client.why()), _show_all)


def _show_all(answer: dict[str, Any]) -> None:
    if not answer["causes"]:
        click.echo("nothing is wrong")
    for number, cause in enumerate(answer["causes"]):
        click.echo("", nl=bool(number))
        _show(cause)


def _show(found: dict[str, Any]) -> None:
    cause = click.style(found["cause"], fg=COLOURS.get(found["severity"]), bold=True)
    since = f", since {moment(found['since'])}" if found["since"] else ""
    click.echo(f"{cause}  {found['summary']}{since}")
    for each in found["evidence"]:
        click.echo(f"  {moment(each['at'])}  {each['what']}" if each["at"] else f"  {each['what']}")
    if found["next"]["what"]:
        at = f" at {moment(found['next']['at'])}" if found["next"]["at"] else ""
        click.echo(f"{click.style('next', dim=True)}  {found['next']['what']}{at}")
    if found["command"]:
        click.echo(f"{click.style('try', dim=True)}   {found['command']}")
