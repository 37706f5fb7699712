"""One order for many jobs: `lucius jobs cancel | pause | resume | retry | redrive | dismiss`."""

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from lucius.cli import completing
from lucius.cli.session import Session, reason_option, with_server
from lucius.cli.submit import read_payload

if TYPE_CHECKING:
    from lucius.client.plain import PlainClient


# Moments as people type them: an instant, or how long ago.

_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType[str]):
    """`2026-01-31T12:00:00Z`, or `90s`, `30m`, `1h`, `2d`, `1w` for so long ago."""

    name = "INSTANT|AGO"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        found = _AGO.fullmatch(value)
        if found is not None:
            ago = timedelta(**{_UNITS[found[2]]: int(found[1])})
            return (datetime.now(UTC) - ago).isoformat().replace("+00:00", "Z")
        try:
            datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is no moment: give an instant such as 2026-01-31T12:00:00Z, or how long"
                " ago, such as 90s, 30m, 1h, 2d or 1w",
                param,
                ctx,
            )
        return str(value)


MAX_SHOWN_REFUSALS = 10
OUTCOMES = {
    "cancel": "cancelled or being cancelled",
    "pause": "paused or pausing",
    "resume": "resumed",
    "retry": "tried again",
    "redrive": "redriven",
    "dismiss": "dismissed",
}


FILTER = (
    click.option(
        "--to",
        "created_to",
        type=Moment(),
        help="Created before this, such as 2026-01-31T12:00:00Z, or 1h for an hour ago.",
    ),
    click.option(
        "--from",
        "created_from",
        type=Moment(),
        help="Created at this moment or later, such as 1h for the last hour.",
    ),
    click.option("--live", is_flag=True, help="Only jobs that have not ended."),
    click.option("--stuck", is_flag=True, help="Only jobs that do not go on by themselves."),
    click.option("--group", help="Only jobs that failed as this group (`lucius failures`)."),
    click.option(
        "--service",
        multiple=True,
        help="Only jobs with a step of this service that failed or is under way.",
    ),
    click.option(
        "--step", multiple=True, help="Only jobs of which this step failed or is under way."
    ),
    click.option("--code", multiple=True, help="Only jobs of which a step failed with this code."),
    click.option(
        "--type",
        "request_type",
        shell_complete=completing.request_types,
        callback=completing.quoted_type,
        help="Only jobs of this request type.",
    ),
    click.option(
        "--state",
        multiple=True,
        shell_complete=completing.states,
        help="Only jobs in this state; may be given several times.",
    ),
    click.option(
        "--tenant",
        "tenant_id",
        multiple=True,
        help="Only jobs of this tenant; may be given several times.",
    ),
)
"""Which jobs, for every command that lists or moves some."""


def filter_options(command: Any) -> Any:
    """The filter, and whether to count, to ask or to act."""
    for option in (
        click.option("--yes", "-y", is_flag=True, help="Do it without asking."),
        click.option("--dry-run", is_flag=True, help="Only count the jobs that match."),
        reason_option,
        *FILTER,
    ):
        command = option(command)
    return command


def bulk_command(verb: str, about: str) -> click.Command:
    @click.command(verb, help=f"{about} Count them and ask first.")
    @filter_options
    @with_server
    def command(
        session: Session, dry_run: bool, yes: bool, reason: str | None, **filters: Any
    ) -> None:
        named = _named_filters(filters)
        run_order(session, verb, named, dry_run=dry_run, yes=yes, **_said(reason))

    return command


@click.command("cancel", help="Cancel all jobs that match. Count them and ask first.")
@filter_options
@click.option(
    "--immediate", is_flag=True, help="End the jobs now, not when their running steps have ended."
)
@with_server
def cancel_many(
    session: Session,
    dry_run: bool,
    yes: bool,
    immediate: bool,
    reason: str | None,
    **filters: Any,
) -> None:
    options = {"immediate": immediate, **_said(reason)}
    run_order(session, "cancel", _named_filters(filters), dry_run=dry_run, yes=yes, **options)


@click.command("redrive", help="Redrive all failed jobs that match. Count them and ask first.")
@filter_options
@click.option("--payload", metavar="JSON|@FILE", help="A corrected payload, the same for each job.")
@with_server
def redrive_many(
    session: Session,
    dry_run: bool,
    yes: bool,
    payload: str | None,
    reason: str | None,
    **filters: Any,
) -> None:
    options: dict[str, Any] = {"payload": read_payload(payload)} if payload is not None else {}
    options |= _said(reason)
    run_order(session, "redrive", _named_filters(filters), dry_run=dry_run, yes=yes, **options)


def _said(reason: str | None) -> dict[str, str]:
    return {"reason": reason} if reason else {}


def _named_filters(filters: dict[str, Any]) -> dict[str, Any]:
    """Those that were given, as the API takes them."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in filters.items()
        if value
    }


def run_order(
    session: Session,
    verb: str,
    filters: dict[str, Any],
    *,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Count, ask, then give the order until nothing is left that matches."""
    if dry_run or not yes:
        counted = session.call(
            lambda client: client.order_many(verb, filters, dry_run=True, **options)
        )
        if dry_run or not counted["matched"]:
            session.show(counted, _show_count)
            return
        _ask(verb, counted)
    done = session.call(lambda client: _order_until_done(client, verb, filters, options))
    session.show(done, lambda tally: _show_tally(verb, tally))
    click.get_current_context().exit(1 if done["refused"] else 0)


def _ask(verb: str, counted: dict[str, Any]) -> None:
    """Ask at a terminal. A script, which nobody can answer for, must give --yes."""
    if not is_interactive():
        raise click.UsageError(f"{_count_of_jobs(counted)}; add --yes to {verb} them")
    click.confirm(f"{verb} {_count_of_jobs(counted)}?", abort=True, err=True)


def is_interactive() -> bool:
    """Whether standard input is a terminal, so that someone can answer."""
    return sys.stdin.isatty()


def _count_of_jobs(counted: dict[str, Any]) -> str:
    return f"{counted['matched']} job{'' if counted['matched'] == 1 else 's'}"


def _show_count(counted: dict[str, Any]) -> None:
    click.echo(f"{_count_of_jobs(counted)} match{'es' if counted['matched'] == 1 else ''}")


async def _order_until_done(
    client: "PlainClient", verb: str, filters: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Give the order page by page, until one on which no job moved: the rest would not move either."""
    total = await client.order_many(verb, filters, **options)
    page = total
    while page["more"] and page["applied"]:
        page = await client.order_many(verb, filters, **options)
        total = _sum_of(total, page)
    return total


def _sum_of(total: dict[str, Any], page: dict[str, Any]) -> dict[str, Any]:
    codes = {*total["refused"], *page["refused"]}
    return {
        "dry_run": False,
        "matched": total["matched"] + page["matched"],
        "applied": total["applied"] + page["applied"],
        "already": total["already"] + page["already"],
        "refused": {
            code: total["refused"].get(code, 0) + page["refused"].get(code, 0) for code in codes
        },
        "refusals": [*total["refusals"], *page["refusals"]],
        "more": page["more"],
    }


def _show_tally(verb: str, tally: dict[str, Any]) -> None:
    already = f", {tally['already']} already were" if tally["already"] else ""
    click.echo(f"{tally['applied']} {OUTCOMES[verb]}{already}")
    for code, count in sorted(tally["refused"].items()):
        click.echo(f"{count} refused: {code}", err=True)
    for refusal in tally["refusals"][:MAX_SHOWN_REFUSALS]:
        click.echo(f"  {refusal['jobId']} {refusal['code']}: {_why(refusal)}", err=True)


def _why(refusal: dict[str, Any]) -> str:
    faults = [
        f"{fault.get('pointer', '')} {fault['detail']}" for fault in refusal.get("errors", ())
    ]
    return "; ".join(faults) or refusal["detail"]


ORDERS: tuple[click.Command, ...] = (
    cancel_many,
    bulk_command("pause", "Pause all jobs that match."),
    bulk_command("resume", "Resume all paused jobs that match."),
    bulk_command("retry", "Try again now what waits for its backoff, of all jobs that match."),
    redrive_many,
    bulk_command("dismiss", "Take all failed jobs that match out of `lucius dlq`."),
)
