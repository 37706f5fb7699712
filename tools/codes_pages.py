"""The reference pages of the error codes and of the causes: one page each, with an anchor for each code."""

from collections.abc import Iterable
from textwrap import fill
from typing import Final

from lucius.contract.causes import CAUSES, Cause
from lucius.contract.codes import CODES, ProblemCode

WIDTH: Final = 118
_ERRORS: Final = """# Error codes

Generated from `src/lucius/contract/codes`. Do not edit.

Every error is a problem document (RFC 9457) with a stable `code`. `/openapi.json` lists the codes of each
operation. Why a step or a job failed is in the [fault codes](fault-codes.md). An answer with `Retry-After`
says how many seconds to wait before you send the same request again.
"""
_CAUSES: Final = """# Causes

Generated from `src/lucius/contract/causes.py`. Do not edit.

`lucius why JOB` and `GET /v1/jobs/{jobId}/why` name one of these causes. `lucius why` and `GET /v1/why` list
those that hold for the system now, the worst first.

| severity | meaning |
|---|---|
| FINE | nothing is wrong |
| WAITS | the job goes on by itself, or when the person who paused it resumes it |
| PROBLEM | some jobs fail, or wait until someone acts |
| OUTAGE | nothing goes on |
"""


def errors_page() -> str:
    return _page(_ERRORS, map(_error, CODES.values()))


def causes_page() -> str:
    return _page(_CAUSES, map(_cause, CAUSES.values()))


def _page(head: str, entries: Iterable[tuple[str, ...]]) -> str:
    parts = (part if part.startswith("#") else _wrapped(part) for each in entries for part in each)
    return head + "".join(f"\n{part}\n" for part in parts)


def _wrapped(text: str) -> str:
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _error(known: ProblemCode) -> tuple[str, ...]:
    status = f"{known.status}, with `Retry-After`" if known.retry_after else str(known.status)
    about = f"{known.title} ({status}). {known.explanation}"
    return f"## {known.code}", about, f"*Do:* {known.action}"


def _cause(cause: Cause) -> tuple[str, ...]:
    about = f"{cause.title} ({cause.severity.name}). {cause.meaning}"
    by_itself, helps = f"*By itself:* {cause.by_itself}", f"*Do:* {cause.helps}"
    return f"## {cause.code}", about, by_itself, helps
