"""Steering a job: `lucius job cancel | pause | resume | redrive`."""

import click

from lucius.cli.jobs import show_outcome, watched
from lucius.cli.session import Session, with_server
from lucius.cli.submit import read_payload


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option(
    "--immediate", is_flag=True, help="End the job now, not when the running step has ended."
)
@with_server
def cancel(session: Session, job_id: str, immediate: bool) -> None:
    """Cancel a job. The running step may finish; no other starts."""
    job = session.call(lambda client: client.cancel(job_id, immediate=immediate))
    show_outcome(session, job, "cancelled" if job["state"] == "CANCELLED" else "is being cancelled")


@click.command()
@click.argument("job_id", metavar="JOB")
@with_server
def pause(session: Session, job_id: str) -> None:
    """Pause a job. The running step may finish; no other starts."""
    job = session.call(lambda client: client.pause(job_id))
    show_outcome(session, job, "paused" if job["state"] == "PAUSED" else "is pausing")


@click.command()
@click.argument("job_id", metavar="JOB")
@with_server
def resume(session: Session, job_id: str) -> None:
    """Resume a paused job."""
    show_outcome(session, session.call(lambda client: client.resume(job_id)), "resumed")


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("--payload", metavar="JSON|@FILE", help="A corrected payload for the new job.")
@click.option("--wait", is_flag=True, help="Follow the new job to its end.")
@with_server
def redrive(session: Session, job_id: str, payload: str | None, wait: bool) -> None:
    """Run a failed job again as a new job, from the failed step on."""
    corrected = read_payload(payload) if payload is not None else None
    answer = session.call(lambda client: client.redrive(job_id, payload=corrected))
    if wait:
        watched(session, answer["jobId"])
    session.show(answer, lambda new: click.echo(f"{job_id} redriven as {new['jobId']}"))
