"""The entry point: the commands, and one place where errors become messages and exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

import sys
from typing import Any

import click

from lucius import __version__
from lucius.cli.control import cancel, pause, redrive, resume
from lucius.cli.demo import demo
from lucius.cli.dlq import dlq
from lucius.cli.jobs import events, jobs, show, watch
from lucius.cli.keys import keys
from lucius.cli.ledger import ledger, verify
from lucius.cli.outbox import outbox
from lucius.cli.processes import service, up
from lucius.cli.settings import protocols, settings
from lucius.cli.submit import submit


class Commands(click.Group):
    """Errors that have a message for people are shown as that message, never as a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            message = _message(error)
            if message is None:
                raise
            click.echo(f"lucius: {message}", err=True)
            ctx.exit(1)


def _message(error: Exception) -> str | None:
    """Only what was loaded can have been raised, so nothing is imported for this."""
    client = sys.modules.get("lucius.client")
    if client is not None and isinstance(error, client.UnreachableError):
        return (
            f"{error}\nIs the server running? `lucius up` starts one; --url or LUCIUS_URL names it."
        )
    if client is not None and isinstance(error, client.ProblemError):
        lines = [str(error)]
        lines += [
            f"  {fault.get('pointer') or fault.get('parameter') or '/'}: {fault['detail']}"
            for fault in error.errors
        ]
        return "\n".join(lines)
    if client is not None and isinstance(error, client.ClientError):
        return str(error)
    errors = sys.modules.get("lucius.core.errors")
    if errors is not None and isinstance(error, errors.LuciusError):
        return str(error)
    if isinstance(error, OSError | TimeoutError) and not isinstance(error, BrokenPipeError):
        return str(error) or type(error).__name__
    return None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lucius")
def main() -> None:
    """LUCIUS: a control plane for multi-step document work."""


@main.group()
def job() -> None:
    """Look at one job and steer it."""


for command in (show, watch, events, cancel, pause, resume, redrive):
    job.add_command(command)
for command in (
    up,
    demo,
    submit,
    jobs,
    dlq,
    outbox,
    verify,
    ledger,
    settings,
    protocols,
    keys,
    service,
):
    main.add_command(command)


if __name__ == "__main__":
    main()
