"""The spans of a job: each message on its way out, each execution, each reply that is applied."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Final

from opentelemetry.trace import SpanKind

from lucius.core.inputs import Callback
from lucius.core.text import printable
from lucius.ports.bus import Broker, Bus, Delivery, Message, Subscription
from lucius.system.logs import redacted
from lucius.system.tracing import NO_SPAN, Attributes, NoSpan, active, open_span

_IDS: Final = (
    ("lucius.job_id", "jobId"),
    ("lucius.step_id", "stepId"),
    ("lucius.step_type", "step_type"),
    ("lucius.tenant_id", "tenant_id"),
    ("lucius.attempt_no", "attempt_no"),
    ("lucius.lease_id", "lease_id"),
    ("lucius.correlation_id", "correlation_id"),
)


_TYPES: Final = {"publish": "send", "execute": "process", "apply": "process"}
"""The word of OpenTelemetry for each of our operations on messages."""


def _ids(body: Mapping[str, Any]) -> dict[str, str | int]:
    return {
        name: printable(redacted(value)) if isinstance(value, str) else value
        for name, field in _IDS
        if isinstance(value := body.get(field), str | int) and value != ""
    }


def _about(operation: str, broker: Broker, destination: str, message: Message) -> Attributes:
    """As OpenTelemetry's conventions for messaging have it, and the ids of the attempt."""
    about: dict[str, str | int] = {
        "messaging.system": broker.system,
        "messaging.operation.name": operation,
        "messaging.operation.type": _TYPES[operation],
        "messaging.destination.name": destination,
        "messaging.message.id": printable(redacted(message.message_id)),
        **_ids(message.body),
    }
    if broker.host is not None:
        about["server.address"] = broker.host
    if broker.port is not None:
        about["server.port"] = broker.port
    if (job_id := about.get("lucius.job_id")) is not None:
        about["messaging.message.conversation_id"] = job_id
    if (kind := message.body.get("type")) is not None:
        about["lucius.message_type"] = printable(redacted(str(kind)))
    return about


def _received(operation: str, delivery: Delivery, broker: Broker) -> NoSpan:
    """Open the span of a message that is worked on."""
    named = delivery.topic and f"{broker.prefix}{delivery.topic}"
    destination = named or delivery.subscription
    about = {
        **_about(operation, broker, destination, delivery.message),
        "messaging.destination.subscription.name": delivery.subscription,
    }
    name = f"{operation} {destination}"
    return _open(name, delivery.message.body, SpanKind.CONSUMER, about)


def executing(delivery: Delivery, broker: Broker) -> NoSpan:
    """Open the span of a service that executes a directive."""
    return _received("execute", delivery, broker) if active() else NO_SPAN


def applying(delivery: Delivery, broker: Broker) -> NoSpan:
    """Open the span of a reply over the bus that is applied to its job."""
    return _received("apply", delivery, broker) if active() else NO_SPAN


def applying_request(reply: Mapping[str, Any], received: Callback) -> NoSpan:
    """Open the span of a reply over HTTP that is applied to its job."""
    if not active():
        return NO_SPAN
    return _open(f"apply {received.kind.value}", reply, SpanKind.INTERNAL, _ids(reply))


def _open(name: str, above: Mapping[str, Any], kind: SpanKind, about: Attributes) -> NoSpan:
    parent, state = above.get("traceparent"), above.get("tracestate")
    return open_span(printable(name), parent, kind, about, state=state)


class TracedBus:
    """A bus that opens a span for each message it publishes. The message carries that span as its parent."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    @property
    def broker(self) -> Broker:
        return self._bus.broker

    @property
    def volatile(self) -> bool:
        return self._bus.volatile

    @property
    def by_tenant(self) -> bool:
        return self._bus.by_tenant

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        broker = self._bus.broker
        with ExitStack() as spans:
            under = [_under(spans, broker, topic, each) for each in messages]
            await self._bus.publish(topic, under)

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        await self._bus.ensure(subscriptions)

    async def receive(
        self,
        name: str,
        topics: Sequence[str],
        limit: int,
        wait: timedelta,
        tenants: Collection[str] | None = None,
    ) -> Sequence[Delivery]:
        return await self._bus.receive(name, topics, limit, wait, tenants)

    async def complete(self, delivery: Delivery) -> None:
        await self._bus.complete(delivery)

    async def abandon(self, delivery: Delivery) -> None:
        await self._bus.abandon(delivery)

    async def dead_letter(self, delivery: Delivery, reason: str, detail: str) -> None:
        await self._bus.dead_letter(delivery, reason, detail)

    async def send_notice(self, address: str, message: Message) -> None:
        await self._bus.send_notice(address, message)

    async def receive_notices(self, address: str, wait: timedelta) -> Sequence[Message]:
        return await self._bus.receive_notices(address, wait)

    async def close(self) -> None:
        await self._bus.close()


def traced(bus: Bus) -> Bus:
    """The bus with spans; the bus itself where tracing is off, so that it costs nothing."""
    return TracedBus(bus) if active() else bus


def _under(spans: ExitStack, broker: Broker, topic: str, message: Message) -> Message:
    destination = f"{broker.prefix}{topic}"
    about = _about("publish", broker, destination, message)
    span = _open(f"publish {destination}", message.body, SpanKind.PRODUCER, about)
    spans.enter_context(span)
    return Message(message.message_id, span.below(message.body), message.properties)
