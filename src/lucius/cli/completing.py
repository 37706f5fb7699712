"""What the shell is told when somebody presses Tab: files, states, request types and ids of jobs.

Types and ids are asked of the server. Where it does not answer, nothing is offered and nothing is said.
"""

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from lucius.contract import DEFAULT_URL
from lucius.contract.words import JobState

if TYPE_CHECKING:
    from lucius.client.plain import PlainClient

Items = list[CompletionItem]
LAST: Final = "last"
PATIENCE_SECONDS: Final = 2.0
MOST_IDS: Final = 50


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The shell itself knows the files."""
    return [CompletionItem(incomplete, type="file")]


def states(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    return [CompletionItem(each) for each in JobState if each.startswith(incomplete.upper())]


def request_types(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    async def ask(client: "PlainClient") -> list[str]:
        return [each["request_type"] for each in (await client.protocols())["protocols"]]

    return _offered(ctx, ask, incomplete)


def job_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The newest ones, and `last`."""

    async def ask(client: "PlainClient") -> list[str]:
        return [LAST, *(job["jobId"] for job in (await client.jobs(limit=MOST_IDS))["jobs"])]

    return _offered(ctx, ask, incomplete)


def _offered(
    ctx: click.Context, ask: "Callable[[PlainClient], Awaitable[list[str]]]", incomplete: str
) -> Items:
    import asyncio

    from lucius.client import ClientError
    from lucius.client.client import key_in
    from lucius.client.plain import PlainClient

    async def asked() -> list[str]:
        url = ctx.params.get("url") or os.environ.get("LUCIUS_URL") or DEFAULT_URL
        file, key = ctx.params.get("api_key_file"), ctx.params.get("api_key")
        key = key_in(file) if file else key
        client = PlainClient(url, api_key=key, retries=0, timeout_seconds=PATIENCE_SECONDS)
        async with client:
            return await ask(client)

    try:
        found = asyncio.run(asked())
    except (ClientError, OSError, TimeoutError):
        return []
    return [CompletionItem(each) for each in found if _fits(each, incomplete)]


def _fits(word: str, incomplete: str) -> bool:
    """What could steer a terminal is not offered."""
    return word.startswith(incomplete) and word.isprintable()


def quoted_type(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A shell that reads `OCR->EMBEDDING` without quotes hands over `OCR-`, and writes a file EMBEDDING."""
    if value is None or not value.endswith("-"):
        return value
    raise click.BadParameter(
        f"{value} ends with a dash: the shell took > for a redirection to a file."
        f" Put the type in quotes, such as '{value}>EMBEDDING'"
    )


job_argument = click.argument("job_id", metavar="JOB", shell_complete=job_ids)
