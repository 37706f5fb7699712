"""The names of streams, subjects and consumers, and how a message is encoded.

A name becomes one token of a subject: a character that NATS forbids is written as `=` and its hex digits.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from lucius.core.errors import PublishRefusedError
from lucius.core.record import record
from lucius.ports.bus import Message

_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPED: Final = re.compile(r"((?:=[0-9A-F]{2})+)")


def token(name: str) -> str:
    return _FORBIDDEN.sub(lambda found: "".join(f"={b:02X}" for b in found[0].encode()), name)


def untoken(escaped: str) -> str:
    def plain(found: re.Match[str]) -> str:
        return bytes.fromhex(found[0].replace("=", "")).decode()

    return _ESCAPED.sub(plain, escaped)


@record
class Names:
    """Names that begin with the name of the installation, so that several can share a broker."""

    system: str

    @property
    def stream(self) -> str:
        return f"{self.system}-bus"

    @property
    def dead_stream(self) -> str:
        return f"{self.system}-dead-letters"

    @property
    def bucket(self) -> str:
        return f"{self.system}-subscriptions"

    def subject(self, topic: str, name: str) -> str:
        return f"{self.system}.bus.{token(topic)}.{token(name)}"

    def all_subjects(self, name: str | None = None) -> str:
        return f"{self.system}.bus.*.{'*' if name is None else token(name)}"

    def dead_subject(self, topic: str, name: str) -> str:
        return f"{self.system}.dead.{token(topic)}.{token(name)}"

    def all_dead_subjects(self) -> str:
        return f"{self.system}.dead.*.*"

    def told(self, address: str) -> str:
        """The subject of what is told to an address. No stream keeps it."""
        return f"{self.system}.told.{token(address)}"

    def next_message(self, consumer: str) -> str:
        """The subject on which a consumer is asked for messages."""
        return f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{consumer}"


def topic_of(subject: str) -> str:
    return untoken(subject.split(".")[-2])


def stored_at(lock_token: str) -> str:
    """When the broker stored the message. Every delivery of a message has the same time."""
    parts = lock_token.split(".")
    return parts[7] if len(parts) == 9 else parts[9]


def consumer_name(name: str, topic: str | None = None) -> str:
    """The name of the consumer for a whole subscription, or for one of its topics."""
    return token(name) if topic is None else f"{token(name)}@{token(topic)}"


def encoded(message: Message, **more: str) -> bytes:
    parts = {"message_id": message.message_id, "properties": message.properties, **more}
    try:
        text = json.dumps({**parts, "body": message.body}, default=dict, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise PublishRefusedError(f"message {message.message_id} is not JSON: {error}") from error
    return text.encode()


def decoded(data: bytes) -> tuple[Message, Mapping[str, Any]]:
    """The message, and the whole document it stands in. Raises ValueError if LUCIUS did not write it."""
    try:
        read = json.loads(data)
        message_id, body, properties = read["message_id"], read["body"], read["properties"]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it has no {error}") from error
    if not (
        isinstance(message_id, str) and isinstance(body, dict) and isinstance(properties, dict)
    ):
        raise ValueError("message_id, body or properties is of another type")
    return Message(message_id, body, properties), read
