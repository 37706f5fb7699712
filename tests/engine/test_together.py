"""Inputs about one job that come together are decided one by one and saved once."""

from collections.abc import Awaitable, Callable, Sequence

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core.effects import Outcome, PublishDirective
from lucius.core.inputs import AckReceived, Input, LeaseReturned, ResultReceived, ResultStatus
from lucius.core.job import Job, StepState
from lucius.engine.outbox import OutboxEngine
from lucius.engine.replies import by_job
from lucius.ports.bus import Delivery, Message
from lucius.ports.engine import Applied
from tests.engine.world import World, envelope
from tests.virtual import VirtualLoop, run_virtually


class CountingLedger(MemoryLedger):
    saves = 0

    async def save(self, job: Job, *rest: object) -> bool:
        self.saves += 1
        saved: bool = await super().save(job, *rest)  # type: ignore[arg-type]
        return saved


Check = Callable[[OutboxEngine, CountingLedger, str, PublishDirective], Awaitable[None]]


async def together(engine: OutboxEngine, job_id: str, inputs: Sequence[Input]) -> Sequence[Applied]:
    return (await engine.ask(job_id, lambda job: [(received, None) for received in inputs]))[1]


def with_one_directive_out(check: Check) -> None:
    async def main(loop: VirtualLoop) -> None:
        ledger = CountingLedger()
        world = World(loop, ledger=ledger)
        engine = world.engine
        job_id = (await engine.submit(envelope())).job_id
        ((_, asked),) = world.outbox.owed.directives(2)
        await check(engine, ledger, job_id, asked)

    run_virtually(main)


def test_an_ack_and_its_result_are_one_save_that_releases_the_next_step() -> None:
    async def check(
        engine: OutboxEngine, ledger: CountingLedger, job_id: str, out: PublishDirective
    ) -> None:
        bound = (out.step_id, out.attempt_no, out.lease_id)
        result = ResultReceived(*bound, ResultStatus.SUCCEEDED, "s3://bucket/out")
        applied = await together(engine, job_id, [AckReceived(*bound), result])
        assert [one.outcome for one in applied] == [Outcome.APPLIED, Outcome.APPLIED]
        assert ledger.saves == 1
        stored = await ledger.load(job_id)
        assert stored is not None
        assert [step.state for step in stored.steps[:2]] == [
            StepState.SUCCEEDED,
            StepState.DISPATCHING,
        ]
        types = [event.type for event in await ledger.events(job_id, 0, 100)]
        assert types == ["submitted", "entry_released", "ack", "success", "entry_released"]

    with_one_directive_out(check)


def test_each_input_gets_the_outcome_that_it_would_have_had_alone() -> None:
    async def check(
        engine: OutboxEngine, ledger: CountingLedger, job_id: str, out: PublishDirective
    ) -> None:
        bound = (out.step_id, out.attempt_no, out.lease_id)
        stale = LeaseReturned(out.step_id, out.attempt_no, "another lease")
        inputs: list[Input] = [AckReceived(*bound), AckReceived(*bound), stale]
        applied = await together(engine, job_id, inputs)
        assert [one.outcome for one in applied] == [
            Outcome.APPLIED,
            Outcome.DUPLICATE,
            Outcome.STALE,
        ]

    with_one_directive_out(check)


def test_deliveries_are_grouped_by_job_in_their_order() -> None:
    def delivery(number: int, body: dict[str, object]) -> Delivery:
        return Delivery(Message(str(number), body), "topic", "name", f"lock-{number}", 1)

    bodies: list[dict[str, object]] = [
        {"jobId": "a"},
        {"jobId": "b"},
        {},
        {"jobId": "a"},
        {"jobId": 7},
    ]
    groups = by_job([delivery(number, body) for number, body in enumerate(bodies)])
    assert [[d.message.message_id for d in group] for group in groups.values()] == [
        ["0", "3"],
        ["1"],
        ["2"],
        ["4"],
    ]
