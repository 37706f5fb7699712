"""`lucius dlq`: jobs that failed, until they are redriven or dismissed."""

from typing import TYPE_CHECKING, Any

import click

from lucius.cli.groups import ListByDefault
from lucius.cli.jobs import filter_options, first_found, query_of, show_page
from lucius.cli.session import Session, with_server

if TYPE_CHECKING:
    from lucius.api.shapes import JobShape, RedrivenShape
    from lucius.client import Client


@click.group(cls=ListByDefault)
def dlq() -> None:
    """Jobs that failed: list, redrive or dismiss them."""


@dlq.command("list")
@filter_options
@with_server
def listed(session: Session, **filters: Any) -> None:
    """List failed jobs, newest first."""
    page = session.call(lambda client: first_found(client.dlq, query_of(filters)))
    session.show(page, show_page)


@dlq.command()
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True)
@with_server
def dismiss(session: Session, job_ids: tuple[str, ...]) -> None:
    """Take jobs out of this view; they stay as they are."""

    async def ask(client: "Client") -> "list[JobShape]":
        return [await client.dismiss(job_id) for job_id in job_ids]

    session.show({"jobs": session.call(ask)}, _show_dismissed)


def _show_dismissed(answer: Any) -> None:
    for job in answer["jobs"]:
        click.echo(f"{job['jobId']} dismissed")


@dlq.command()
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True)
@with_server
def redrive(session: Session, job_ids: tuple[str, ...]) -> None:
    """Run failed jobs again from the failed step on, as new jobs."""

    async def ask(client: "Client") -> "list[RedrivenShape]":
        return [await client.redrive(job_id) for job_id in job_ids]

    session.show({"jobs": session.call(ask)}, _show_redriven)


def _show_redriven(answer: Any) -> None:
    for job in answer["jobs"]:
        click.echo(f"{job['redrive_of']} redriven as {job['jobId']}")
