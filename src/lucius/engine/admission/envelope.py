"""Reading a request's envelope (v1): every fault named, nothing copied.

The published schema says what a field may be. Here is what it cannot say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jsonschema_rs
import orjson

from lucius.contract.models.commands import envelope_schema
from lucius.contract.words import MAX_TEXT, REASON
from lucius.core.ids import tracestate
from lucius.core.limits import (
    ENTITY_BYTES,
    MAX_DEPTH,
    TENANT_KEY_CHARACTERS,
    json_faults,
    pointer,
    tenant_fits,
)
from lucius.core.plan import EMPTY, Json, Mode
from lucius.core.references import INVALID as REFERENCE_INVALID
from lucius.core.references import (
    ReferenceFault,
    ReferencePolicy,
    reference_faults,
    webhook_fault,
)
from lucius.core.routing import parse_mode
from lucius.engine.admission.faults import (
    INVALID_ENVELOPE,
    PAYLOAD_TOO_LARGE,
    UNSUPPORTED_SCHEMA_VERSION,
    Faults,
)

_RULES: Final = envelope_schema()["properties"]
_SCHEMA: Final = jsonschema_rs.Draft202012Validator(envelope_schema(), offline=True)
_TEXTS: Final = ("tenant_id", "request_type", "doc_id", "idempotency_key", "correlation_id")
_REFERENCES: Final = ("input_ref", "output_ref")
INVISIBLE: Final = "contains a control or invisible character"
TOO_LONG_IN_KEYS: Final = (
    f"has too many characters that storage must escape: at most {TENANT_KEY_CHARACTERS} are allowed"
    " where each of / \\ # ? | ~ counts four times"
)

PASSED_ON: Final = frozenset(("overwrite", "tracestate"))
"""Fields that are read where they are used, and are in every directive like those that nobody knows."""
KNOWN_FIELDS: Final = frozenset(_RULES) - PASSED_ON

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
    refused = set() if _SCHEMA.is_valid(given) else _refused(given, faults)
    sound = {name: given[name] for name in given if name not in refused} if refused else given
    _check_references(given, refused, policy.references, faults)
    _check_texts(sound, faults)
    mode, urls = sound.get("mode"), sound.get("callback_urls")
    return Envelope(
        tenant_id=sound.get("tenant_id", ""),
        request_type=sound.get("request_type", ""),
        schema_version=sound.get("schema_version", ""),
        payload=sound.get("payload"),
        mode=None if mode is None else parse_mode(mode),
        doc_id=sound.get("doc_id"),
        idempotency_key=_idempotency_key(sound.get("idempotency_key"), header_key, faults),
        correlation_id=sound.get("correlation_id"),
        traceparent=sound.get("traceparent"),
        callback_urls=_webhooks(urls, policy, faults) if urls else (),
        extra=_extra(given, traced=given.get("traceparent") is not None),
        size=size,
    )


def _refused(given: Mapping[str, Any], faults: Faults) -> set[str]:
    """Name every field that the schema refuses; the answer has those that are of no use at all."""
    refused: set[str] = set()
    for error in _SCHEMA.iter_errors(given):
        at, *below = error.instance_path or [getattr(error.kind, "property", "")]
        name = str(at)
        if not below:
            refused.add(name)
        if given.get(name) is None:
            faults.add(INVALID_ENVELOPE, pointer(name), "is required")
        elif name not in _REFERENCES:
            unsupported = name == "schema_version" and isinstance(given[name], str)
            code = UNSUPPORTED_SCHEMA_VERSION if unsupported else INVALID_ENVELOPE
            faults.add(code, pointer(name, *below), _reason(name, below, error.kind.name))
    return refused


def _reason(name: str, below: list[Any], kind: str) -> str:
    """As the schema has it; without a word there, the field is a text."""
    rule = _RULES[name]
    reason: str | None = (rule["items"] if below else rule).get(REASON)
    if reason is not None:
        return reason
    return (
        "must be a string" if kind == "type" else f"must have 1 to {rule['maxLength']} characters"
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


def _check_texts(sound: Mapping[str, Any], faults: Faults) -> None:
    for name in _TEXTS:
        text = sound.get(name)
        if text is not None and not text.isprintable():
            faults.add(INVALID_ENVELOPE, f"/{name}", INVISIBLE)
    if not tenant_fits(sound.get("tenant_id", "")):
        faults.add(INVALID_ENVELOPE, "/tenant_id", TOO_LONG_IN_KEYS)


def _check_references(
    given: Mapping[str, Any], refused: set[str], policy: ReferencePolicy, faults: Faults
) -> None:
    """The policy says more of a bad reference than the schema can, and where in it the fault is."""
    for name in _REFERENCES:
        value = given.get(name)
        if value is None:
            continue
        found = reference_faults(value, f"/{name}", policy)
        if not found and name in refused:
            reason = _RULES[name][REASON]
            found = [ReferenceFault(REFERENCE_INVALID, f"/{name}", reason)]
        for fault in found:
            faults.add(*fault)


def _idempotency_key(key: str | None, header_key: str | None, faults: Faults) -> str | None:
    if header_key is None:
        return key
    if not header_key.strip() or len(header_key) > MAX_TEXT:
        reason = f"the header must have 1 to {MAX_TEXT} characters"
        faults.add(INVALID_ENVELOPE, "/idempotency_key", reason)
    elif not header_key.isprintable():
        faults.add(INVALID_ENVELOPE, "/idempotency_key", f"the header {INVISIBLE}")
    elif key is not None and key != header_key:
        faults.add(INVALID_ENVELOPE, "/idempotency_key", "differs from the header Idempotency-Key")
    return header_key


def _webhooks(urls: list[Any], policy: EnvelopePolicy, faults: Faults) -> tuple[str, ...]:
    for index, url in enumerate(urls):
        fault = webhook_fault(url, policy.webhook_schemes, policy.webhook_hosts)
        if fault is not None:
            faults.add(INVALID_ENVELOPE, f"/callback_urls/{index}", fault)
    return tuple(urls)
