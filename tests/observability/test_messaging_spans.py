"""Spans of messages follow OpenTelemetry's conventions for messaging."""

from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as words
from opentelemetry.trace import SpanKind

from tests.observability.served import called, ended, serving, submitted
from tests.observability.world import Scripted

TYPES = words.MessagingOperationTypeValues
KINDS = {
    TYPES.SEND.value: SpanKind.PRODUCER,
    TYPES.PROCESS.value: SpanKind.CONSUMER,
}


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
