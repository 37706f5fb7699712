"""Converts messages of the port to messages of Service Bus, and back."""

from typing import Any, Final, cast

import orjson
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType

from lucius.ports.bus import Message, Property

KEY: Final = "message_key"
"""On a partitioned topic, messages with the same value of this property stay in order."""
ADDRESS: Final = "address"
"""Messages with it are told to one receiver: it is their session."""
LONGEST: Final = 128
"""Characters of a session id or partition key that Service Bus takes."""
REASON: Final = "DeadLetterReason"
DETAIL: Final = "DeadLetterErrorDescription"
_ADDED: Final = {REASON, DETAIL}


class NotOursError(ValueError):
    """LUCIUS did not send this message."""


def outgoing(message: Message) -> ServiceBusMessage:
    """Its key is the partition key. Messages to one address are a session."""
    address = message.properties.get(ADDRESS)
    key = message.properties.get(KEY) if address is None else address
    return ServiceBusMessage(
        orjson.dumps(message.body),
        message_id=message.message_id,
        application_properties=cast(dict[str | bytes, Any], dict(message.properties)),
        partition_key=None if key is None else str(key)[:LONGEST],
        session_id=None if address is None else str(address)[:LONGEST],
        content_type="application/json",
    )


def incoming(received: ServiceBusReceivedMessage) -> Message:
    """The message of the port. Raises NotOursError if the body is no JSON object.

    JSON comes as data, or as one text or binary value: clients of JMS send text so.
    """
    try:
        content = received.body
        is_value = received.body_type is AmqpMessageBodyType.VALUE
        body = orjson.loads(content if is_value else b"".join(content))
    except (ValueError, TypeError) as error:
        raise NotOursError(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise NotOursError("the body is not a JSON object")
    return Message(str(received.message_id or ""), body, properties(received))


def seen(received: ServiceBusReceivedMessage) -> Message:
    """A message as far as it can be read, because dead letters may hold anything."""
    try:
        return incoming(received)
    except NotOursError:
        return Message(str(received.message_id or ""), {}, properties(received))


def properties(received: ServiceBusReceivedMessage) -> dict[str, Property]:
    """The properties as text. The SDK gives names and texts as bytes."""
    found = {_text(k): _text(v) for k, v in (received.application_properties or {}).items()}
    return {
        name: value
        for name, value in found.items()
        if name not in _ADDED and isinstance(value, str | int)
    }


def _text(value: Any) -> Any:
    """A property may be binary: whatever it holds, its message can be received."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
