"""Converts messages of the port to messages of Service Bus, and back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import orjson
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    SessionLockLostError,
)

from lucius.core.errors import BusUnavailableError, LockLostError
from lucius.ports.bus import Message, Property

# Turns exceptions of the SDK into those of the port, so that none leaves this package.

LOST = (MessageLockLostError, SessionLockLostError, MessageAlreadySettled, MessageNotFoundError)
UNKNOWN = (ServiceBusAuthenticationError, ClientAuthenticationError)


CONTENT_REFUSED = (
    "amqp:decode-error",
    "amqp:invalid-field",
    "com.microsoft:argument-error",
    "com.microsoft:argument-out-of-range",
)
"""Conditions with which the broker refuses a message for its content. All others count as an outage."""


class MissingEntityError(BusUnavailableError):
    """A topic or subscription does not exist. It may be created later, so this counts as an outage."""


class MissingRuleError(BusUnavailableError):
    """A subscription has no rule, so that no message reaches it."""


class TimedOutError(BusUnavailableError):
    """The broker gave up waiting, for example for a session with a message."""


@contextmanager
def mapped(subject: str) -> Iterator[None]:
    """Raise errors of the port in place of those of the SDK. `subject` is the topic or subscription."""
    try:
        yield
    except LOST as error:
        raise LockLostError(f"{subject}: the lock is gone: {error}") from error
    except MessagingEntityNotFoundError as error:
        raise MissingEntityError(
            f"{subject} does not exist: `lucius bus provision` creates it"
        ) from error
    except UNKNOWN as error:
        raise BusUnavailableError(
            f"{subject}: Service Bus does not accept the key or identity of"
            f" LUCIUS_SERVICEBUS_CONNECTION. It is wrong, expired or was replaced: {error}"
        ) from error
    except ServiceBusAuthorizationError as error:
        raise BusUnavailableError(
            f"{subject}: Service Bus refuses the caller. LUCIUS_SERVICEBUS_CONNECTION needs the"
            f" rights Send and Listen: {error}"
        ) from error
    except ServiceBusConnectionError as error:
        raise BusUnavailableError(
            f"{subject}: Service Bus at LUCIUS_SERVICEBUS_CONNECTION cannot be reached: {error}"
        ) from error
    except OperationTimeoutError as error:
        raise TimedOutError(f"{subject}: nothing came in time: {error}") from error
    except (AzureError, OSError, TimeoutError, ValueError) as error:
        raise BusUnavailableError(f"{subject}: {type(error).__name__}: {error}") from error


def refuses_content(error: AzureError) -> bool:
    """Whether a message is refused for its content, so that another one may be taken."""
    if isinstance(error, MessageSizeExceededError):
        return True
    return getattr(error, "_condition", None) in CONTENT_REFUSED


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
