"""`lucius failures`, `lucius redrive`, `lucius redrives`: what failed alike, and redriving it by a plan."""

import re
from typing import Any

import click

from lucius.cli import completing
from lucius.cli.screen import age
from lucius.cli.session import Session, reason_option, with_server
from lucius.cli.settings import show_table

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
