"""Turns exceptions of the SDK into those of the port, so that none leaves this package."""

from collections.abc import Iterator
from contextlib import contextmanager

from azure.core.exceptions import AzureError, ClientAuthenticationError
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
