"""What commands share: the options that name the server, and how answers are shown."""

import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from lucius.cli.screen import printed
from lucius.contract import DEFAULT_URL
from lucius.core.ids import digits_in, made_between
from lucius.core.text import printable_json

if TYPE_CHECKING:
    from rich.console import Console

    from lucius.client.plain import PlainClient


# Groups that list when no command is given: `lucius jobs` is `lucius jobs list`.


class ListByDefault(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and not args:  # the shell asks what may come next
            return super().parse_args(ctx, args)
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["list", *args])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Its commands, and the options of the list."""
        listed = self.commands["list"]
        below = click.Context(listed, parent=ctx, info_name="list", resilient_parsing=True)
        options = listed.shell_complete(below, incomplete) if incomplete.startswith("-") else []
        return super().shell_complete(ctx, incomplete) + options


# Ids of jobs as people type them: whole, the beginning of one, or `last`.

LAST = "last"
_MOST_SHOWN = 5
_MOST_PAGES = 4


async def whole_id(client: "PlainClient", text: str) -> str:
    """The id of the one job that is meant. What cannot be the beginning of an id is left as it is."""
    if text == LAST:
        jobs = (await client.jobs(limit=1))["jobs"]
        if not jobs:
            raise click.UsageError("there is no job yet, so none is the last one")
        return str(jobs[0]["jobId"])
    digits = digits_in(text)
    if digits is None:
        return text
    found = await _beginning_with(client, digits)
    if len(found) > 1:
        shown = ", ".join(found[:_MOST_SHOWN]) + (" ..." if len(found) > _MOST_SHOWN else "")
        raise click.UsageError(f"{text} is the beginning of several ids: {shown}; give more of it")
    return found[0] if found else text


async def _beginning_with(client: "PlainClient", digits: str) -> list[str]:
    """An id begins with its time, so the beginning of one says when its job was accepted."""
    first, after = (_instant(at) for at in made_between(digits))
    query: dict[str, str | int] = {"created_from": first, "created_to": after, "limit": 500}
    found: list[str] = []
    for _ in range(_MOST_PAGES):
        page = await client.jobs(**query)
        ids = (job["jobId"] for job in page["jobs"])
        found += [job_id for job_id in ids if job_id.startswith(f"job_{digits}")]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    return found


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """How one command talks to the server and to its user."""

    url: str = DEFAULT_URL
    api_key: str | None = None
    as_json: bool = False

    def call(self, ask: "Callable[[PlainClient], Awaitable[T]]") -> T:
        """What the server answers; without control characters where it is shown as text."""

        async def connected() -> T:
            async with self.connect() as client:
                return await ask(client)

        answer = run(connected())
        return answer if self.as_json else printed(answer)

    def call_job(self, job_id: str, ask: "Callable[[PlainClient, str], Awaitable[T]]") -> T:
        """The same about one job, whose id may be cut short, or `last`."""

        async def asked(client: "PlainClient") -> T:
            return await ask(client, await whole_id(client, job_id))

        return self.call(asked)

    def connect(self) -> "PlainClient":
        from lucius.client.plain import PlainClient

        return PlainClient(self.url, api_key=self.api_key, retries=2)

    def show(self, value: Any, render: Callable[[Any], None]) -> None:
        if self.as_json:
            echo_json(value)
        else:
            render(value)


def show_warnings(answer: Any, about: str = "") -> None:
    """On standard error, where answers for programs do not go. `about`: what the answer was to."""
    for each in printed(answer).get("warnings", ()):
        said = f"{about}{each.get('pointer', '')} {each['detail']}"
        click.echo(f"lucius: warning: {said} It is kept and passed on as it is.", err=True)


def with_server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--url`, `--json` and the options of the API key, and hand them over as one `Session`."""

    @click.option(
        "--url",
        envvar="LUCIUS_URL",
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        help="Address of the server.",
    )
    @with_api_key("API key to send.")
    @with_json
    @wraps(command)
    def wrapped(url: str, api_key: str | None, as_json: bool, **options: Any) -> Any:
        return command(Session(url, api_key, as_json), **options)

    return wrapped


def with_api_key(about: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--api-key` and `--api-key-file`, and hand the key to the command."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option(
            "--api-key",
            envvar="LUCIUS_API_KEY",
            show_envvar=True,
            help=f"{about} Other users of this machine see it in the list of processes: rather set"
            " LUCIUS_API_KEY, or name a file.",
        )
        @click.option(
            "--api-key-file",
            metavar="FILE",
            help="File that holds the API key. LUCIUS_API_KEY_FILE names one too.",
        )
        @wraps(command)
        def wrapped(api_key: str | None, api_key_file: str | None, **options: Any) -> Any:
            return command(api_key=_chosen_key(api_key, api_key_file), **options)

        return wrapped

    return decorated


def _chosen_key(api_key: str | None, path: str | None) -> str | None:
    """A file that the command line names goes before the environment."""
    if path is None:
        return api_key
    source = click.get_current_context().get_parameter_source("api_key")
    if source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("give either --api-key or --api-key-file")
    from lucius.client.client import key_in

    return key_in(path)


reason_option = click.option(
    "--reason", metavar="TEXT", help="Why: events and `lucius why` show it with your name."
)


def with_json(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def echo_json(value: Any) -> None:
    click.echo(printable_json(json.dumps(value, indent=2, ensure_ascii=False, default=str)))


def console() -> "Console":
    """A new console for each use, because the terminal may have changed its size."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it on asyncio, which is imported only here, so that `--help` is quick."""
    import asyncio

    return asyncio.run(work)


def run_in_order(work: Coroutine[Any, Any, T]) -> T:
    """As `run`, for work that starts processes: SIGTERM ends it as Ctrl-C does, and them with it."""
    import asyncio
    import signal

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None
