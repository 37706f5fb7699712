"""`lucius ledger` and `lucius verify`: the stored data, without a server."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import click

from lucius.cli.bulk import is_interactive
from lucius.cli.screen import printed
from lucius.cli.session import echo_json, run, with_json
from lucius.contract.words import without_credentials

if TYPE_CHECKING:
    from lucius.app.settings import Settings


@runtime_checkable
class BacksUp(Protocol):
    """A ledger that can copy itself to a file."""

    async def backup(self, target: Path) -> None: ...


class Age(click.ParamType[timedelta]):
    """A span of time such as 90m, 12h or 30d."""

    name = "age"

    def convert(self, value: Any, param: Any, ctx: Any) -> timedelta:
        if isinstance(value, timedelta):
            return value
        from lucius.app.settings.kinds import parse_age

        try:
            return parse_age(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def with_data(command: Any) -> Any:
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="LUCIUS_DATA_DIR",
        default=".lucius",
        show_default=True,
        show_envvar=True,
        help="Directory with the ledger and the keys.",
    )(command)


@click.command()
@click.option(
    "--against",
    type=click.Choice(["temporal"]),
    help="Compare the jobs with their workflows instead.",
)
@with_data
@with_json
def verify(against: str | None, data: Path, as_json: bool) -> None:
    """Read all stored data and report contradictions."""
    from lucius.app import upkeep

    check = upkeep.verify_against_temporal if against else upkeep.verify
    drifts = run(check(settings_of_ledger(data)))
    found = [{"kind": d.kind, "subject": d.subject, "detail": d.detail} for d in drifts]
    if as_json:
        echo_json({"clean": not found, "drift": found})
    else:
        for drift in printed(found):
            click.echo(f"{drift['kind']}: {drift['subject']}: {drift['detail']}")
        click.echo(f"{len(found)} to look at" if found else "clean")
    click.get_current_context().exit(1 if found else 0)


@click.group()
def ledger() -> None:
    """Back up, restore, prune or measure the ledger."""


@ledger.command()
@click.option(
    "--older-than",
    type=Age(),
    required=True,
    help="How long ago a job must have ended, such as 30d.",
)
@click.option("--dry-run", is_flag=True, help="Only count the jobs. The server may be running.")
@click.option("--yes", "-y", is_flag=True, help="Delete without asking.")
@with_data
@with_json
def prune(older_than: timedelta, dry_run: bool, yes: bool, data: Path, as_json: bool) -> None:
    """Delete old jobs and their workspaces. Count them and ask first.

    These stay: jobs that still owe something, such as a webhook; jobs in `lucius dlq`, until they
    are redriven or dismissed; and jobs whose workspace a redriven job still needs. Stop the server
    first: only one process can write to the ledger. A server deletes old jobs by itself where
    LUCIUS_RETENTION is set.
    """
    from lucius.app import upkeep

    settings, before = settings_of_ledger(data), datetime.now(UTC) - older_than
    if dry_run or not yes:
        count = run(upkeep.prunable(settings, before))
        if dry_run:
            _show({"prunable": count}, f"{_jobs(count)} would be deleted", as_json)
            return
        if count:
            _ask_to_delete(count)
    deleted = run(upkeep.prune(settings, before))
    _show({"deleted": deleted}, f"{_jobs(deleted)} deleted", as_json)


def _ask_to_delete(count: int) -> None:
    """Ask at a terminal. A script, which nobody can answer for, must give --yes."""
    if not is_interactive():
        raise click.UsageError(f"{_jobs(count)} would be deleted for good; add --yes to do it")
    click.confirm(f"delete {_jobs(count)} and their workspaces for good?", abort=True, err=True)


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


def settings_for(data: Path, **options: str) -> "Settings":
    """The settings in force. The command line goes before the environment."""
    return settings_in_force({**options, "LUCIUS_DATA_DIR": str(data)})


def settings_in_force(options: Mapping[str, str]) -> "Settings":
    """From the command line, the environment, and App Configuration where one of them names it."""
    from lucius.app.settings import load_settings

    given = {**os.environ, **options}
    if not any(text for name, text in given.items() if name.startswith("LUCIUS_APPCONFIG_CONN")):
        return load_settings(options=options)
    from lucius.app.upkeep import settings_with_stored

    return run(settings_with_stored(options))


def settings_beside(data: Path, **options: str) -> "Settings":
    """As `settings_for`. If `lucius up --stack NAME` runs on this directory, its settings are used for what
    the environment leaves out.
    """
    from lucius.app import stacks

    found = stacks.read(data)
    return settings_for(
        data, **{name: found[name] for name in found.keys() - os.environ}, **options
    )


def settings_of_command(data: Path) -> "Settings":
    """As `settings_beside`, where nothing is logged: warnings are printed."""
    settings = settings_beside(data)
    for warning in settings.warnings:
        click.echo(f"lucius: warning: {printed(warning)}", err=True)
    return settings


def settings_of_ledger(data: Path) -> "Settings":
    """As `settings_of_command`, for a ledger that must be there already."""
    from lucius.app.adapters import ledger_path

    settings = settings_of_command(data)
    if (path := ledger_path(settings)) is not None and not path.exists():
        raise click.BadParameter(f"there is no ledger in {data}", param_hint="--data")
    return settings


@ledger.command()
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@with_data
@with_json
def backup(target: Path, data: Path, as_json: bool) -> None:
    """Copy the ledger to the file TARGET. The server may be running.

    The command also names what the copy does not contain, such as workspaces and keys.
    """
    settings = settings_of_ledger(data)
    run(_backup(settings, target))
    missing = _not_in_backup(settings)
    lines = [
        f"backed up to {target}: {', '.join(IN_BACKUP)}",
        "The backup does not contain these; copy them as well:",
    ]
    lines += [f"  {what}: {where}" for what, where in missing.items()]
    answer = {"backup": str(target), "contains": IN_BACKUP, "does_not_contain": missing}
    _show(answer, "\n".join(lines), as_json)


IN_BACKUP = ["jobs", "events", "idempotency claims"]


def _not_in_backup(settings: "Settings") -> dict[str, str]:
    """What belongs to an installation besides its ledger, and where it is."""
    return {
        "workspaces with the outputs of steps": without_credentials(settings.workspace_url),
        "outputs that clients named": "where each job's output_ref says",
        "API keys, secrets and the name of the installation": ", ".join(
            str(settings.data_dir / name)
            for name in ("keys.json", "callback.key", "webhook.key", "installation")
        ),
        "protocols and settings": "LUCIUS_PROTOCOLS and the environment",
    }


async def _backup(settings: "Settings", target: Path) -> None:
    from lucius.app.adapters import open_ledger

    ledger = await open_ledger(settings, readonly=True)
    try:
        if not isinstance(ledger, BacksUp):
            raise click.ClickException("this ledger is backed up with its own storage's tools")
        await ledger.backup(target)
    finally:
        await ledger.close()


@ledger.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace the ledger that is there.")
@with_data
@with_json
def restore(source: Path, force: bool, data: Path, as_json: bool) -> None:
    """Put the backup SOURCE in place of the ledger. Stop the server first."""
    from lucius.app.upkeep import restore_ledger

    restore_ledger(settings_of_command(data), source, force=force)
    _show({"restored": str(source)}, f"restored from {source}", as_json)


@ledger.command()
@with_data
@with_json
def info(data: Path, as_json: bool) -> None:
    """Show how large the ledger is and what is in it."""
    facts = run(_facts(data))
    lines = "\n".join(f"{name}: {value}" for name, value in facts.items())
    _show(facts, lines, as_json)


async def _facts(data: Path) -> dict[str, Any]:
    from lucius.app.adapters import ledger_path, open_ledger
    from lucius.ports.ledger import JobQuery

    settings = settings_of_ledger(data)
    ledger = await open_ledger(settings, readonly=True)
    try:
        live = await ledger.inflight()
        failed = await ledger.list(JobQuery(dlq=True, limit=500))
    finally:
        await ledger.close()
    more, path = "+" if failed.next_cursor else "", ledger_path(settings)
    files = list(path.parent.glob(f"{path.name}*")) if path is not None else []
    return {
        "path": str(path or settings.storage_backend),
        "bytes": sum(file.stat().st_size for file in files),
        "live_jobs": live.total,
        "tenants_with_live_jobs": len(live.tenants),
        "dlq": f"{len(failed.jobs)}{more}",
    }


def _show(value: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        echo_json(value)
    else:
        click.echo(text)
