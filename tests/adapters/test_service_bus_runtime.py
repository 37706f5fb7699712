"""The whole runtime on SQLite and Service Bus, with workers that use nothing but Microsoft's SDK."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage

from lucius.core.ids import is_traceparent
from lucius.dev.standins.service_bus import StandIn
from lucius.platform import Output, Service, Task
from tests.api.live import Live, live

LONGEST = "s" * 64
"""The longest step id that a protocol may have."""


@dataclass
class Foreign:
    """A worker that knows the specification and the SDK, and nothing of LUCIUS's own kit."""

    client: ServiceBusClient
    prefix: str

    async def directive(self, lane: int) -> dict[str, Any]:
        topic = f"{self.prefix}global-bus-p{lane}"
        async with self.client.get_subscription_receiver(topic, "ocr") as receiver:
            (message,) = await receiver.receive_messages(1, max_wait_time=60)
            await receiver.complete_message(message)
            body: dict[str, Any] = orjson.loads(b"".join(message.body))
            return {**body, "message_id": message.message_id}

    async def send(self, topic: str, body: Mapping[str, Any]) -> None:
        async with self.client.get_topic_sender(topic) as sender:
            await sender.send_messages(ServiceBusMessage(orjson.dumps(body)))


@asynccontextmanager
async def on_service_bus(
    folder: Path, *, step_id: str = "ocr", prefix: str = "", **settings: Any
) -> AsyncIterator[tuple[Live, Foreign]]:
    file = folder / "protocols.yaml"
    steps = [{"type": "OCR", "id": step_id}]
    protocol = {"request_type": "OCR", "protocol_id": "ocr_v1", "steps": steps}
    content = {"step_types": {"OCR": {"service": "ocr"}}, "protocols": [protocol]}
    file.write_text(yaml.safe_dump(content))
    async with StandIn() as stand_in:
        bus: dict[str, Any] = {
            "bus_backend": "servicebus",
            "bus_provision": "auto",
            "servicebus_connection": stand_in.connection_string,
            "servicebus_prefix": prefix,
            "protocols": str(file),
        }
        async with (
            live(folder / "data", **bus, **settings) as lucius,
            ServiceBusClient.from_connection_string(stand_in.connection_string) as client,
        ):
            yield lucius, Foreign(client, prefix)


async def routed(lucius: Live, job_id: str) -> int:
    job = await lucius.runtime.engine.job(job_id)
    assert job is not None
    return job.plan.routing.lane


async def test_the_longest_step_id_of_a_protocol_passes(tmp_path: Path) -> None:
    """Its message ids would have 146 characters, and Service Bus takes 128."""
    async with on_service_bus(tmp_path, step_id=LONGEST) as (lucius, worker):
        job_id = await lucius.accepted()
        directive = await worker.directive(await routed(lucius, job_id))
        assert (directive["jobId"], directive["stepId"]) == (job_id, LONGEST)
        assert directive["message_id"].startswith(f"{job_id}:")
        assert len(directive["message_id"]) == 128
        await lucius.answer(directive)
        assert (await lucius.job(job_id))["state"] == "SUCCEEDED"


def specified(directive: Mapping[str, Any], kind: str, **fields: Any) -> dict[str, Any]:
    """A reply exactly as the specification writes it: no token, no worker."""
    named = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id", "correlation_id")
    body = {name: directive[name] for name in named}
    return {"type": kind, **body, "timestamp": "2026-01-27T10:02:00Z", **fields}


async def test_a_worker_of_the_specification_alone_completes_a_job(tmp_path: Path) -> None:
    async with on_service_bus(tmp_path) as (lucius, worker):
        job_id = await lucius.accepted(correlation_id="corr-123")
        directive = await worker.directive(await routed(lucius, job_id))
        output = {"uri": "s3://bucket/output.json"}
        ack = specified(directive, "ACK")
        result = specified(directive, "RESULT", status="SUCCEEDED", output_ref=output)
        for reply in (ack, result):
            await worker.send(directive["reply_topic"], reply)
        ended = await lucius.runtime.engine.ended(job_id, 60)
        assert ended is not None
        assert (ended.state, ended.steps[0].result_ref) == ("SUCCEEDED", output)


async def test_a_directive_says_what_a_foreign_worker_needs(tmp_path: Path) -> None:
    """References are objects, topics have their real names, ids are there though the client gave none."""
    async with on_service_bus(tmp_path, prefix="test-") as (lucius, worker):
        job_id = await lucius.accepted(input_ref="s3://bucket/in.pdf")
        directive = await worker.directive(lane := await routed(lucius, job_id))
        assert directive["reply_topic"] == f"test-global-bus-replies-p{lane}"
        assert directive["input_ref"] == {"uri": "s3://bucket/in.pdf"}
        assert directive["output_ref"] == {"uri": "s3://bucket/out.json"}
        assert directive["workspace_ref"]["uri"].endswith(f"/{job_id}/")
        assert directive["correlation_id"] == job_id
        assert is_traceparent(directive["traceparent"])
        assert directive["callback_urls"]["ack"] == "http://lucius/v1/callbacks/ack"
        await worker.send(directive["reply_topic"], specified(directive, "ACK"))
        result = specified(directive, "RESULT", status="SUCCEEDED")
        async with worker.client.get_topic_sender(directive["reply_topic"]) as sender:
            text = orjson.dumps(result).decode()
            await sender.send_messages(AmqpAnnotatedMessage(value_body=text))
        ended = await lucius.runtime.engine.ended(job_id, 60)
        assert ended is not None
        assert ended.state == "SUCCEEDED"


class Scribe(Service):
    name = "ocr"
    step_types = ("OCR",)

    async def execute(self, task: Task) -> Output | None:
        await task.stage("output.txt", "text")
        return None


async def test_the_kit_replies_where_topics_have_a_prefix(tmp_path: Path) -> None:
    given: dict[str, Any] = {"services": [Scribe()], "output_roots": str(tmp_path)}
    async with on_service_bus(tmp_path, prefix="test-", **given) as (lucius, _):
        job_id = await lucius.accepted(output_ref=(tmp_path / "out").as_uri())
        ended = await lucius.runtime.engine.ended(job_id, 60)
        assert ended is not None
        assert ended.steps[0].execution is not None
        assert ended.steps[0].execution.started_at is not None
