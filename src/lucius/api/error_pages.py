"""The reference pages of the error codes, made from the registry and the operations."""

from collections.abc import Sequence

from lucius.api.operation import Operation
from lucius.contract.codes import CODES, Operations, ProblemCode


def error_pages(operations: Sequence[Operation]) -> dict[str, str]:
    """By file name, with an index."""
    pages = {known.page: _page(known, operations) for known in CODES.values()}
    rows = [
        f"| [`{known.code}`]({known.page}) | {known.status} | {known.title} |"
        for known in CODES.values()
    ]
    index = [
        "# Error codes",
        "",
        "Every error is a problem document (RFC 9457) with a stable `code`. Why a step or a job failed",
        "(`last_error_code`, `error_code`) is in the [fault codes](../fault-codes.md).",
    ]
    index += ["", "| code | status | meaning |", "|---|---|---|", *rows]
    return {"README.md": "\n".join(index) + "\n", **pages}


def _page(known: ProblemCode, operations: Sequence[Operation]) -> str:
    lines = [f"# {known.code}", "", f"{known.title}. HTTP status {known.status}.", ""]
    lines += ["## What it means", "", known.explanation, "", "## What to do", "", known.action]
    if known.retry_after:
        lines += [
            "",
            "The answer carries `Retry-After`: wait that many seconds, then repeat it as is.",
        ]
    lines += ["", "## Who answers with it", "", *_answering(known, operations)]
    return "\n".join(lines) + "\n"


def _answering(known: ProblemCode, operations: Sequence[Operation]) -> list[str]:
    kinds = [name.value for name in known.answered_by if isinstance(name, Operations)]
    single = [
        f"`{operation.method} {operation.path}`"
        for operation in operations
        if operation.handler.__name__ in known.answered_by
    ]
    return [f"- {name}" for name in (*kinds, *single)]
