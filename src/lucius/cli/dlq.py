"""`lucius dlq`: jobs that failed, until they are redriven or dismissed."""

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lucius.cli import completing
from lucius.cli.groups import ListByDefault
from lucius.cli.ids import whole_id
from lucius.cli.jobs import filter_options, first_found, query_of, show_page
from lucius.cli.session import Session, echo_json, reason_option, with_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lucius.client.plain import PlainClient

    Line = Callable[[Any], str]


@click.group(cls=ListByDefault)
def dlq() -> None:
    """List failed jobs; redrive or dismiss them."""


@dlq.command("list")
@filter_options
@with_server
def listed(session: Session, **filters: Any) -> None:
    """List failed jobs, newest first."""
    page = session.call(lambda client: first_found(client.dlq, query_of(filters)))
    session.show(page, show_page)


@dlq.command()
@click.argument(
    "job_ids", metavar="JOB...", nargs=-1, required=True, shell_complete=completing.job_ids
)
@reason_option
@with_server
def dismiss(session: Session, job_ids: tuple[str, ...], reason: str | None) -> None:
    """Take failed jobs out of this list. The jobs stay as they are."""
    told(session, job_ids, "dismiss", reason, lambda job: f"{job['jobId']} dismissed")


@dlq.command()
@click.argument(
    "job_ids", metavar="JOB...", nargs=-1, required=True, shell_complete=completing.job_ids
)
@reason_option
@with_server
def redrive(session: Session, job_ids: tuple[str, ...], reason: str | None) -> None:
    """Run failed jobs again as new jobs, from the failed step on."""
    told(
        session,
        job_ids,
        "redrive",
        reason,
        lambda job: f"{job['redrive_of']} redriven as {job['jobId']}",
    )


def told(
    session: Session, job_ids: tuple[str, ...], order: str, reason: str | None, line: "Line"
) -> None:
    """Show what became of each job. A refusal for one does not hide what was done to the others."""

    async def ask(client: "PlainClient") -> tuple[list[Any], list[dict[str, str]]]:
        whole = tuple([await whole_id(client, job_id) for job_id in job_ids])
        return await _ordered(partial(getattr(client, order), reason=reason), whole)

    jobs, refused = session.call(ask)
    if session.as_json:
        echo_json({"jobs": jobs, "refused": refused})
    else:
        for job in jobs:
            click.echo(line(job))
        for each in refused:
            click.echo(f"lucius: {each['jobId']}: {each['code']}: {each['message']}", err=True)
    click.get_current_context().exit(1 if refused else 0)


async def _ordered(
    order: "Callable[[str], Awaitable[Any]]", job_ids: tuple[str, ...]
) -> tuple[list[Any], list[dict[str, str]]]:
    from lucius.client import ProblemError, UnreachableError

    jobs, refused = list[Any](), list[dict[str, str]]()
    for job_id in job_ids:
        try:
            jobs.append(await order(job_id))
        except ProblemError as error:
            refused.append({"jobId": job_id, "code": error.code, "message": error.detail})
        except UnreachableError as error:
            if not jobs and not refused:
                raise
            rest = job_ids[job_ids.index(job_id) :]
            refused += [
                {"jobId": each, "code": "UNREACHABLE", "message": str(error)} for each in rest
            ]
            break
    return jobs, refused
