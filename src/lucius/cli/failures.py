"""How errors are shown: a message for people, or with `--json` an object with a `code` for programs.

An error can only come from a module that is loaded already, so this imports none.
"""

import io
import json
import re
import sys
from typing import Any

import click

from lucius.core.printable import printable, printable_json, printable_lines


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
