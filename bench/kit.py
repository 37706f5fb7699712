"""What the kit costs a directive: its CPU time beside that of bare loops on the same bus.

A bare loop does what any worker must, and no more: it receives, checks the directive, sends an ACK and
a RESULT with the same contents as the kit's, and settles. It keeps no lease, knows no duplicates, counts
nothing, cannot be drained or cancelled, and breaks on the first error. There are two:

- one by one: a directive after the other. Work that waits holds up the ACKs of all that follow.
- at once: a task for each directive, as a worker needs whose work waits for anything.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.echo import Echo
from bench.measure import spending
from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.core.wire import directive_properties, effect_key, message_id
from lucius.platform import ServiceRunner
from lucius.platform.messages import parse_directive
from lucius.ports.bus import Delivery, Message, Subscription

TOPIC, REPLIES, READER = "global-bus-p4", "global-bus-replies-p4", "reader"
WAIT = timedelta(seconds=20)
AT_ONCE = 64
ROUNDS = 10


async def measure(directives: int) -> dict[str, Any]:
    """The best of some rounds of each, in turns: what disturbs one only ever makes it slower."""
    kit, one_by_one, at_once = [], [], []
    for _ in range(ROUNDS):
        one_by_one.append(await _bare(directives // ROUNDS, _one_by_one))
        kit.append(await _kit(directives // ROUNDS))
        at_once.append(await _bare(directives // ROUNDS, _at_once))
    return {
        "kit_cpu_us_per_directive": min(kit),
        "bare_one_by_one_cpu_us": min(one_by_one),
        "bare_at_once_cpu_us": min(at_once),
        "share_of_bare_one_by_one": min(kit) / min(one_by_one),
        "share_of_bare_at_once": min(kit) / min(at_once),
    }


async def _kit(count: int) -> float:
    bus = await _bus()
    runner = ServiceRunner(Echo("ocr"), bus, MemoryWorkspace(), slots=AT_ONCE)
    await runner.start()
    try:
        return await _answered(bus, count)
    finally:
        await runner.stop()
        await bus.close()


async def _bare(count: int, loop: Callable[[MemoryBus], Coroutine[Any, Any, None]]) -> float:
    bus = await _bus()
    await bus.ensure([Subscription(TOPIC, "ocr", {"step_type": ("OCR",)})])
    worker = asyncio.create_task(loop(bus))
    try:
        return await _answered(bus, count)
    finally:
        worker.cancel()
        await bus.close()


async def _bus() -> MemoryBus:
    bus = MemoryBus()
    await bus.ensure([Subscription(REPLIES, READER)])
    return bus


async def _one_by_one(bus: MemoryBus) -> None:
    while True:
        for delivery in await bus.receive("ocr", [TOPIC], AT_ONCE, WAIT):
            await _serve(bus, delivery)


async def _at_once(bus: MemoryBus) -> None:
    running: set[asyncio.Task[None]] = set()
    while True:
        for delivery in await bus.receive("ocr", [TOPIC], AT_ONCE, WAIT):
            task = asyncio.create_task(_serve(bus, delivery))
            running.add(task)
            task.add_done_callback(running.discard)


async def _serve(bus: MemoryBus, delivery: Delivery) -> None:
    body = parse_directive(delivery.message.body).body
    await bus.publish(REPLIES, [_reply(body, "ACK", {"slots": AT_ONCE, "version": "1"})])
    await bus.complete(delivery)
    output = {"uri": f"s3://bucket/work/{body['jobId']}/ocr"}
    result = {"status": "SUCCEEDED", "output_ref": output}
    await bus.publish(REPLIES, [_reply(body, "RESULT", result)])


def _reply(body: Mapping[str, Any], kind: str, fields: Mapping[str, Any] | None = None) -> Message:
    key = (body["jobId"], body["stepId"], body["attempt_no"], body["lease_id"])
    reply = {
        "type": kind,
        "jobId": key[0],
        "stepId": key[1],
        "attempt_no": key[2],
        "lease_id": key[3],
        "tenant_id": body["tenant_id"],
        "worker_id": "bare",
        "timestamp": datetime.now(UTC).isoformat(),
        "correlation_id": body["correlation_id"],
        "traceparent": body["traceparent"],
        **(fields or {}),
    }
    properties = directive_properties(body) | {"type": kind}
    return Message(message_id(*key, kind), reply, properties)


async def _answered(bus: MemoryBus, count: int) -> float:
    """CPU microseconds a directive, from its publishing to the receipt of its RESULT."""
    messages = [_directive(number) for number in range(count)]
    with spending() as spent:
        for start in range(0, count, AT_ONCE):
            await bus.publish(TOPIC, messages[start : start + AT_ONCE])
            results = 0
            while results < len(messages[start : start + AT_ONCE]):
                for delivery in await bus.receive(READER, [REPLIES], 2 * AT_ONCE, WAIT):
                    results += delivery.message.body["type"] == "RESULT"
                    await bus.complete(delivery)
    return spent.cpu / count * 1e6


def _directive(number: int) -> Message:
    job_id = f"job_{number:08d}"
    body = {
        "type": "DIRECTIVE",
        "jobId": job_id,
        "tenant_id": f"t{number % 16}",
        "stepId": "ocr",
        "step_type": "OCR",
        "service": "ocr",
        "attempt_no": 1,
        "lease_id": f"lease_{number}",
        "input_ref": "s3://bucket/in.pdf",
        "workspace_ref": f"mem://lucius/t/{job_id}/",
        "payload": {},
        "effect_key": effect_key(job_id, "ocr", "s3://bucket/in.pdf", {}),
        "ack_timeout_seconds": 30.0,
        "lease_seconds": 900.0,
        "mode": "DEFAULT",
        "lane": 4,
        "routing_key_used": "t",
        "reply_topic": REPLIES,
        "correlation_id": "c",
        "traceparent": "00-1-2-00",
    }
    name = message_id(job_id, "ocr", 1, f"lease_{number}", "DIRECTIVE")
    return Message(name, body, directive_properties(body))
