"""The entry point: the commands, and one place where errors become messages and exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

import atexit
import io
import json
import os
import re
import sys
from typing import Any, Final

import click

from lucius import __version__, build
from lucius.cli.certify import certify
from lucius.cli.demo import demo
from lucius.cli.failures import dlq, failures, redrive_plan, redrive_plans, webhooks, why
from lucius.cli.jobs import (
    cancel,
    events,
    files,
    jobs,
    outbox,
    pause,
    redrive,
    resume,
    retry,
    show,
    watch,
)
from lucius.cli.keys import keys
from lucius.cli.ledger import ledger, verify
from lucius.cli.load import load
from lucius.cli.processes import invoker, orchestrator, reconciler, up, worker
from lucius.cli.services import (
    drop_worker,
    pause_service,
    resume_service,
    service,
    services,
)
from lucius.cli.settings import bus, protocols, settings, temporal
from lucius.cli.submit import submit, submit_many
from lucius.core.text import printable, printable_json, printable_lines

# How errors are shown: a message for people, or with `--json` an object with a `code` for programs.
#
# An error can only come from a module that is loaded already, so this imports none.


def message_of(error: Exception) -> str | None:
    """The message to show; None for an error that nobody foresaw, which is shown with its traceback."""
    client = sys.modules.get("lucius.client")
    if client is not None and isinstance(error, client.UnreachableError):
        hint = "Is the server running? `lucius up` starts one; --url or LUCIUS_URL names it."
        return f"{printable(str(error))}\n{hint}"
    if client is not None and isinstance(error, client.ProblemError):
        return "\n".join(map(printable, error.lines))
    if client is not None and isinstance(error, client.ClientError):
        return printable(str(error))
    errors = sys.modules.get("lucius.core.errors")
    if errors is not None and isinstance(error, errors.LuciusError):
        return printable_lines(str(error))
    if isinstance(error, OSError | TimeoutError) and not isinstance(error, BrokenPipeError):
        named = f"{error.filename}: {error.strerror}" if getattr(error, "filename", None) else ""
        return printable(named or str(error)) or type(error).__name__
    return None


def code_of(error: Exception) -> str:
    """The code of a problem; else one made of the class: `LedgerLockedError` gives LEDGER_LOCKED."""
    if isinstance(error, click.UsageError):
        return "USAGE"
    if isinstance(error, click.ClickException):
        return "FAILED"
    given = getattr(error, "code", None)
    if isinstance(given, str):
        return given
    if type(error).__name__ in ("LuciusError", "ClientError"):
        return "FAILED"
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", type(error).__name__.removesuffix("Error"))
    return "_".join(words).upper()


def show_usage(error: click.ClickException, *, as_json: bool) -> None:
    """Show click's own text with the usage of the command, without control characters."""
    if as_json:
        show_failure(error, error.format_message(), as_json=True)
        return
    text = io.StringIO()
    error.show(text)
    click.echo(printable_lines(text.getvalue()), nl=False, err=True)


def show_failure(error: Exception, message: str, *, as_json: bool) -> None:
    if as_json:
        document = json.dumps(_document(error, message), ensure_ascii=False)
        click.echo(printable_json(document), err=True)
    else:
        click.echo(f"lucius: {message}", err=True)


def _document(error: Exception, message: str) -> dict[str, Any]:
    """The object that goes to standard error; only answers go to standard output."""
    code, faults = code_of(error), getattr(error, "document", {}).get("errors")
    said = getattr(error, "detail", message).removeprefix(f"{code}: ")
    return {"code": code, "message": said} | ({"errors": faults} if faults else {})


AS_JSON: Final = "lucius.json"
WITH_THREADS: Final = ("temporalio.bridge.temporal_sdk_bridge", "obstore")
"""Libraries whose threads may crash an interpreter that is taken down, such as those of Temporal:
github.com/temporalio/sdk-python/issues/300."""


class Commands(click.Group):
    """The group of all commands. It shows errors as messages, not as tracebacks."""

    def main(self, args: Any = None, *more: Any, **how: Any) -> Any:
        """Without arguments it is the process itself, which ends here."""
        try:
            return super().main(args, *more, **how)
        except SystemExit as ended:
            threads = any(name in sys.modules for name in WITH_THREADS)
            if args is None and threads and isinstance(ended.code, int):
                end_at_once(ended.code)
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """With --json, mistakes in the command line are shown as JSON too."""
        ctx.meta[AS_JSON] = "--json" in args
        ctx.color = False if os.environ.get("NO_COLOR") else None
        try:
            return super().parse_args(ctx, args)
        except click.ClickException as error:
            show_usage(error, as_json=bool(ctx.meta[AS_JSON]))
            ctx.exit(error.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        as_json = bool(ctx.meta[AS_JSON])
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            show_usage(error, as_json=as_json)
            ctx.exit(error.exit_code)
        except Exception as error:
            message = message_of(error)
            if message is None:
                raise
            show_failure(error, message, as_json=as_json)
            ctx.exit(1)
        except KeyboardInterrupt:  # where Ctrl-C means something else, it has been handled
            click.echo("lucius: interrupted", err=True)
            ctx.exit(1)


def end_at_once(code: int) -> None:
    """What is to be done at the end is done; then the process is gone, with all its threads."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(f"{__version__} ({build()})", prog_name="lucius")
def main() -> None:
    """LUCIUS: a control plane for multi-step document work."""


@main.group()
def job() -> None:
    """Look at one job and steer it."""


for command in (show, watch, events, files, cancel, pause, resume, retry, redrive):
    job.add_command(command)
for command in (
    up,
    orchestrator,
    reconciler,
    invoker,
    worker,
    demo,
    submit,
    jobs,
    dlq,
    outbox,
    bus,
    temporal,
    verify,
    ledger,
    settings,
    protocols,
    keys,
    service,
    services,
    why,
    webhooks,
    submit_many,
    failures,
    redrive_plan,
    redrive_plans,
    certify,
    load,
):
    main.add_command(command)
for command in (pause_service, resume_service):
    service.add_command(command)
worker.add_command(drop_worker)


if __name__ == "__main__":
    main()
