"""From delivery to start: free slots, the ACK first, duplicates, poison."""

import asyncio

from lucius.core.errors import BusError, BusUnavailableError, PublishRefusedError
from lucius.core.wire import parse_reply
from lucius.platform import BusReplies, Output, ReplyAnswer, Service, Task
from lucius.platform.messages import Directive
from lucius.platform.records import MemoryRecords
from lucius.ports.bus import Message
from tests.platform.bench import TOPIC, Bench, Writer, on_the_bench


class Echo(Service):
    name = "ocr"
    step_types = ("OCR",)
    commit = False

    async def execute(self, task: Task) -> Output:
        return Output({"uri": "mem://out"})


@on_the_bench
async def test_an_ack_and_then_a_result_answer_a_directive(bench: Bench) -> None:
    await bench.runner(Echo(), worker_id="w1")
    await bench.send(1, callback_token="secret")
    result = await bench.result()
    assert [body["type"] for body in bench.seen] == ["ACK", "RESULT"]
    bound = {
        "jobId": "job_1",
        "stepId": "ocr",
        "tenant_id": "tenant_a",
        "attempt_no": 1,
        "lease_id": "lease_1",
        "worker_id": "w1",
        "correlation_id": "corr-1",
        "traceparent": "00-1-2-00",
        "callback_token": "secret",
    }
    for body in bench.seen:
        assert bound.items() <= body.items()
        assert body["timestamp"]
    assert (result["status"], result["output_ref"]) == ("SUCCEEDED", {"uri": "mem://out"})
    assert [m.message_id for m in bench.messages] == [
        "job_1:ocr:1:lease_1:ACK",
        "job_1:ocr:1:lease_1:RESULT",
    ]
    properties = {"type": "ACK", "jobId": "job_1", "lane": 4, "message_key": "tenant_a"}
    assert properties.items() <= bench.messages[0].properties.items()


@on_the_bench
async def test_the_core_understands_every_reply(bench: Bench) -> None:
    await bench.runner(Writer(15))
    await bench.send(1, lease_seconds=30.0)
    await bench.result()
    assert [type(parse_reply(body)[1]).__name__ for body in bench.seen] == [
        "AckReceived",
        "HeartbeatReceived",
        "ResultReceived",
    ]


@on_the_bench
async def test_directives_are_received_into_free_slots_only(bench: Bench) -> None:
    await bench.runner(Writer(10, 10, 10, 10), slots=2)
    for number in range(4):
        await bench.send(1, jobId=f"job_{number}")
    await asyncio.sleep(5)
    assert len(bench.of("ACK")) == 2, "an ACK means that a slot was taken"
    assert await bench.waiting() == 2
    await bench.replies("RESULT", 4)
    assert bench.loop.time() < 21


@on_the_bench
async def test_a_long_step_does_not_depend_on_the_lock_of_its_message(bench: Bench) -> None:
    writer = Writer(600)
    await bench.runner(writer, slots=2)
    await bench.send(1)
    await bench.replies("ACK")
    await asyncio.sleep(1)
    assert await bench.waiting() == 0, "the directive is settled once the work has begun"
    await bench.result()
    assert writer.begun == [1]


async def _duplicated(bench: Bench, records: MemoryRecords) -> Writer:
    writer = Writer(10, 10)
    await bench.runner(writer, slots=4, records=records)
    await bench.send(1)
    await bench.send(1)
    await asyncio.sleep(30)
    return writer


@on_the_bench
async def test_a_duplicate_of_running_work_starts_nothing(bench: Bench) -> None:
    writer = await _duplicated(bench, MemoryRecords())
    assert writer.begun == [1]
    assert len(bench.of("RESULT")) == 1
    assert await bench.waiting() == 0


async def _duplicated_when_done(bench: Bench, records: MemoryRecords) -> int:
    executed = 0

    class Counting(Echo):
        async def execute(self, task: Task) -> Output:
            nonlocal executed
            executed += 1
            return Output({"uri": f"mem://{executed}"})

    await bench.runner(Counting(), records=records)
    await bench.send(1)
    await bench.result(1)
    await bench.send(1)
    await bench.result(2)
    return executed


@on_the_bench
async def test_a_duplicate_of_finished_work_gets_the_same_result_again(bench: Bench) -> None:
    assert await _duplicated_when_done(bench, MemoryRecords()) == 1
    first, second = bench.of("RESULT")
    assert first["output_ref"] == second["output_ref"] == {"uri": "mem://1"}


class Shrugging(BusReplies):
    """Sabotage: whether a reply was sent does not matter."""

    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        try:
            return await super().send(directive, message)
        except BusError:
            return ReplyAnswer()


async def _ack_cannot_be_sent(bench: Bench, replies: BusReplies) -> Writer:
    writer = Writer()
    await bench.runner(writer, replies=replies)
    await bench.send(1)
    bench.bus.fail_with(BusUnavailableError("away"), ("publish",))
    await asyncio.sleep(100)
    return writer


@on_the_bench
async def test_nothing_starts_while_the_ack_cannot_be_sent(bench: Bench) -> None:
    writer = await _ack_cannot_be_sent(bench, BusReplies(bench.bus))
    assert writer.begun == []
    assert await bench.dead() == []
    assert await bench.waiting() == 1, "the directive was given back"
    bench.bus.fail_with(None)
    await bench.result()
    assert writer.begun == [1]


@on_the_bench
async def test_without_that_rule_work_starts_that_nobody_knows_of(bench: Bench) -> None:
    writer = await _ack_cannot_be_sent(bench, Shrugging(bench.bus))
    assert writer.begun == [1]
    assert bench.seen == []


@on_the_bench
async def test_a_reply_topic_that_refuses_the_ack_makes_the_directive_poison(bench: Bench) -> None:
    writer = Writer()
    await bench.runner(writer)
    await bench.send(1)
    bench.bus.fail_with(PublishRefusedError("no such topic"), ("publish",))
    await asyncio.sleep(1)
    assert [reason for _, reason in await bench.dead()] == ["ACK_REFUSED"]
    assert writer.begun == []


@on_the_bench
async def test_poison_is_set_aside_and_the_next_directive_is_served(bench: Bench) -> None:
    writer = Writer()
    await bench.runner(writer, slots=1)
    wrong = [
        {},
        bench.directive(jobId=7),
        bench.directive(lease_id="../../etc"),
        bench.directive(attempt_no=0),
        bench.directive(lease_seconds="long"),
        bench.directive(step_type="SIS"),
        bench.directive(workspace_ref=None),
        bench.directive(reply_topic=None, lane=None),
    ]
    properties = {"step_type": "OCR", "tenant_id": "tenant_a"}
    for number, body in enumerate(wrong):
        await bench.bus.publish(TOPIC, [Message(f"bad-{number}", body, properties)])
    await bench.send(1)
    answered = [
        (each["status"], each.get("error", {}).get("code"))
        for each in await bench.replies("RESULT", 4)
    ]
    assert answered == [
        ("FAILED_FINAL", "INVALID_DIRECTIVE"),
        ("FAILED_RETRY", "STEP_TYPE_NOT_SERVED"),
        ("FAILED_FINAL", "INVALID_DIRECTIVE"),
        ("SUCCEEDED", None),
    ], "where it says whom to answer"
    assert await bench.dead() == [(f"bad-{n}", "INVALID_DIRECTIVE") for n in range(len(wrong))]
    assert {body["jobId"] for body in bench.seen} == {"job_1"}, "nobody answers the others"
    assert len(bench.of("ACK")) == 1


@on_the_bench
async def test_a_payload_that_is_not_json_makes_the_directive_poison(bench: Bench) -> None:
    """Without an effect key of its own, the effect is named by input and payload."""
    await bench.runner(Writer(), slots=1)
    await bench.send(1, effect_key=None, payload={"a": float("nan")})
    assert (await bench.result())["error"]["code"] == "INVALID_DIRECTIVE"


@on_the_bench
async def test_a_directive_for_another_service_is_not_taken(bench: Bench) -> None:
    await bench.runner(Writer())
    await bench.send(1, step_type="SIS")
    await asyncio.sleep(1)
    assert bench.seen == []
    assert await bench.waiting() == 0
