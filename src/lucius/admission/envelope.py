"""Reading a request's envelope (v1): every field checked, every fault named, nothing copied."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lucius.admission.faults import (
    INVALID_ENVELOPE,
    PAYLOAD_TOO_LARGE,
    UNSUPPORTED_SCHEMA_VERSION,
    Faults,
)
from lucius.core.json_faults import json_faults
from lucius.core.limits import ENTITY_BYTES, MAX_DEPTH
from lucius.core.plan import EMPTY, Json, Mode
from lucius.core.references import ReferencePolicy, reference_faults, webhook_fault
from lucius.core.routing import MODE_SPELLINGS, parse_mode
from lucius.core.trace_context import is_traceparent, tracestate

SCHEMA_VERSIONS: Final = ("v1", "1", "1.0")
"""Spellings of the one envelope there is. They are kept as given."""

MAX_NAME: Final = 128
"""Characters of a tenant id."""
MAX_TEXT: Final = 256
"""Characters of every other short field."""
MAX_CALLBACK_URLS: Final = 8

KNOWN_FIELDS: Final = frozenset(
    {"tenant_id", "request_type", "input_ref", "output_ref", "payload", "schema_version"}
    | {"mode", "doc_id", "idempotency_key", "callback_urls", "correlation_id", "traceparent"}
)

_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS


@dataclass(slots=True)
class Envelope:
    """The fields of a request; meaningless while there are faults."""

    tenant_id: str
    request_type: str
    schema_version: str
    payload: Json | None
    mode: Mode | None
    doc_id: str | None
    idempotency_key: str | None
    correlation_id: str | None
    traceparent: str | None
    callback_urls: tuple[str, ...]
    extra: Json
    size: int
    """Bytes of the whole envelope as JSON."""


@dataclass(frozen=True, slots=True)
class EnvelopePolicy:
    references: ReferencePolicy
    webhook_schemes: tuple[str, ...]
    webhook_hosts: tuple[str, ...]


def encoded_json(value: Any) -> bytes:
    """The value as JSON. Raises RequestError for what JSON cannot carry, naming every place."""
    try:
        text = orjson.dumps(value, option=_OPTIONS)
    except (TypeError, ValueError) as error:
        _raise_json(value, str(error))
    if len(text) > ENTITY_BYTES:
        faults = Faults()
        faults.add(PAYLOAD_TOO_LARGE, "", f"is larger than {ENTITY_BYTES} bytes")
        faults.raise_all()
    # A number that is not finite is written as null, and no text nests deeper than it has brackets.
    if b"null" in text or text.count(b"{") + text.count(b"[") > MAX_DEPTH:
        _raise_json(value, None)
    return text


def _raise_json(value: Any, otherwise: str | None) -> None:
    faults = Faults()
    for at, reason in json_faults(value):
        faults.add(INVALID_ENVELOPE, at, reason)
    if not faults and otherwise is not None:
        faults.add(INVALID_ENVELOPE, "", otherwise)
    if faults:
        faults.raise_all()


def read_envelope(
    given: Mapping[str, Any], header_key: str | None, policy: EnvelopePolicy, faults: Faults
) -> Envelope:
    if not isinstance(given, dict):
        given = _object(given, faults)
    size = len(encoded_json(given))
    if not isinstance(given.get("overwrite"), bool | None):
        faults.add(INVALID_ENVELOPE, "/overwrite", "must be true or false")
    _check_references(given, policy.references, faults)
    callback_urls = given.get("callback_urls")
    traceparent = given.get("traceparent")
    return Envelope(
        tenant_id=_text(given, "tenant_id", faults, MAX_NAME, required=True) or "",
        request_type=_text(given, "request_type", faults, required=True) or "",
        schema_version=_schema_version(given, faults),
        payload=_payload(given, faults),
        mode=_mode(given, faults),
        doc_id=_text(given, "doc_id", faults),
        idempotency_key=_idempotency_key(given, header_key, faults),
        correlation_id=_text(given, "correlation_id", faults),
        traceparent=None if traceparent is None else _traceparent(traceparent, faults),
        callback_urls=() if callback_urls is None else _urls(callback_urls, policy, faults),
        extra=_extra(given, traced=traceparent is not None),
        size=size,
    )


def _object(given: Any, faults: Faults) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        faults.add(INVALID_ENVELOPE, "", "must be a JSON object")
        faults.raise_all()
    return dict(given)


def _extra(given: Mapping[str, Any], *, traced: bool) -> Json:
    if KNOWN_FIELDS.issuperset(given):
        return EMPTY
    extra = {name: value for name, value in given.items() if name not in KNOWN_FIELDS}
    if "tracestate" in extra:
        state = tracestate(extra.pop("tracestate"))
        return extra if state is None or not traced else {**extra, "tracestate": state}
    return extra


def _text(
    given: Mapping[str, Any],
    name: str,
    faults: Faults,
    limit: int = MAX_TEXT,
    *,
    required: bool = False,
) -> str | None:
    value = given.get(name)
    if value is None:
        if required:
            faults.add(INVALID_ENVELOPE, f"/{name}", "is required")
        return None
    if value.__class__ is str and len(value) <= limit and value.isprintable() and value.strip():
        return str(value)
    reason = _text_fault(value, limit)
    if reason is None:
        return str(value)
    faults.add(INVALID_ENVELOPE, f"/{name}", reason)
    return None


def _text_fault(value: Any, limit: int) -> str | None:
    if not isinstance(value, str):
        return "must be a string"
    if not value.strip() or len(value) > limit:
        return f"must have 1 to {limit} characters"
    return None if value.isprintable() else "contains a control or invisible character"


def _check_references(given: Mapping[str, Any], policy: ReferencePolicy, faults: Faults) -> None:
    for name in ("input_ref", "output_ref"):
        value = given.get(name)
        if value is None:
            faults.add(INVALID_ENVELOPE, f"/{name}", "is required")
            continue
        for fault in reference_faults(value, f"/{name}", policy):
            faults.add(*fault)


def _schema_version(given: Mapping[str, Any], faults: Faults) -> str:
    value = given.get("schema_version")
    if isinstance(value, str) and value in SCHEMA_VERSIONS:
        return value
    if value is None:
        faults.add(INVALID_ENVELOPE, "/schema_version", "is required")
    elif isinstance(value, str):
        reason = f"must be one of {', '.join(SCHEMA_VERSIONS)}"
        faults.add(UNSUPPORTED_SCHEMA_VERSION, "/schema_version", reason)
    else:
        faults.add(INVALID_ENVELOPE, "/schema_version", "must be a string")
    return ""


def _payload(given: Mapping[str, Any], faults: Faults) -> Json | None:
    value = given.get("payload")
    if isinstance(value, dict):
        return value
    reason = "is required" if value is None else "must be an object"
    faults.add(INVALID_ENVELOPE, "/payload", reason)
    return None


def _mode(given: Mapping[str, Any], faults: Faults) -> Mode | None:
    value = given.get("mode")
    if value is None:
        return None
    mode = parse_mode(value) if isinstance(value, str) else None
    if mode is None:
        faults.add(INVALID_ENVELOPE, "/mode", f"must be one of {', '.join(MODE_SPELLINGS)}")
    return mode


def _idempotency_key(
    given: Mapping[str, Any], header_key: str | None, faults: Faults
) -> str | None:
    key = _text(given, "idempotency_key", faults)
    if header_key is None:
        return key
    reason = _text_fault(header_key, MAX_TEXT)
    if reason is not None:
        faults.add(INVALID_ENVELOPE, "/idempotency_key", f"the header {reason}")
    elif key is not None and key != header_key:
        faults.add(INVALID_ENVELOPE, "/idempotency_key", "differs from the header Idempotency-Key")
    return header_key


def _traceparent(value: Any, faults: Faults) -> str | None:
    if isinstance(value, str) and is_traceparent(value):
        return value
    faults.add(
        INVALID_ENVELOPE,
        "/traceparent",
        "must be a W3C traceparent: 00-, 32 hex digits, -, 16 hex digits, -01",
    )
    return None


def _urls(value: Any, policy: EnvelopePolicy, faults: Faults) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_CALLBACK_URLS:
        reason = f"must be a list of at most {MAX_CALLBACK_URLS} URLs"
        faults.add(INVALID_ENVELOPE, "/callback_urls", reason)
        return ()
    for index, url in enumerate(value):
        fault = webhook_fault(url, policy.webhook_schemes, policy.webhook_hosts)
        if fault is not None:
            faults.add(INVALID_ENVELOPE, f"/callback_urls/{index}", fault)
    return tuple(value)
