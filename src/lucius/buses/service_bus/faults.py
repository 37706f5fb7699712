"""Turns exceptions of the SDK into those of the port, so that none leaves this package."""

from collections.abc import Iterator
from contextlib import contextmanager

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    SessionLockLostError,
)

from lucius.core.errors import BusUnavailableError, LockLostError

LOST = (MessageLockLostError, SessionLockLostError, MessageAlreadySettled, MessageNotFoundError)
FORBIDDEN = (ServiceBusAuthenticationError, ServiceBusAuthorizationError, ClientAuthenticationError)


class MissingEntityError(BusUnavailableError):
    """A topic or subscription does not exist. It may be created later, so this counts as an outage."""


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
    except FORBIDDEN as error:
        raise BusUnavailableError(
            f"{subject}: Service Bus refuses the caller. LUCIUS_SERVICEBUS_CONNECTION needs the"
            f" rights Send and Listen: {error}"
        ) from error
    except (AzureError, OSError, TimeoutError, ValueError) as error:
        raise BusUnavailableError(f"{subject}: {type(error).__name__}: {error}") from error
