"""The reference pages of the error codes, made from the registry and the routes."""

from collections.abc import Sequence

from lucius.api.declared import SHARED
from lucius.api.routing import ApiRoute
from lucius.contract.codes import CODES, ProblemCode


def error_pages(routes: Sequence[ApiRoute]) -> dict[str, str]:
    """By file name, with an index."""
    pages = {known.page: _page(known, routes) for known in CODES.values()}
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


def _page(known: ProblemCode, routes: Sequence[ApiRoute]) -> str:
    lines = [f"# {known.code}", "", f"{known.title}. HTTP status {known.status}.", ""]
    lines += ["## What it means", "", known.explanation, "", "## What to do", "", known.action]
    if known.retry_after:
        lines += [
            "",
            "The answer carries `Retry-After`: wait that many seconds, then repeat it as is.",
        ]
    lines += ["", "## Who answers with it", "", *_answering(known, routes)]
    return "\n".join(lines) + "\n"


def _answering(known: ProblemCode, routes: Sequence[ApiRoute]) -> list[str]:
    kinds = [kind.value for kind, codes in SHARED.items() if known.code in codes]
    single = [f"`{each.method} {each.path}`" for each in routes if known.code in each.own_codes]
    return [f"- {name}" for name in (*kinds, *single)]
