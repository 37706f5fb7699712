"""Structured logs: one line for each record, as JSON or as text, with the fields that find a job again.

A call names them: `log.info("retried", extra=job_fields(job))`. Secrets do not get through.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TextIO

from lucius.core.job import Job
from lucius.core.text import printable, printable_json
from lucius.system import tracing

# The last guard of the logs: it replaces what looks like a secret before a line is written.

BLOT: Final = "***"
MAX_TEXT: Final = 20_000
MAX_ID: Final = 256
CUT: Final = "...[cut]"
_NAMES: Final = (
    r"[\w-]*(?:token|secret|passw(?:or)?d|pwd|passphrase|api[_-]?key|account[_-]?key|access[_-]?key"
    r"|private[_-]?key|credentials?|authorization|signature|cookie)"
)
_VALUE: Final = r"\\\".*?\\\"|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s\"',;&{}\[\]()]+"


class Rule(NamedTuple):
    """A pattern and its replacement. It is tried only where the text in lower case has one of `hints`."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str = BLOT


_RULES: Final = (
    Rule(
        ("-----begin",),
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.S),
    ),
    Rule(("bearer", "basic"), re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\1 {BLOT}"),
    Rule(("//",), re.compile(r"//[^/@\s]*@"), f"//{BLOT}@"),
    Rule(
        ("token", "secret", "pass", "pwd", "key", "cred", "auth", "signature", "cookie"),
        re.compile(rf"(?i)((?<![\w-]){_NAMES}\\?[\"']?\s*[:=]\s*)(?:{_VALUE})"),
        rf"\1{BLOT}",
    ),
    Rule(
        ("sig=", "sas=", "key=", "code=", "sv=", "st=", "se=", "sp="),
        re.compile(r"(?i)([?&;](?:sig|sas|[\w-]*key|code|sv|st|se|sp)=)[^\s&;\"']+"),
        rf"\1{BLOT}",
    ),
    Rule(("lk_",), re.compile(r"\blk_[\w-]+"), f"lk_{BLOT}"),
    Rule(("whsec_",), re.compile(r"\bwhsec_[\w+/=]+"), f"whsec_{BLOT}"),
    Rule(("eyj",), re.compile(r"\beyJ[\w-]{1,1000}\.[\w-]+\.[\w-]*")),
    Rule((".",), re.compile(r"(?<![\w.-])[\w-]+\.[\w-]+\.[\w-]{43}(?![\w-])")),
    Rule(("akia", "asia"), re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
)
"""Named values, credentials in URLs, and the shapes of keys: API keys, webhook secrets, JWTs and
callback tokens (which end in a MAC of 43 characters)."""


_SEPARATOR: Final = re.compile(r"[\s=:/.]")
_PREFIXES: Final = ("lk_", "whsec_", "AKIA", "ASIA")
"""No rule matches a short text without a separator or a prefix. So ids, which every record has, are quick."""


def redacted(text: str) -> str:
    """The text without secrets, and not longer than the maximum. No text takes more than linear time."""
    if len(text) <= MAX_ID and _SEPARATOR.search(text) is None:
        if not any(prefix in text for prefix in _PREFIXES):
            return text
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + CUT
    lowered = text.lower()
    for hints, pattern, replacement in _RULES:
        if any(hint in lowered for hint in hints):
            text = pattern.sub(replacement, text)
    return text


FIELDS: Final = (
    "jobId",
    "stepId",
    "tenant_id",
    "attempt_no",
    "lease_id",
    "correlation_id",
    "trace_id",
)
TALKATIVE: Final = {
    **dict.fromkeys(("httpx", "httpcore", "uvicorn.access", "asyncio"), logging.WARNING),
    "uvicorn.error": logging.ERROR,
}
"""Libraries that log every request, or their inner workings, and from which level on they are heard.

uvicorn warns of every request that is none, which anyone can send: those are counted.
"""


def job_fields(
    job: Job, step_id: str | None = None, attempt_no: int | None = None, lease_id: str | None = None
) -> dict[str, Any]:
    plan = job.plan
    return {
        "jobId": plan.job_id,
        "stepId": step_id,
        "tenant_id": plan.tenant_id,
        "attempt_no": attempt_no,
        "lease_id": lease_id,
        "correlation_id": plan.correlation_id,
        "trace_id": tracing.trace_id(plan.traceparent),
    }


def message_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields, taken from a directive or a reply."""
    fields = {name: body.get(name) for name in FIELDS if name != "trace_id"}
    return {**fields, "trace_id": tracing.trace_id(body.get("traceparent"))}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found = {name: getattr(record, name, None) for name in FIELDS}
    found["trace_id"] = found["trace_id"] or tracing.current_trace_id()
    return {name: _plain(value) for name, value in found.items() if value is not None}


def _plain(value: object) -> str | int:
    """Texts and numbers. A reply may hold anything, and a value that is nested too deep for JSON would raise
    out of the call that logs it.
    """
    if isinstance(value, str):
        return redacted(value)
    return value if isinstance(value, int) else f"({type(value).__name__})"


def _message(record: logging.LogRecord) -> str:
    """The message of a record. If its arguments do not fit its format, it is logged unformatted."""
    try:
        return redacted(record.getMessage())
    except Exception as error:
        return redacted(f"{record.msg!r} could not be formatted: {error!r}")


def _stack(record: logging.LogRecord) -> str | None:
    if not record.exc_info or record.exc_info[0] is None:
        return None
    return redacted("".join(traceback.format_exception(*record.exc_info)).rstrip())


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
            **_fields(record),
        }
        stack = _stack(record)
        if stack is not None:
            line["stack"] = stack
        return printable_json(json.dumps(line, ensure_ascii=False, default=str))


class TextFormatter(logging.Formatter):
    """Lines for people. Control characters are escaped, so that no message steers the terminal.

    Line breaks are escaped too and stacks indented, so that no message looks like another record.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).isoformat(" ", "milliseconds")
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = printable(f"{record.levelname} {record.name} {_message(record)}{fields}")
        stack = (_stack(record) or "").split("\n")
        return "\n  ".join([f"{at} {line}", *(printable(each) for each in stack if each)])


def configure_logs(level: str, form: str, stream: TextIO | None = None) -> None:
    """Let all loggers of the process write to standard error, and nowhere else."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name, least in TALKATIVE.items():
        logging.getLogger(name).setLevel(least)
    logging.captureWarnings(True)
