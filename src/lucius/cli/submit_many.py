"""`lucius submit-many FILE`: every command of a file, one JSON object a line."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.session import Session, echo_json, show_warnings, with_server

if TYPE_CHECKING:
    from lucius.client.plain import PlainClient

AT_ONCE = 16
"""Commands that are on their way together."""


@click.command("submit-many")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@with_server
def submit_many(session: Session, file: Path) -> None:
    """Submit every command of a file: one envelope a line, as JSON.

    Print the id of each job in the order of the lines. The same file again finds the same jobs.
    """
    commands = _read(file)
    done = session.call(lambda client: _submitted(client, commands))
    for each in done:
        show_warnings(each, f"line {each['line']}: ")
    if session.as_json:
        echo_json({"jobs": done})
    else:
        for each in done:
            _show(each)
    click.get_current_context().exit(1 if any("code" in each for each in done) else 0)


def _read(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """Each command with its line. One that is no JSON object is refused before any is sent."""
    commands = []
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            command = json.loads(line)
        except ValueError as error:
            raise click.UsageError(
                f"{file}:{number} is no JSON: {error}; nothing was sent"
            ) from None
        if not isinstance(command, dict):
            raise click.UsageError(f"{file}:{number} is no JSON object; nothing was sent")
        commands.append((number, command))
    if not commands:
        raise click.UsageError(f"{file} has no commands")
    return commands


async def _submitted(
    client: "PlainClient", commands: list[tuple[int, dict[str, Any]]]
) -> list[dict[str, Any]]:
    import asyncio

    from lucius.client import ProblemError

    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, command: dict[str, Any]) -> dict[str, Any]:
        async with slots:
            try:
                by_body = not command.get("idempotency_key")
                return {"line": number, **await client.submit(command, by_body=by_body)}
            except ProblemError as error:
                return {"line": number, "code": error.code, "message": "\n".join(error.lines)}

    return list(await asyncio.gather(*(one(*each) for each in commands)))


def _show(each: dict[str, Any]) -> None:
    if "code" in each:
        click.echo(f"lucius: line {each['line']}: {each['message']}", err=True)
    else:
        click.echo(each["jobId"])
