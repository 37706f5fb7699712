"""Steering a job: `lucius job cancel | pause | resume | retry | redrive`."""

import click

from lucius.cli.completing import job_argument
from lucius.cli.jobs import show_outcome
from lucius.cli.session import Session, reason_option, show_warnings, with_server
from lucius.cli.submit import read_payload
from lucius.cli.watching import watched


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
@click.option("--wait", is_flag=True, help="Follow the new job to its end.")
@reason_option
@with_server
def redrive(
    session: Session, job_id: str, payload: str | None, wait: bool, reason: str | None
) -> None:
    """Run a failed job again as a new job, from the failed step on."""
    corrected = read_payload(payload) if payload is not None else None
    answer = session.call_job(
        job_id, lambda client, id_: client.redrive(id_, payload=corrected, reason=reason)
    )
    show_warnings(answer)
    if wait:
        watched(session, answer["jobId"])
    session.show(answer, lambda new: click.echo(f"{new['redrive_of']} redriven as {new['jobId']}"))
