"""`lucius submit`: one command to the server, from options."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from lucius.cli import completing
from lucius.cli.session import Session, echo_json, show_warnings, with_server
from lucius.cli.watching import watched

if TYPE_CHECKING:
    from lucius.client.plain import PlainClient


# `lucius submit-many FILE`: every command of a file, one JSON object a line.

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
            _show_line(each)
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


def _show_line(each: dict[str, Any]) -> None:
    if "code" in each:
        click.echo(f"lucius: line {each['line']}: {each['message']}", err=True)
    else:
        click.echo(each["jobId"])


SCHEMA_VERSION = "v1"
JOB_ID = "{jobId}"
"""The server puts the job's id where this stands in an `output_ref`."""


@click.command()
@click.option(
    "--type",
    "request_type",
    required=True,
    shell_complete=completing.request_types,
    callback=completing.quoted_type,
    help="The request type, such as OCR->EMBEDDING->SIS.",
)
@click.option(
    "--tenant",
    "tenant_id",
    default="default",
    show_default=True,
    help="The tenant that the job is for.",
)
@click.option(
    "--input",
    "input_ref",
    required=True,
    metavar="REF",
    shell_complete=completing.files,
    help="The document: a URI or a local file.",
)
@click.option(
    "--output",
    "output_ref",
    metavar="REF",
    shell_complete=completing.files,
    help="Where the result goes: a URI or a path. Default: INPUT.{jobId}.result.json.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that is already at the output.")
@click.option("--payload", default="{}", metavar="JSON|@FILE", help="Parameters for the steps.")
@click.option(
    "--mode",
    type=click.Choice(["DEFAULT", "SAFE", "BURST"], case_sensitive=False),
    help="BURST spreads the documents of a tenant over all lanes.  [default: as configured]",
)
@click.option("--doc-id", help="Id of the document; needed in mode BURST.")
@click.option("--key", help="Idempotency key. Without one, the same command finds the same job.")
@click.option("--correlation-id", help="Your own id; logs and directives carry it.")
@click.option(
    "--callback-url",
    "callback_urls",
    multiple=True,
    help="Webhook to call when the job ends; may be given several times.",
)
@click.option(
    "--wait", is_flag=True, help="Follow the job to its end. Exit with 0 if it succeeds, else 1."
)
@with_server
def submit(
    session: Session,
    input_ref: str,
    output_ref: str | None,
    overwrite: bool,
    payload: str,
    key: str | None,
    wait: bool,
    callback_urls: tuple[str, ...],
    **fields: str | None,
) -> None:
    """Submit a command and print the id of its job."""
    envelope: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    envelope |= {
        "schema_version": SCHEMA_VERSION,
        "input_ref": reference(input_ref),
        "output_ref": _output(input_ref, output_ref),
        "payload": read_payload(payload),
    }
    if overwrite:
        envelope["overwrite"] = True
    if callback_urls:
        envelope["callback_urls"] = list(callback_urls)
    answer = session.call(
        lambda client: client.submit(envelope, idempotency_key=key, by_body=key is None)
    )
    show_warnings(answer)
    if wait:
        if not session.as_json:
            _show(answer)
        watched(session, answer["jobId"])
    session.show(answer, _show)


def _show(answer: Any) -> None:
    again = " (the same command as before)" if answer["duplicate"] else ""
    click.echo(f"{answer['jobId']}{again}")


def reference(text: str) -> str:
    """A URI stays as it is; anything else is taken as a local path and becomes a `file:` URI."""
    try:
        return text if "://" in text else Path(text).expanduser().resolve().as_uri()
    except (ValueError, OSError, RuntimeError) as error:
        raise click.BadParameter(f"{text!r} is neither a URI nor a path: {error}") from None


def _output(input_ref: str, output_ref: str | None) -> str:
    """By default the name has the job's id in it, so that two jobs on one input have two outputs."""
    if output_ref is None:
        return f"{reference(input_ref)}.{JOB_ID}.result.json"
    return output_of(output_ref)


def output_of(text: str) -> str:
    return reference(text).replace(quote(JOB_ID), JOB_ID)


def _refuse(name: str) -> None:
    raise ValueError(f"it has no {name}")


def read_payload(text: str) -> dict[str, Any]:
    """A payload given as JSON, or as @ and the name of a file with JSON."""
    try:
        content = Path(text[1:]).read_text("utf-8") if text.startswith("@") else text
        value = json.loads(content, parse_constant=_refuse)
    except OSError as error:
        reason = f"{text[1:]!r} cannot be read: {error.strerror}"
        raise click.BadParameter(reason, param_hint="--payload") from None
    except ValueError as error:
        reason = f"is not JSON: {error}; give a JSON object, or @ and the name of a file with one"
        raise click.BadParameter(reason, param_hint="--payload") from None
    if not isinstance(value, dict):
        raise click.BadParameter("must be a JSON object", param_hint="--payload")
    return value
