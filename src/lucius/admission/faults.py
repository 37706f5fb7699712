"""The faults of one request, collected so that the client learns of all of them at once."""

from typing import Any, Final, NoReturn

import jsonschema_rs

from lucius.contract.codes import CODES
from lucius.core.errors import RequestError
from lucius.core.json_faults import pointer
from lucius.core.references import HAS_CREDENTIALS, INVALID, NOT_ALLOWED, PROTECTED

INVALID_ENVELOPE: Final = "INVALID_ENVELOPE"
UNSUPPORTED_SCHEMA_VERSION: Final = "UNSUPPORTED_SCHEMA_VERSION"
UNKNOWN_REQUEST_TYPE: Final = "UNKNOWN_REQUEST_TYPE"
INVALID_PAYLOAD: Final = "INVALID_PAYLOAD"
PAYLOAD_HAS_CREDENTIALS: Final = "PAYLOAD_HAS_CREDENTIALS"
DOC_ID_REQUIRED: Final = "DOC_ID_REQUIRED"
BURST_NOT_ALLOWED: Final = "BURST_NOT_ALLOWED"
PAYLOAD_TOO_LARGE: Final = "PAYLOAD_TOO_LARGE"
NOT_REDRIVABLE: Final = "NOT_REDRIVABLE"

MAX_LISTED: Final = 50
"""Faults beyond these are counted, not listed."""

DETAILS: Final = {
    INVALID_ENVELOPE: "the envelope is not valid",
    UNSUPPORTED_SCHEMA_VERSION: "this schema version is not supported",
    UNKNOWN_REQUEST_TYPE: "no protocol serves this request type",
    INVALID: "a reference is not valid",
    HAS_CREDENTIALS: "a reference must not carry credentials",
    NOT_ALLOWED: "a reference is outside the policy",
    PROTECTED: "a reference leads to what LUCIUS keeps for itself",
    PAYLOAD_HAS_CREDENTIALS: "a payload must not carry credentials;"
    " LUCIUS_ALLOW_PAYLOAD_SECRETS names the exceptions",
    INVALID_PAYLOAD: "the payload does not fit the schema of its step",
    DOC_ID_REQUIRED: "mode BURST spreads a tenant's work by document: doc_id is required",
    BURST_NOT_ALLOWED: "this tenant may not use mode BURST",
    PAYLOAD_TOO_LARGE: "the request is larger than every backend can hold",
}
"""By code. A request with several kinds of faults answers with the first of these."""


class Faults:
    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], None] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, code: str, at: str, reason: str) -> None:
        self._found[code, at, reason] = None

    def raise_all(self) -> NoReturn:
        present = {code for code, _, _ in self._found}
        code = next(each for each in DETAILS if each in present)
        ordered = sorted(self._found, key=lambda fault: fault[0] != code)
        listed = [
            (at, reason if kind == code else f"{kind}: {reason}")
            for kind, at, reason in ordered[:MAX_LISTED]
        ]
        if len(ordered) > MAX_LISTED:
            listed.append(("", f"and {len(ordered) - MAX_LISTED} more"))
        status = CODES[code].status
        raise RequestError(code, DETAILS[code], faults=tuple(listed), status=status)

    def add_payload(self, validator: jsonschema_rs.Validator, value: Any, at: str) -> None:
        """Name each field of a step's payload that its schema refuses."""
        for error in validator.iter_errors(value):
            place = at + pointer(*error.instance_path)
            missing = getattr(error.kind, "property", None)
            if error.kind.name == "required" and missing is not None:
                self.add(INVALID_PAYLOAD, place + pointer(missing), "is required")
            else:
                self.add(INVALID_PAYLOAD, place, error.message)
