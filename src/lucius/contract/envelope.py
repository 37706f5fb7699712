"""The envelope of a command as a JSON schema: OpenAPI publishes it, and admission validates with it.

What a schema cannot say is checked beside it: which references are allowed, what looks like a
credential, how large the whole may be, whether a text has invisible characters.
"""

from typing import Any, Final

JsonObject = dict[str, Any]

SCHEMA_VERSIONS: Final = ("v1", "1", "1.0")
"""Spellings of the one envelope there is. They are kept as given, and the first is hashed for each."""
MODES: Final = ("DEFAULT", "SAFE", "BURST")
MAX_NAME: Final = 128
"""Characters of a tenant id."""
MAX_ESCAPED: Final = 256
"""Characters of a tenant id as storage writes it."""
MAX_TEXT: Final = 256
"""Characters of every other short field."""
MAX_URI: Final = 2048
MAX_CALLBACK_URLS: Final = 8
MAX_ATTEMPT_NO: Final = 2**31 - 1
MAX_SLOTS: Final = 65_536
"""Steps that one worker takes at once."""
ERROR_CODE: Final = r"[A-Z0-9_]{1,64}"
"""Codes are shown beside jobs of others, so they are words of a service, and never free text."""
UNCLASSIFIED: Final = "STEP_FAILED"
"""The code of a failure that names none."""
TRACEPARENT: Final = r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
"""The one rule of what a `traceparent` is, as a pattern for the whole text."""
REASON: Final = "x-lucius-reason"
"""In the schema of a field: what a client is told whose value does not fit."""


def _any_case(word: str) -> str:
    return "".join(f"[{letter}{letter.lower()}]" for letter in word)


def _or_null(rule: JsonObject) -> JsonObject:
    """A field that may be left out may be null as well."""
    return {**rule, "type": [rule["type"], "null"]}


TEXT: Final[JsonObject] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_TEXT,
    "pattern": r"\S",
}
TENANT: Final[JsonObject] = {
    **TEXT,
    "maxLength": MAX_NAME,
    "pattern": r"^\S(.*\S)?$",
    "description": "Without spaces at either end. Characters that storage must escape (`/ \\ # ? | ~`) count"
    f" four times, and {MAX_ESCAPED} are allowed in all",
    REASON: f"must have 1 to {MAX_NAME} characters, and no space at either end",
}
_URI: Final[JsonObject] = {
    "type": "string",
    "maxLength": MAX_URI,
    "pattern": "^[A-Za-z][A-Za-z0-9+.-]*://",
}
_REFERENCE: Final[JsonObject] = {
    "description": "A URI without credentials, or an object that has one",
    "anyOf": [_URI, {"type": "object", "required": ["uri"], "properties": {"uri": _URI}}],
    REASON: 'must be a URI or an object with a "uri"',
}
_OUTPUT: Final = "As `input_ref`; `{jobId}` in it stands for the id of the job"
_MODE: Final = "|".join(map(_any_case, MODES))

ENVELOPE: Final[JsonObject] = {
    "title": "Envelope",
    "type": "object",
    "description": "Fields that are not listed here are kept and passed on in every directive.",
    "required": [
        "tenant_id",
        "request_type",
        "input_ref",
        "output_ref",
        "payload",
        "schema_version",
    ],
    "properties": {
        "tenant_id": TENANT,
        "request_type": {**TEXT, "description": "Names a protocol; `->` and `→` are the same"},
        "input_ref": _REFERENCE,
        "output_ref": {**_REFERENCE, "description": _OUTPUT},
        "payload": {
            "type": "object",
            "description": "One step: its payload, whole. Several: `steps.<step_id>`, and no other"
            " ids there; or, without `steps`, one for all.",
            REASON: "must be an object",
        },
        "schema_version": {
            "type": "string",
            "enum": list(SCHEMA_VERSIONS),
            REASON: f"must be one of {', '.join(SCHEMA_VERSIONS)}",
        },
        "mode": {
            "type": ["string", "null"],
            "pattern": rf"^[ \t\r\n]*({_MODE})[ \t\r\n]*$",
            "description": f"{', '.join(MODES)}, in upper or lower case; `SAFE` is `DEFAULT`",
            "examples": list(MODES),
            REASON: f"must be one of {', '.join(MODES)}",
        },
        "doc_id": {**_or_null(TEXT), "description": "Required in mode BURST"},
        "idempotency_key": _or_null(TEXT),
        "callback_urls": {
            "type": ["array", "null"],
            "maxItems": MAX_CALLBACK_URLS,
            "items": {"type": "string", "format": "uri", REASON: "must be a URL"},
            "description": "The client's completion webhooks",
            REASON: f"must be a list of at most {MAX_CALLBACK_URLS} URLs",
        },
        "overwrite": {
            "type": ["boolean", "null"],
            "description": "Whether the output may replace what stands at `output_ref`",
            REASON: "must be true or false",
        },
        "correlation_id": _or_null(TEXT),
        "traceparent": {
            "type": ["string", "null"],
            "pattern": f"^{TRACEPARENT}$",
            REASON: "must be a W3C traceparent: 00-, 32 hex digits, -, 16 hex digits, -01",
        },
        "tracestate": {
            "description": "A W3C tracestate that goes with `traceparent`; dropped if it is not valid"
        },
    },
}
