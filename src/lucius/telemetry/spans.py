"""The spans of a job: each message on its way out, each execution, each reply that is applied."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Final

from opentelemetry.trace import SpanKind

from lucius.core.inputs import Callback
from lucius.core.printable import printable
from lucius.ports.bus import Bus, Delivery, Message, Subscription
from lucius.telemetry.redaction import redacted
from lucius.telemetry.tracing import NO_SPAN, Attributes, NoSpan, active, open_span

_IDS: Final = (
    ("lucius.job_id", "jobId"),
    ("lucius.step_id", "stepId"),
    ("lucius.step_type", "step_type"),
    ("lucius.tenant_id", "tenant_id"),
    ("lucius.attempt_no", "attempt_no"),
    ("lucius.lease_id", "lease_id"),
    ("lucius.correlation_id", "correlation_id"),
)


def _ids(body: Mapping[str, Any]) -> dict[str, str | int]:
    return {
        name: printable(redacted(value)) if isinstance(value, str) else value
        for name, field in _IDS
        if isinstance(value := body.get(field), str | int) and value != ""
    }


def executing(directive: Mapping[str, Any]) -> NoSpan:
    """Open the span of a service that executes a directive."""
    if not active():
        return NO_SPAN
    name = f"execute {directive.get('step_type')}"
    return _open(name, directive, SpanKind.CONSUMER, _ids(directive))


def applying(reply: Mapping[str, Any], received: Callback) -> NoSpan:
    """Open the span of a reply that is applied to its job."""
    if not active():
        return NO_SPAN
    return _open(f"apply {received.kind.value}", reply, SpanKind.CONSUMER, _ids(reply))


def _open(name: str, above: Mapping[str, Any], kind: SpanKind, about: Attributes) -> NoSpan:
    parent, state = above.get("traceparent"), above.get("tracestate")
    return open_span(printable(name), parent, kind, about, state=state)


class TracedBus:
    """A bus that opens a span for each message it publishes. The message carries that span as its parent."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    @property
    def volatile(self) -> bool:
        return self._bus.volatile

    @property
    def by_tenant(self) -> bool:
        return self._bus.by_tenant

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        with ExitStack() as spans:
            await self._bus.publish(topic, [_under(spans, topic, each) for each in messages])

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

    async def tell(self, address: str, message: Message) -> None:
        await self._bus.tell(address, message)

    async def hear(self, address: str, wait: timedelta) -> Sequence[Message]:
        return await self._bus.hear(address, wait)

    async def close(self) -> None:
        await self._bus.close()


def traced(bus: Bus) -> Bus:
    """The bus with spans; the bus itself where tracing is off, so that it costs nothing."""
    return TracedBus(bus) if active() else bus


def _under(spans: ExitStack, topic: str, message: Message) -> Message:
    body = message.body
    name = f"publish {body.get('type')}"
    about = {**_ids(body), "messaging.destination.name": topic}
    span = _open(name, body, SpanKind.PRODUCER, about)
    spans.enter_context(span)
    return Message(message.message_id, span.below(body), message.properties)
