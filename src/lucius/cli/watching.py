"""Following a job to its end: a live table on a terminal, plain lines elsewhere."""

import sys
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.screen import event_line, printed, progress, reference_text
from lucius.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lucius.client.plain import PlainClient

QUIET_SECONDS = 10.0
"""A job of which nothing is heard for so long is asked why."""
SUCCEEDED = "SUCCEEDED"


def watched(session: Session, job_id: str) -> None:
    """Follow a job, print its last line, and leave with its exit code. Ctrl-C leaves the job alone."""

    async def ask(client: "PlainClient", whole: str) -> dict[str, Any]:
        return await watch_job(client, whole, quiet=session.as_json)

    try:
        job = session.call_job(job_id, ask)
    except KeyboardInterrupt:
        click.echo(f"the job goes on; `lucius job watch {job_id}` follows it again", err=True)
        click.get_current_context().exit(130)
    session.show(job, conclude)
    click.get_current_context().exit(exit_code(job))


async def watch_job(client: "PlainClient", job_id: str, *, quiet: bool = False) -> dict[str, Any]:
    """Show the progress of a job until it has ended, and return the job."""
    if quiet:
        return await client.wait(job_id)
    if sys.stdout.isatty():
        return await _live(client, job_id)
    return await _lines(client, job_id)


async def _live(client: "PlainClient", job_id: str) -> dict[str, Any]:
    """Draw a table of the steps eight times a second, so that the times of running steps count up."""
    from rich.console import Console
    from rich.live import Live

    out, job = Console(highlight=False), await client.job(job_id)
    with Live(get_renderable=lambda: progress(job), console=out, refresh_per_second=8):
        async for event in followed(client, job_id):
            job = await client.job(job_id)
            if isinstance(event, str):
                job["explanation"] = event
        job = await client.job(job_id)
    return job


async def followed(client: "PlainClient", job_id: str) -> "AsyncIterator[dict[str, Any] | str]":
    """Its events; where none comes for a while, why: once, and again when that is another reason."""
    import asyncio

    events, told = client.follow(job_id), ""
    coming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            done, _ = await asyncio.wait((coming,), timeout=QUIET_SECONDS)
            if not done:
                if (said := await _reason(client, job_id)) != told:
                    told = said
                    yield said
                continue
            event, told = coming.result(), ""
            if event is None:
                return
            yield event
            coming = asyncio.ensure_future(anext(events, None))
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


async def _reason(client: "PlainClient", job_id: str) -> str:
    """Servers and callers that cannot say why have the explanation of the job."""
    from lucius.client import ClientError

    try:
        found = await client.why_job(job_id)
        return f"{found['cause']}: {found['summary']}"
    except ClientError:
        return str((await client.job(job_id))["explanation"])


async def watch_bar(client: "PlainClient", job_id: str, name: str) -> dict[str, Any]:
    """The same with a progress bar: a step that has succeeded moves it on."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    job = await client.job(job_id)
    words = TextColumn("{task.description}", markup=False)
    bar = BarColumn(complete_style="cyan", finished_style="green")
    with Progress(
        words, bar, MofNCompleteColumn(), TextColumn("steps"), TimeElapsedColumn()
    ) as shown:
        task = shown.add_task(f"{name}  {'':<9}", total=len(job["steps"]))
        async for _ in client.follow(job_id):
            job = await client.job(job_id)
            done, doing = standing(job)
            shown.update(task, completed=done, description=f"{name}  {doing:<9}")
        return await client.job(job_id)


def standing(job: dict[str, Any]) -> tuple[int, str]:
    """How many steps have succeeded, and which one comes next."""
    left = [step["step_id"] for step in job["steps"] if step["state"] != SUCCEEDED]
    return len(job["steps"]) - len(left), left[0] if left else "done"


async def _lines(client: "PlainClient", job_id: str) -> dict[str, Any]:
    async for event in followed(client, job_id):
        click.echo(f"waits: {printed(event)}" if isinstance(event, str) else event_line(event))
    return await client.job(job_id)


def exit_code(job: dict[str, Any]) -> int:
    return 0 if job["state"] == SUCCEEDED else 1


def conclude(job: dict[str, Any]) -> None:
    """Print the last line of a watched job: its output, or why it did not succeed."""
    if job["state"] == SUCCEEDED:
        click.echo(f"{job['jobId']} succeeded: {reference_text(job['final_output'])}")
    else:
        click.echo(f"{job['jobId']} {job['state']}: {job['explanation']}", err=True)
