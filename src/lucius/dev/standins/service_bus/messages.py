"""Messages as they lie in the broker: the parts that it reads, and the bytes that it only passes on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from lucius.dev.standins.service_bus.codec import (
    CodecError,
    Described,
    Reader,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    encode,
)

HEADER, ANNOTATIONS, PROPERTIES, APPLICATION, DATA = 0x70, 0x72, 0x73, 0x74, 0x75
VALUE: Final = 0x77
BATCH_FORMAT: Final = 0x80013700
"""The message format of an envelope whose data sections are messages."""
MAX_MESSAGE: Final = 256 * 1024
MAX_NAME: Final = 128
MAX_PROPERTY: Final = 32_767
MAX_PROPERTIES: Final = 65_536
"""Quotas of the Standard tier: bytes of a message or batch, characters of an id or key, bytes of one
property and of all together."""
TOO_LARGE: Final = "amqp:link:message-size-exceeded"
ARGUMENT: Final = "com.microsoft:argument-error"
_SIMPLE: Final = (str, bytes, bool, int, float, UUID, type(None))
"""Types of application properties: AMQP's simple ones, so no list, map or array."""
_PROPERTY_NAMES: Final = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "expires_at",
    "created_at",
    "session_id",
)


@dataclass(frozen=True)
class Stored:
    """One message. `system` are AMQP's own properties by name, `application` the sender's."""

    system: dict[str, Any]
    application: dict[str, Any]
    annotations: dict[Any, Any]
    raw_properties: bytes
    body: bytes
    ttl: float | None = None
    """Seconds, as the sender asked."""

    @property
    def message_id(self) -> str | None:
        found = self.system.get("message_id")
        return None if found is None else str(found)

    @property
    def session_id(self) -> str | None:
        found = self.system.get("session_id")
        return None if found is None else str(found)

    def marked(self, **properties: str) -> "Stored":
        """With more application properties, as dead letters have. They do not expire."""
        return replace(self, application={**self.application, **properties}, ttl=None)

    def encoded(self, deliveries: int, annotations: dict[str, Any]) -> bytes:
        """As it is sent. `deliveries`: how many have failed before; 0 is written too."""
        head = Described(ULong(HEADER), [None, None, None, None, UInt(deliveries)])
        notes = self.annotations | {Symbol(name): value for name, value in annotations.items()}
        parts = [encode(head), encode(Described(ULong(ANNOTATIONS), notes)), self.raw_properties]
        if self.application:
            parts.append(encode(Described(ULong(APPLICATION), self.application)))
        return b"".join(parts) + self.body


def noted(sequence: int, enqueued_at: float, locked_until: float | None) -> dict[str, Any]:
    """What the broker says about a message."""
    said: dict[str, Any] = {
        "x-opt-sequence-number": sequence,
        "x-opt-enqueued-time": Timestamp(int(enqueued_at * 1000)),
    }
    if locked_until is not None:
        said["x-opt-locked-until"] = Timestamp(int(locked_until * 1000))
    return said


def _sections(raw: bytes) -> Iterator[tuple[int, Any, bytes]]:
    """Code, value and bytes of each section."""
    reader = Reader(raw)
    while not reader.done:
        start = reader.at
        section = reader.value()
        if not isinstance(section, Described) or not isinstance(section.descriptor, int):
            raise CodecError("a message must be made of sections")
        yield int(section.descriptor), section.value, raw[start : reader.at]


def parse(raw: bytes) -> Stored:
    system: dict[str, Any] = {}
    application: dict[str, Any] = {}
    annotations: dict[Any, Any] = {}
    properties, body, ttl = b"", b"", None
    for code, value, section in _sections(raw):
        if code == HEADER:
            ttl = value[2] / 1000 if len(value) > 2 and value[2] is not None else None
        elif code == ANNOTATIONS:
            annotations = value or {}
        elif code == PROPERTIES:
            system = dict(zip(_PROPERTY_NAMES, value, strict=False))
            properties = section
        elif code == APPLICATION:
            application = {str(name): each for name, each in (value or {}).items()}
        elif code >= DATA:
            body += section
    return Stored(system, application, annotations, properties, body, ttl)


def unpacked(raw: bytes, message_format: int) -> list[Stored]:
    """The messages of one transfer: a batch is an envelope around several."""
    if message_format != BATCH_FORMAT:
        return [parse(raw)]
    return [parse(value) for code, value, _ in _sections(raw) if code == DATA]


def refusal(message: Stored) -> tuple[str, str] | None:
    """The condition and description with which Service Bus refuses a message; None: it takes it."""
    names = {
        "MessageId": message.message_id,
        "SessionId": message.session_id,
        "PartitionKey": message.annotations.get("x-opt-partition-key"),
    }
    for name, value in names.items():
        if value is not None and len(str(value)) > MAX_NAME:
            return ARGUMENT, f"{name} is longer than {MAX_NAME} characters."
    for key, value in message.application.items():
        if not isinstance(value, _SIMPLE):
            return ARGUMENT, f"The type of property {key} is not supported."
        if len(encode(value)) > MAX_PROPERTY:
            return TOO_LARGE, f"Property {key} is larger than {MAX_PROPERTY} bytes."
    if len(encode(message.application)) + len(message.raw_properties) > MAX_PROPERTIES:
        return TOO_LARGE, f"The properties are larger than {MAX_PROPERTIES} bytes."
    return None


def value_of(raw: bytes) -> Any:
    """The body of a request to a management node."""
    return next((value for code, value, _ in _sections(raw) if code == VALUE), None)


def answer(correlation_id: Any, application: dict[str, Any], value: Any) -> bytes:
    sections = (
        Described(ULong(PROPERTIES), [None, None, None, None, None, correlation_id]),
        Described(ULong(APPLICATION), application),
        Described(ULong(VALUE), value),
    )
    return b"".join(encode(section) for section in sections)
