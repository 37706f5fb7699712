"""What the SDK raises, in the words of the port. No vendor exception leaves this package."""

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
    """A topic or subscription that nobody has created. It may come: so it is an outage."""


@contextmanager
def mapped(subject: str) -> Iterator[None]:
    """`subject`: the topic or subscription that was spoken to."""
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
