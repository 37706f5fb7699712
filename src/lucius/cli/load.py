"""`lucius load`: a load for a server or for one service, and what came of it."""

import sys
from collections.abc import Coroutine
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click

from lucius.cli.certify import examined_of, samples_of, starter_of
from lucius.cli.session import Session, echo_json, run_in_order, with_server
from lucius.cli.submit import JOB_ID, SCHEMA_VERSION, read_payload, reference
from lucius.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lucius.client.plain import PlainClient
    from lucius.dev.load import Driver, LoadPlan, LoadTally, Target

    Why = Callable[[], Awaitable[str]]

BAR: Final = 40
DEFAULT_JOBS: Final = 100
INTERRUPTED: Final = 130
QUIET_SECONDS: Final = 10


@click.command()
@click.argument("name", metavar="[MODULE:NAME]", required=False)
@click.option("--type", "request_type", help="The request type of the jobs, for a server.")
@click.option("--input", "input_ref", metavar="REF", help="Their document: a URI or a local file.")
@click.option(
    "--output",
    metavar="REF",
    help="Folder for their results: a URI or a path.  [default: lucius-load]",
)
@click.option("--payload", default="{}", metavar="JSON|@FILE", help="Parameters for the steps.")
@click.option(
    "--poison", metavar="JSON|@FILE", help="The payload of jobs with the failure `poison`."
)
@click.option("--rate", type=click.FloatRange(0, 10_000, min_open=True), help="Jobs a second.")
@click.option("--concurrency", type=click.IntRange(1, 2000), help="Jobs at once.  [default: 1]")
@click.option("--jobs", type=click.IntRange(1), help=f"How many.  [default: {DEFAULT_JOBS}]")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="For how long.")
@click.option(
    "--tenants", default="load", show_default=True, help="A mix by weight, such as acme=3,globex=1."
)
@click.option(
    "--failures",
    help="A mix by probability: missing=0.05,poison=0.02,cancel=0.01,duplicate=0.1.",
)
@click.option(
    "--samples",
    "samples_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What MODULE:NAME is fed, as for `lucius certify`.",
)
@with_server
def load(
    session: Session,
    name: str | None,
    request_type: str | None,
    input_ref: str | None,
    output: str | None,
    payload: str,
    poison: str | None,
    samples_file: Path | None,
    **how: Any,
) -> None:
    """Drive a server with jobs, or one service with directives.

    Without MODULE:NAME it submits jobs to the server of --url and waits for their ends. With it, the
    service is started on its own, against a small gateway, and handed directives.

    Prints throughput, latencies and errors while it runs. Exits with 1 if anything failed that was
    not meant to. Ctrl-C ends it with what came of it so far, and exits with 130.
    """
    if name is None and not (request_type and input_ref):
        raise click.UsageError("give --type and --input for a server, or MODULE:NAME for a service")
    plan = plan_of(service=name is not None, **how)
    if name is not None:
        with TemporaryDirectory(prefix="lucius-load-") as folder:
            here = Path(folder).resolve()
            work = at_service(name, samples_file, plan, here, session.as_json)
            exit_code = told(*run_in_order(work), as_json=session.as_json)
    else:
        envelope = envelope_of(str(request_type), str(input_ref), output, payload)
        if "poison" in plan.failures and poison is None:
            raise click.UsageError("the failure `poison` needs a payload that fails: --poison")
        spoilt = None if poison is None else read_payload(poison)
        work = at_server(session, envelope, spoilt, plan)
        exit_code = told(*run_in_order(work), as_json=session.as_json)
    click.get_current_context().exit(exit_code)


def told(tally: "LoadTally", seconds: float, *, as_json: bool) -> int:
    """Say what came of it, before anything is tidied up. The exit code."""
    if as_json:
        echo_json(tally.document(seconds))
    else:
        click.echo("\n".join(report(tally, seconds)))
    return INTERRUPTED if tally.interrupted else int(bool(tally.errors))


def plan_of(
    *,
    service: bool,
    rate: float | None,
    concurrency: int | None,
    jobs: int | None,
    seconds: float | None,
    tenants: str,
    failures: str | None,
) -> "LoadPlan":
    from lucius.dev.load import FAILURES, LoadError, LoadPlan, parse_failures, parse_tenants
    from lucius.dev.load_targets import DIRECTIVE_FAILURES

    for name, number in (("rate", rate), ("seconds", seconds)):
        if number is not None and not isfinite(number):
            raise click.BadParameter(f"{number} is no number to count with", param_hint=f"--{name}")
    if rate is not None and concurrency is not None:
        raise click.UsageError("give --rate or --concurrency, not both")
    if jobs is None and seconds is None:
        jobs = DEFAULT_JOBS
    try:
        mix = (
            parse_failures(failures, DIRECTIVE_FAILURES if service else FAILURES)
            if failures
            else {}
        )
        weights = parse_tenants(tenants)
    except LoadError as error:
        raise click.UsageError(str(error)) from None
    return LoadPlan(rate, concurrency or 1, jobs, seconds, weights, mix)


def envelope_of(
    request_type: str, input_ref: str, output: str | None, payload: str
) -> dict[str, Any]:
    folder = reference(output or "lucius-load").rstrip("/")
    return {
        "request_type": request_type,
        "input_ref": reference(input_ref),
        "output_ref": f"{folder}/{JOB_ID}",
        "payload": read_payload(payload),
        "schema_version": SCHEMA_VERSION,
    }


async def at_server(
    session: Session, envelope: dict[str, Any], poison: dict[str, Any] | None, plan: "LoadPlan"
) -> "tuple[LoadTally, float]":
    from lucius.client.plain import PlainClient
    from lucius.dev.load_targets import ServerTarget

    most = 2 * (plan.concurrency if plan.rate is None else 1000)
    async with PlainClient(
        session.url, api_key=session.api_key, retries=0, max_connections=most
    ) as client:
        await client.protocols()  # a server that is not there is said once, not by every job
        target = ServerTarget(client, envelope, poison)
        return await driven(target, plan, session.as_json, lambda: reason(client))


async def reason(client: "PlainClient") -> str:
    """Why nothing moves, as far as the server says it."""
    from lucius.client import ClientError

    try:
        causes = (await client.why())["causes"]
    except ClientError as error:
        return str(error)
    return ", ".join(f"{each['cause']}: {each['summary']}" for each in causes[:2]) or "no cause"


async def at_service(
    name: str, samples_file: Path | None, plan: "LoadPlan", folder: Path, as_json: bool
) -> "tuple[LoadTally, float]":
    from lucius.dev.certificate.certification import Certification
    from lucius.dev.certificate.examinee import Folders
    from lucius.dev.load_targets import ServiceTarget

    samples = samples_of(samples_file)
    examined = examined_of(name, None, None, samples)
    folders = Folders(folder)
    starter = starter_of(name, None, folders, samples)
    async with Certification(examined, samples, folders, starter).trial() as trial:
        return await driven(ServiceTarget(trial), plan, as_json)


async def driven(
    target: "Target", plan: "LoadPlan", as_json: bool, why: "Why | None" = None
) -> "tuple[LoadTally, float]":
    import asyncio

    from lucius.dev.load import Driver

    driver = Driver(target, plan)
    try:
        await (driver.run() if as_json else shown(driver, driver.run(), why))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        driver.tally.interrupted = True
    return driver.tally, driver.seconds


async def shown(
    driver: "Driver", work: Coroutine[Any, Any, None], why: "Why | None" = None
) -> None:
    """A table that is drawn again and again on a terminal, a line a second elsewhere while jobs end.

    Where none ends for a while, it says why, once.
    """
    import asyncio

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    running = asyncio.ensure_future(work)
    try:
        if sys.stdout.isatty():
            with Live(console=Console(highlight=False), transient=True) as screen:
                while not running.done():
                    screen.update(Text("\n".join(report(driver.tally, driver.seconds))))
                    await asyncio.wait((running,), timeout=0.25)
        before, still = driver.tally.ended, 0
        while not (await asyncio.wait((running,), timeout=1))[0]:
            moved, before = driver.tally.ended != before, driver.tally.ended
            still = 0 if moved else still + 1
            if still <= 1 or still == QUIET_SECONDS:
                click.echo(progress_line(driver.tally, driver.seconds))
            if still == QUIET_SECONDS and why is not None:
                click.echo(f"nothing ends for {QUIET_SECONDS} s: {printable(await why())}")
        await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def progress_line(tally: "LoadTally", seconds: float) -> str:
    late = tally.percentiles()
    times = "  ".join(f"{name} {at * 1000:.0f} ms" for name, at in late.items())
    rate = tally.ended / seconds if seconds else 0.0
    return (
        f"{seconds:6.1f} s  {tally.ended} of {tally.started} ended, {rate:.1f}/s,"
        f" {tally.errors.total()} errors  {times}"
    )


def report(tally: "LoadTally", seconds: float) -> list[str]:
    """Throughput, histogram and errors."""
    lines = [progress_line(tally, seconds).strip(), ""]
    found = list(tally.histogram())
    most = max((count for _, count in found), default=1)
    lines += [
        f"  {edge:>10}  {count:>7}  {'█' * round(BAR * count / most)}" for edge, count in found
    ]
    lines += ["", f"  {tally.succeeded} succeeded, {tally.as_meant} failed as they were meant to"]
    if tally.interrupted:
        lines.append(f"  interrupted: {tally.started - tally.ended} had not ended")
    lines += [f"  {count} {printable(code)}" for code, count in tally.errors.most_common()]
    return lines
