"""The entry point: the commands, and one place where errors become messages and exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

import atexit
import os
import sys
from typing import Any, Final

import click

from lucius import __version__, build
from lucius.cli.bus import bus
from lucius.cli.certify import certify
from lucius.cli.control import cancel, pause, redrive, resume, retry
from lucius.cli.demo import demo
from lucius.cli.dlq import dlq
from lucius.cli.failed import failures, redrive_plan, redrive_plans
from lucius.cli.failures import message_of, show_failure, show_usage
from lucius.cli.jobs import events, files, jobs, show, watch
from lucius.cli.keys import keys
from lucius.cli.ledger import ledger, verify
from lucius.cli.load import load
from lucius.cli.outbox import outbox
from lucius.cli.processes import invoker, orchestrator, reconciler, up, worker
from lucius.cli.service import service
from lucius.cli.services import pause_service, resume_service, services
from lucius.cli.settings import protocols, settings
from lucius.cli.submit import submit
from lucius.cli.submit_many import submit_many
from lucius.cli.temporal import temporal
from lucius.cli.why import why

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


if __name__ == "__main__":
    main()
