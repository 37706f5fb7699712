"""Asks whether a subscription has a rule: without one it gets nothing, and nobody else would say so.

The right Listen is enough for the question. The SDK does not ask it, but has a function for such requests.
"""

from typing import Any, Final

from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

LIST_RULES: Final = b"com.microsoft:enumerate-rules"
PATIENCE: Final = 10.0
"""Seconds within which the broker answers."""


async def has_rule(receiver: ServiceBusReceiver) -> bool:
    """Whether it has one, or the broker does not say."""
    transport: Any = receiver._amqp_transport
    page = {"top": transport.AMQP_INT_VALUE(1), "skip": transport.AMQP_INT_VALUE(0)}
    try:
        return bool(
            await receiver._mgmt_request_response_with_retry(
                LIST_RULES, page, _found, timeout=PATIENCE
            )
        )
    except OperationTimeoutError:
        return True


def _found(status: int, answer: Any, description: object, **others: object) -> bool:
    if status == 204:
        return False
    return status != 200 or bool(answer.value.get(b"rules"))
