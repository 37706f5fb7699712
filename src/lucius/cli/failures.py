"""`lucius failures`, `lucius redrive`, `lucius redrives`: what failed alike, and redriving it by a plan."""

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lucius.cli import completing
from lucius.cli.completing import job_ids
from lucius.cli.jobs import filter_options, first_found, query_of, show_page
from lucius.cli.screen import age, moment
from lucius.cli.session import (
    ListByDefault,
    Session,
    echo_json,
    reason_option,
    whole_id,
    with_server,
)
from lucius.cli.settings import show_table

# `lucius dlq`: jobs that failed, until they are redriven or dismissed.

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


# `lucius why [JOB]`: the cause, its evidence, what comes next, and the command that helps.

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
    if impact := _impact(found.get("impact")):
        click.echo(f"{click.style('for', dim=True)}   {impact}")
    if found["next"]["what"]:
        at = f" at {moment(found['next']['at'])}" if found["next"]["at"] else ""
        click.echo(f"{click.style('next', dim=True)}  {found['next']['what']}{at}")
    if found["command"]:
        click.echo(f"{click.style('try', dim=True)}   {found['command']}")


def _impact(impact: dict[str, Any] | None) -> str:
    """Whom it concerns: how many jobs, whose, and since when the oldest waits."""
    if impact is None:
        return ""
    least = "at least " if impact["more"] else ""
    jobs = "1 job" if impact["jobs"] == 1 else f"{impact['jobs']} jobs"
    names, count = ", ".join(impact["tenants"][:3]), impact["tenant_count"]
    rest = f" and {count - 3} more tenants" if count > 3 else ""
    of = f" of {names}{rest}" if names else ""
    oldest = f", the oldest since {moment(impact['oldest_at'])}" if impact["oldest_at"] else ""
    return f"{least}{jobs}{of}{oldest}"


# `lucius webhooks`: those that are not delivered, and sending them again.


@click.group(cls=ListByDefault)
def webhooks() -> None:
    """List webhooks that are not delivered; send them again."""


@webhooks.command("list")
@with_server
def listed_webhooks(session: Session) -> None:
    """List webhooks that are not delivered."""
    session.show(session.call(lambda client: client.webhooks()), _show_webhooks)


def _show_webhooks(answer: dict[str, Any]) -> None:
    if not answer["webhooks"]:
        click.echo("all webhooks are delivered")
        return
    names = ("job", "tenant", "host", "tries", "next", "error")
    rows = [
        (
            *(each["jobId"], each["tenant_id"], each["host"], str(each["tries"])),
            moment(each["next_at"]) if each["next_at"] else "given up",
            each["error"],
        )
        for each in answer["webhooks"]
    ]
    show_table(names, rows)


@webhooks.command("resend")
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True, shell_complete=job_ids)
@reason_option
@with_server
def resend_webhooks(session: Session, job_ids: tuple[str, ...], reason: str | None) -> None:
    """Send webhooks again, also those that were given up."""
    told(
        session,
        job_ids,
        "resend_webhooks",
        reason,
        lambda job: f"the webhooks of {job['jobId']} are being sent",
    )


BARS = " ▁▂▃▄▅▆▇█"


@click.command()
@click.option("--tenant", "tenant_id", multiple=True, help="Only failures of this tenant.")
@click.option("--service", multiple=True, help="Only failures of this service.")
@click.option("--step", multiple=True, help="Only failures of this step.")
@click.option("--code", multiple=True, help="Only failures with this code.")
@with_server
def failures(session: Session, **filters: tuple[str, ...]) -> None:
    """List failed attempts in groups, the latest first."""
    query = {name: ",".join(words) for name, words in filters.items() if words}
    answer = session.call(lambda client: client.failures(**query))
    session.show(answer, _show_groups)


def _show_groups(answer: dict[str, Any]) -> None:
    if not answer["groups"]:
        click.echo("no failures")
        return
    names = ("group", "count", "last", "first", "last hour", "tenants", "step", "code")
    rows = [
        (
            group["group"],
            str(group["count"]),
            f"{age(group['last_at'])} ago",
            f"{age(group['first_at'])} ago",
            trend(group["trend"]),
            str(group["tenant_count"]),
            group["step_id"],
            group["code"],
        )
        for group in answer["groups"]
    ]
    show_table(names, rows)
    for group in answer["groups"]:
        place = f" at {group['place']}" if group["place"] else ""
        click.echo(f"{group['group']}: {group['message']}{place} (such as {group['example']})")


def trend(counts: list[int]) -> str:
    """Each five minutes as a bar."""
    most = max(counts, default=0) or 1
    return "".join(BARS[-(-count * (len(BARS) - 1) // most)] for count in counts)


class RedriveRate(click.ParamType[float]):
    """`20/s`, `300/m` or a number of jobs a second."""

    name = "RATE"
    _SECONDS = {"s": 1, "m": 60, "h": 3600}

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/([smh]))?", value)
        if found is None or not float(found[1]):
            self.fail(f"{value!r} is no rate: give jobs a second such as 20/s, above 0", param, ctx)
        return float(found[1]) / self._SECONDS[found[2] or "s"]


@click.command("redrive")
@click.option("--group", help="Jobs that failed as this group (`lucius failures`).")
@click.option("--code", multiple=True, help="Jobs that failed with this code.")
@click.option("--step", multiple=True, help="Jobs of which this step failed.")
@click.option("--service", multiple=True, help="Jobs that failed in this service.")
@click.option(
    "--type",
    "request_type",
    shell_complete=completing.request_types,
    callback=completing.quoted_type,
    help="Jobs of this request type.",
)
@click.option("--tenant", "tenant_id", multiple=True, help="Jobs of this tenant.")
@click.option(
    "--canary",
    type=click.IntRange(0, 100),
    default=5,
    show_default=True,
    help="How many jobs are redriven first; the rest waits until they have ended.",
)
@click.option(
    "--rate",
    type=RedriveRate(),
    default="10/s",
    show_default=True,
    help="How many jobs follow in a second or minute, such as 20/s.",
)
@click.option(
    "--stop-after",
    default="10%",
    show_default=True,
    metavar="PART|COUNT",
    help="Stop when more than this have failed again.",
)
@reason_option
@with_server
def redrive_plan(
    session: Session,
    canary: int,
    rate: float,
    stop_after: str,
    reason: str | None,
    **filters: Any,
) -> None:
    """Redrive failed jobs: a few first, then at a pace.

    It stops by itself when too many fail again, and survives a restart of the server.
    """
    given = {n: list(v) if isinstance(v, tuple) else v for n, v in filters.items() if v}
    plan = session.call(
        lambda client: client.start_redrive(
            given, canary=canary, rate=rate, stop_after=stop_after, reason=reason
        )
    )
    session.show(plan, _started)


def _started(plan: dict[str, Any]) -> None:
    click.echo(f"{plan['planId']}: {plan['matched']} jobs, {plan['canary']} of them first")
    click.echo(f"lucius redrives {plan['planId']} shows how far it is")


@click.command("redrives")
@click.argument("plan_id", metavar="[PLAN]", required=False)
@click.option("--stop", is_flag=True, help="Stop the plan; what it has redriven goes on.")
@with_server
def redrive_plans(session: Session, plan_id: str | None, stop: bool) -> None:
    """List redrive plans, or show or stop one."""
    if plan_id is None:
        if stop:
            raise click.UsageError("name the plan to stop: lucius redrives PLAN --stop")
        session.show(session.call(lambda client: client.redrives()), _show_plans)
    elif stop:
        session.show(session.call(lambda client: client.stop_redrive(plan_id)), _show_plan)
    else:
        session.show(session.call(lambda client: client.redrive_plan(plan_id)), _show_plan)


def _show_plans(answer: dict[str, Any]) -> None:
    if not answer["plans"]:
        click.echo("no redrive plans")
    for plan in answer["plans"]:
        _show_plan(plan)


def _show_plan(plan: dict[str, Any]) -> None:
    done = plan["redriven"] + plan["refused"]
    said = f" ({plan['said']})" if plan["said"] else ""
    click.echo(f"{plan['planId']}  {plan['state']}{said}  {done} of {plan['matched']} redriven")
    click.echo(
        f"  {plan['succeeded']} succeeded, {plan['failed']} failed again,"
        f" {plan['under_way']} under way, {plan['refused']} refused"
    )
