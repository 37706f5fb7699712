"""How errors are told: a message for people, or with `--json` an object with a `code` for programs.

Only what was loaded can have been raised, so nothing is imported for this.
"""

import json
import re
import sys
from typing import Any

import click


def message_of(error: Exception) -> str | None:
    """None: nobody foresaw this error, and it is shown as the defect that it is."""
    client = sys.modules.get("lucius.client")
    if client is not None and isinstance(error, client.UnreachableError):
        return (
            f"{error}\nIs the server running? `lucius up` starts one; --url or LUCIUS_URL names it."
        )
    if client is not None and isinstance(error, client.ClientError):
        return str(error)
    errors = sys.modules.get("lucius.core.errors")
    if errors is not None and isinstance(error, errors.LuciusError):
        return str(error)
    if isinstance(error, OSError | TimeoutError) and not isinstance(error, BrokenPipeError):
        return str(error) or type(error).__name__
    return None


def code_of(error: Exception) -> str:
    """The code of a problem; else the kind of error: `LedgerLockedError` is LEDGER_LOCKED."""
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


def show_failure(error: Exception, message: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_document(error, message), ensure_ascii=False), err=True)
    else:
        click.echo(f"lucius: {message}", err=True)


def _document(error: Exception, message: str) -> dict[str, Any]:
    """One line on standard error; standard output is for what was asked."""
    code, faults = code_of(error), getattr(error, "errors", None)
    said = getattr(error, "detail", message).removeprefix(f"{code}: ")
    return {"code": code, "message": said} | ({"errors": faults} if faults else {})
