"""Reading: `lucius jobs`, `lucius job show | watch | events | files`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.bulk import FILTER, ORDERS
from lucius.cli.completing import files as files_in
from lucius.cli.completing import job_argument
from lucius.cli.ledger import settings_of_command, with_data
from lucius.cli.screen import event_line, printed, show_attempts, show_job, show_jobs
from lucius.cli.session import (
    ListByDefault,
    Session,
    echo_json,
    reason_option,
    run,
    show_warnings,
    with_server,
)
from lucius.cli.submit import output_of, read_payload
from lucius.cli.watching import watched

# `lucius outbox retry`: publish pending directives now.


@click.group()
def outbox() -> None:
    """Publish directives that wait."""


@outbox.command("retry")
@with_server
def outbox_retry(session: Session) -> None:
    """Publish pending directives now, before their backoff is over."""
    session.show(session.call(lambda client: client.retry_outbox()), _show)


def _show(counts: dict[str, Any]) -> None:
    click.echo(
        f"{counts['published']} published, {counts['pending']} pending, {counts['failed']} failed"
    )


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lucius.client.plain import PlainClient

    Ask = Callable[..., Awaitable[dict[str, Any]]]


def filter_options(command: Any) -> Any:
    for option in (
        click.option("--cursor", help="Continue after the page that showed this cursor."),
        click.option(
            "--limit",
            type=click.IntRange(1, 500),
            default=50,
            show_default=True,
            help="The most jobs to show.",
        ),
        *FILTER,
    ):
        command = option(command)
    return command


def query_of(filters: dict[str, Any]) -> dict[str, Any]:
    """Options that may be given several times become one filter."""
    joined = {
        name: ",".join(value) if isinstance(value, tuple) else value
        for name, value in filters.items()
    }
    joined = {name: "true" if value is True else value for name, value in joined.items()}
    return {name: value for name, value in joined.items() if value}


@click.group(cls=ListByDefault)
def jobs() -> None:
    """List jobs, or give one order to all that match a filter."""


for order in ORDERS:
    jobs.add_command(order)


@jobs.command("list")
@filter_options
@with_server
def listed(session: Session, **filters: Any) -> None:
    """List jobs, newest first."""
    page = session.call(lambda client: first_found(client.jobs, query_of(filters)))
    session.show(page, show_page)


async def first_found(ask: "Ask", query: dict[str, Any]) -> dict[str, Any]:
    """The next page with jobs on it. An empty page with a cursor is not the last one."""
    page = await ask(**query)
    while not page["jobs"] and page["next_cursor"]:
        page = await ask(**{**query, "cursor": page["next_cursor"]})
    return page


def show_page(page: dict[str, Any]) -> None:
    if not page["jobs"]:
        click.echo("no jobs")
        return
    show_jobs(page["jobs"])
    if page["next_cursor"]:
        click.echo(f"more: --cursor {page['next_cursor']}")


@click.command()
@job_argument
@with_server
def show(session: Session, job_id: str) -> None:
    """Show a job, every attempt of its steps, and why it waits."""

    async def ask(client: "PlainClient", whole: str) -> tuple[Any, Any]:
        return await client.job(whole), await client.executions(whole)

    job, attempts = session.call_job(job_id, ask)
    session.show({**job, "executions": attempts["executions"]}, show_job)
    if not session.as_json:
        click.echo("")
        show_attempts(attempts["executions"])


@click.command()
@job_argument
@with_server
def watch(session: Session, job_id: str) -> None:
    """Follow a job to its end. Exit with 0 if it succeeds, else 1."""
    watched(session, job_id)


@click.command()
@job_argument
@click.option(
    "--after",
    type=click.IntRange(0),
    default=0,
    help="Only events after the one with this number (seq).",
)
@click.option("--follow", is_flag=True, help="Wait for further events until the job has ended.")
@with_server
def events(session: Session, job_id: str, after: int, follow: bool) -> None:
    """Show the history of a job."""
    if follow:
        session.call_job(job_id, lambda client, id_: _follow(session, client, id_, after))
        return
    found = session.call_job(job_id, lambda client, id_: _all_events(client, id_, after))
    session.show({"events": found}, lambda answer: _show_events(answer["events"]))


async def _follow(session: Session, client: "PlainClient", job_id: str, after: int) -> None:
    import json

    async for event in client.follow(job_id, after=after):
        click.echo(json.dumps(event) if session.as_json else event_line(event))


async def _all_events(client: "PlainClient", job_id: str, after: int) -> list[Any]:
    found: list[Any] = []
    while page := await client.events(job_id, after=after):
        found += page
        after = page[-1]["seq"]
    return found


def _show_events(found: list[Any]) -> None:
    for event in found:
        click.echo(event_line(event))


@click.command()
@job_argument
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write them below this directory. Without it they are listed.",
)
@with_data
@with_server
def files(session: Session, job_id: str, to: Path | None, data: Path) -> None:
    """List the outputs in a job's workspace, or copy them.

    It reads the workspace itself, by the settings of the server: run it on a machine that reaches it.
    """
    from lucius.app.upkeep import job_outputs

    job = session.call_job(job_id, lambda client, whole: client.job(whole))
    found = run(job_outputs(settings_of_command(data), job["workspace_ref"], to))
    shown = [{"name": name, "size": size} for name, size in found]
    session.show({"jobId": job["jobId"], "files": shown}, lambda answer: _show_files(answer, to))


def _show_files(answer: dict[str, Any], to: Path | None) -> None:
    for each in printed(answer["files"]):
        click.echo(f"{each['size']:>10}  {each['name']}")
    if not answer["files"]:
        click.echo("no outputs")
    elif to is not None:
        click.echo(f"{len(answer['files'])} written to {to}")


def show_outcome(session: Session, job: dict[str, Any], done: str) -> None:
    """Say what an order did. That the job already was so counts as done."""
    if session.as_json:
        echo_json(job)
        return
    repeated = " (it already was)" if job.get("outcome") == "already" else ""
    click.echo(f"{job['jobId']} {done}{repeated}: {job['state']}")


# Steering a job: `lucius job cancel | pause | resume | retry | redrive`.


@click.command()
@job_argument
@click.option(
    "--immediate", is_flag=True, help="End the job now, not when the running step has ended."
)
@reason_option
@with_server
def cancel(session: Session, job_id: str, immediate: bool, reason: str | None) -> None:
    """Cancel a job. The running step may finish; no other starts."""
    job = session.call_job(
        job_id, lambda client, id_: client.cancel(id_, immediate=immediate, reason=reason)
    )
    show_outcome(session, job, "cancelled" if job["state"] == "CANCELLED" else "is being cancelled")


@click.command()
@job_argument
@reason_option
@with_server
def pause(session: Session, job_id: str, reason: str | None) -> None:
    """Pause a job. The running step may finish; no other starts."""
    job = session.call_job(job_id, lambda client, id_: client.pause(id_, reason=reason))
    show_outcome(session, job, "paused" if job["state"] == "PAUSED" else "is pausing")


@click.command()
@job_argument
@reason_option
@with_server
def resume(session: Session, job_id: str, reason: str | None) -> None:
    """Resume a paused job. It goes on at once."""
    job = session.call_job(job_id, lambda client, id_: client.resume(id_, reason=reason))
    show_outcome(session, job, "resumed")


@click.command()
@job_argument
@reason_option
@with_server
def retry(session: Session, job_id: str, reason: str | None) -> None:
    """Try again now what waits for its backoff."""
    job = session.call_job(job_id, lambda client, id_: client.retry(id_, reason=reason))
    if job.get("outcome") == "already" and not session.as_json:
        click.echo(f"{job['jobId']} waits for no backoff: {job['explanation']}")
        return
    show_outcome(session, job, "is tried again")


@click.command()
@job_argument
@click.option("--payload", metavar="JSON|@FILE", help="A corrected payload for the new job.")
@click.option(
    "--output",
    "output_ref",
    metavar="REF",
    shell_complete=files_in,
    help="Another place for its output: a URI or a path.",
)
@click.option("--wait", is_flag=True, help="Follow the new job to its end.")
@reason_option
@with_server
def redrive(
    session: Session,
    job_id: str,
    payload: str | None,
    output_ref: str | None,
    wait: bool,
    reason: str | None,
) -> None:
    """Run a failed job again as a new job, from the failed step on."""
    given: dict[str, Any] = {
        "payload": read_payload(payload) if payload is not None else None,
        "output_ref": output_of(output_ref) if output_ref is not None else None,
    }
    answer = session.call_job(
        job_id, lambda client, id_: client.redrive(id_, **given, reason=reason)
    )
    show_warnings(answer)
    if wait:
        watched(session, answer["jobId"])
    session.show(answer, lambda new: click.echo(f"{new['redrive_of']} redriven as {new['jobId']}"))
