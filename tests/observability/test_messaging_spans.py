"""Spans of messages follow OpenTelemetry's conventions for messaging."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as words
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.trace import SpanKind

from lucius.buses.memory import MemoryBus
from lucius.core.errors import BusUnavailableError
from lucius.platform import FatalError, Task
from lucius.ports.bus import Broker, Delivery, Message
from lucius.telemetry.spans import TracedBus, executing
from tests.observability.served import called, ended, serving, submitted
from tests.observability.world import Scripted

TYPES = words.MessagingOperationTypeValues
KINDS = {
    TYPES.SEND.value: SpanKind.PRODUCER,
    TYPES.PROCESS.value: SpanKind.CONSUMER,
}
ON_A_BROKER = Broker("servicebus", "name.servicebus.windows.net", 5671, "test-")


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def of_messages(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [each for each in spans.get_finished_spans() if words.MESSAGING_SYSTEM in about(each)]


async def test_every_message_of_a_job_has_spans_by_the_conventions(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    async with serving(tmp_path, [Scripted()]) as (_, client):
        job_id = await submitted(client)
        await ended(client, job_id)
    found = of_messages(spans)
    assert {called(span) for span in found} == {
        *("publish DIRECTIVE", "execute DIRECTIVE"),
        *("publish ACK", "apply ACK", "publish RESULT", "apply RESULT"),
    }
    for span in found:
        said = about(span)
        operation, topic = (
            said[words.MESSAGING_OPERATION_NAME],
            said[words.MESSAGING_DESTINATION_NAME],
        )
        assert span.name == f"{operation} {topic}"
        assert span.kind is KINDS[said[words.MESSAGING_OPERATION_TYPE]]
        assert said[words.MESSAGING_SYSTEM] == "memory"
        assert said[words.MESSAGING_MESSAGE_ID].startswith(f"{job_id}:ocr:1:")
        assert said[words.MESSAGING_MESSAGE_CONVERSATION_ID] == job_id
        taken = span.kind is SpanKind.CONSUMER
        assert (words.MESSAGING_DESTINATION_SUBSCRIPTION_NAME in said) == taken
    topics = {
        called(span).split()[1]: about(span)[words.MESSAGING_DESTINATION_NAME] for span in found
    }
    replies = "global-bus-replies-p15"
    assert topics == {"DIRECTIVE": "global-bus-p15", "ACK": replies, "RESULT": replies}


async def test_both_ends_of_a_message_name_it_alike(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    async with serving(tmp_path, [Scripted()]) as (_, client):
        await ended(client, await submitted(client))
    for kind in ("DIRECTIVE", "ACK", "RESULT"):
        ends = [about(s) for s in of_messages(spans) if called(s).endswith(kind)]
        assert len(ends) == 2
        for name in (words.MESSAGING_MESSAGE_ID, words.MESSAGING_DESTINATION_NAME):
            assert ends[0][name] == ends[1][name]


async def test_a_failure_has_its_code_as_the_type_of_the_error(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    async def fail(task: Task) -> None:
        raise FatalError("the text is not for a trace", code="EMPTY")

    async with serving(tmp_path, [Scripted(fail)]) as (_, client):
        await ended(client, await submitted(client))
    span = next(each for each in of_messages(spans) if called(each) == "execute DIRECTIVE")
    assert about(span)[error_attributes.ERROR_TYPE] == "EMPTY"


class Elsewhere(MemoryBus):
    """It says of itself what the bus of a real broker does."""

    @property
    def broker(self) -> Broker:
        return ON_A_BROKER


async def test_a_broker_elsewhere_is_named_with_its_address_and_topics(
    spans: InMemorySpanExporter,
) -> None:
    message = Message("m", {"type": "DIRECTIVE", "jobId": "job_1"})
    await TracedBus(Elsewhere()).publish("global-bus-p0", [message])
    with executing(Delivery(message, "global-bus-p0", "ocr", "lock", 1), ON_A_BROKER):
        pass
    for span in of_messages(spans):
        said = about(span)
        assert said[words.MESSAGING_SYSTEM] == words.MessagingSystemValues.SERVICEBUS.value
        assert said[words.MESSAGING_DESTINATION_NAME] == "test-global-bus-p0"
        assert said[server_attributes.SERVER_ADDRESS] == ON_A_BROKER.host
        assert said[server_attributes.SERVER_PORT] == ON_A_BROKER.port


async def test_what_was_pulled_is_named_after_its_service(spans: InMemorySpanExporter) -> None:
    """The pull gateway has no topics."""
    with executing(Delivery(Message("m", {}), "", "ocr", "m", 1), Broker("lucius")):
        pass
    (span,) = of_messages(spans)
    assert span.name == "execute ocr"


async def test_a_publish_that_fails_says_so(spans: InMemorySpanExporter) -> None:
    bus = MemoryBus()
    bus.fail_with(BusUnavailableError("away"))
    with pytest.raises(BusUnavailableError):
        await TracedBus(bus).publish("global-bus-p0", [Message("m", {"type": "DIRECTIVE"})])
    (span,) = of_messages(spans)
    assert about(span)[error_attributes.ERROR_TYPE] == "BusUnavailableError"
    assert not span.status.is_ok


async def test_a_reply_over_http_is_no_message_of_a_bus(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    async with serving(tmp_path) as (_, client):
        await submitted(client)
        path = "/v1/services/ocr/directives:pull"
        (directive,) = (await client.post(path, json={"wait_seconds": 5})).json()["directives"]
        names = ("jobId", "stepId", "attempt_no", "lease_id")
        token = {"authorization": f"Bearer {directive['callback_token']}"}
        body = {name: directive[name] for name in names}
        await client.post("/v1/callbacks/ack", json=body, headers=token)
    span = next(each for each in spans.get_finished_spans() if each.name == "apply ack")
    assert (span.kind, span in of_messages(spans)) == (SpanKind.INTERNAL, False)
