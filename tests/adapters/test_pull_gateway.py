"""A worker on the pull gateway: replies in batches, answers that mean what they say, and clear refusals."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

import pytest

from lucius.adapters.buses.pull_gateway import BATCH, BatchedReplies, GatewayRefusedError, PullBus
from lucius.client import ProblemError, UnreachableError
from lucius.client.plain import PlainClient
from lucius.core.errors import BusUnavailableError, PublishRefusedError
from lucius.platform.messages import Directive, ReplyForm, parse_directive
from tests.virtual import run_virtually

WAIT = timedelta(seconds=1)


def directive(lease_id: str = "lease_1") -> dict[str, Any]:
    return {
        "jobId": "job_1",
        "stepId": "ocr",
        "tenant_id": "acme",
        "step_type": "OCR",
        "attempt_no": 1,
        "lease_id": lease_id,
        "callback_token": f"token of {lease_id}",
        "reply_topic": "replies",
        "workspace_ref": "file:///elsewhere/job_1/",
    }


class Scripted:
    """A server that answers as it is told, and remembers what it was asked."""

    def __init__(self, *answers: Any, outcome: Mapping[str, Any] | None = None) -> None:
        self._answers, self._outcome = list(answers), outcome or {"status": 200}
        self.batches: list[Sequence[Mapping[str, Any]]] = []
        self.asked_by: list[Any] = []

    async def pull(self, service: str, *, limit: int, wait_seconds: float, worker: Any) -> Any:
        self.asked_by.append(worker)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"directives": answer}

    async def reply(self, service: str, replies: Sequence[Mapping[str, Any]]) -> Any:
        self.batches.append(replies)
        await asyncio.sleep(1)
        if self._answers and isinstance(self._answers[0], Exception):
            raise self._answers.pop(0)
        return {"outcomes": [self._outcome for _ in replies]}


class Told:
    def __init__(self) -> None:
        self.refused: list[GatewayRefusedError] = []
        self.stale: list[str] = []

    def bus(self, server: Scripted, wrong: str | None = None) -> PullBus:
        return PullBus(
            cast(PlainClient, server), "ocr", usable=lambda body: wrong, refused=self.refused.append
        )

    def replies(self, server: Scripted) -> BatchedReplies:
        return BatchedReplies(cast(PlainClient, server), "ocr", self.stale.append)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtually(lambda loop: work())


async def sent(replies: BatchedReplies, kind: str, *leases: str) -> Any:
    parsed: list[Directive] = [parse_directive(directive(lease)) for lease in leases]
    messages = [ReplyForm(each, "me").filled(kind, "now") for each in parsed]
    pairs = zip(parsed, messages, strict=True)
    return await asyncio.gather(*(replies.send(*pair) for pair in pairs))


def test_replies_that_come_together_go_in_one_request() -> None:
    async def work() -> None:
        server = Scripted()
        replies = Told().replies(server)
        await sent(replies, "ACK", *(f"lease_{n}" for n in range(BATCH + 5)))
        assert [len(batch) for batch in server.batches] == [BATCH, 5]
        assert {each["callback_token"] for each in server.batches[1]} == {
            f"token of lease_{n}" for n in range(BATCH, BATCH + 5)
        }

    run(work)


def test_a_heartbeat_learns_of_a_cancel() -> None:
    async def work() -> None:
        server = Scripted(outcome={"status": 200, "cancel_requested": True})
        (answer,) = await sent(Told().replies(server), "HEARTBEAT", "lease_1")
        assert answer.cancel_requested

    run(work)


@pytest.mark.parametrize(
    ("status", "error"),
    [(503, BusUnavailableError), (429, BusUnavailableError), (422, PublishRefusedError)],
)
def test_a_reply_is_refused_for_good_or_for_now(status: int, error: type[Exception]) -> None:
    async def work() -> None:
        server = Scripted(outcome={"status": status, "code": "X", "detail": "why"})
        with pytest.raises(error, match="X: why"):
            await sent(Told().replies(server), "RESULT", "lease_1")

    run(work)


def test_a_refused_heartbeat_ends_the_lease_and_a_refused_result_does_not() -> None:
    async def work() -> None:
        told, stale = Told(), {"status": 409, "code": "STALE_ATTEMPT", "detail": "another one"}
        for kind in ("RESULT", "HEARTBEAT"):
            with pytest.raises(PublishRefusedError):
                await sent(told.replies(Scripted(outcome=stale)), kind, f"lease of {kind}")
        assert told.stale == ["lease of HEARTBEAT"]

    run(work)


@pytest.mark.parametrize(
    "failure",
    [
        UnreachableError("gone"),
        ProblemError(503, {}),
        ProblemError(401, {"code": "UNAUTHENTICATED"}),
    ],
)
def test_replies_without_an_answer_are_to_be_sent_again(failure: Exception) -> None:
    async def work() -> None:
        with pytest.raises(BusUnavailableError):
            await sent(Told().replies(Scripted(failure)), "RESULT", "lease_1")

    run(work)


def test_a_worker_that_may_not_pull_is_told_at_its_first_request() -> None:
    async def work() -> None:
        told = Told()
        refusal = ProblemError(401, {"code": "UNAUTHENTICATED", "detail": "who are you"})
        with pytest.raises(BusUnavailableError):
            await told.bus(Scripted(refusal)).receive("ocr", (), 1, WAIT)
        assert "LUCIUS_API_KEY" in str(told.refused[0])

    run(work)


def test_a_worker_that_has_pulled_waits_for_a_server_that_refuses_it_later() -> None:
    async def work() -> None:
        told = Told()
        bus = told.bus(Scripted([], ProblemError(404, {"code": "SERVICE_NOT_FOUND"})))
        assert await bus.receive("ocr", (), 1, WAIT) == []
        with pytest.raises(BusUnavailableError):
            await bus.receive("ocr", (), 1, WAIT)
        assert told.refused == [], "the protocols may be read again, and name it again"

    run(work)


def test_a_directive_that_this_worker_cannot_write_for_is_given_back() -> None:
    async def work() -> None:
        told, server = Told(), Scripted([directive()])
        assert await told.bus(server, "another workspace").receive("ocr", (), 1, WAIT) == []
        ((release,),) = server.batches
        assert (release["type"], release["lease_id"]) == ("RELEASE", "lease_1")
        assert release["callback_token"] == "token of lease_1"
        assert str(told.refused[0]) == "another workspace"

    run(work)
