"""The bus as a worker has it that knows only the URL of a server: it pulls, and replies in batches.

The gateway settles a directive as it hands it out, so there is no lock and nothing to complete.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from lucius.client import ClientError, ProblemError
from lucius.client.plain import PlainClient
from lucius.core.errors import BusError, BusUnavailableError, LuciusError, PublishRefusedError
from lucius.core.wire import message_id
from lucius.platform.messages import HEARTBEAT, RELEASE, Directive, Replies, ReplyAnswer
from lucius.ports.bus import Broker, Delivery, Message, Subscription

log = logging.getLogger("lucius.buses.pull_gateway")
MOST_PULLED: Final = 256
BATCH: Final = 64
"""Replies in one request: even the largest ones stay below the largest body that a server takes."""
STALE: Final = 409
_PASSING: Final = (401, 403, 408, 429)
"""Answers to a whole request that may be others later: a key may come back, a limit be left behind."""
_FOR_GOOD: Final = (401, 403, 404)
_BOUND: Final = ("jobId", "stepId", "attempt_no", "lease_id", "callback_token")
_ADVICE: Final = {
    "SERVICE_NOT_FOUND": "let LUCIUS_PROTOCOLS of the server name a protocol file with this service",
    "UNAUTHENTICATED": "set LUCIUS_API_KEY to a key of the server with the role service",
    "FORBIDDEN": "set LUCIUS_API_KEY to a key of the server with the role service",
}


class GatewayRefusedError(LuciusError):
    """The gateway or this worker is set up so that no directive can be worked on; the message helps."""


class PullBus:
    """Implements as much of `lucius.ports.bus.Bus` as a runner needs.

    `worker` is what the runner says of itself with every pull: `worker_id`, `slots`, `version`.
    `usable` says what is wrong with a directive for this worker, if something is. Such a directive is
    given back, and `refused` is told: another worker may be set up better.
    """

    broker = Broker("lucius")
    volatile = True
    by_tenant = False

    def __init__(
        self,
        client: PlainClient,
        service: str,
        *,
        worker: Mapping[str, Any] | None = None,
        usable: Callable[[Mapping[str, Any]], str | None],
        refused: Callable[[GatewayRefusedError], None],
    ) -> None:
        self._client = client
        self._service = service
        self._worker = worker
        self._usable = usable
        self._refused = refused
        self._answered = False

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        """The gateway has made them."""

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        raise PublishRefusedError("a worker of the pull gateway sends nothing but replies")

    async def receive(
        self,
        name: str,
        topics: Sequence[str],
        limit: int,
        wait: timedelta,
        tenants: Collection[str] | None = None,
    ) -> Sequence[Delivery]:
        try:
            answer = await self._client.pull(
                self._service,
                limit=min(limit, MOST_PULLED),
                wait_seconds=wait.total_seconds(),
                worker=self._worker,
            )
        except ProblemError as problem:
            raise self._problem(problem) from problem
        except ClientError as error:
            raise BusUnavailableError(str(error)) from error
        self._answered = True
        found = [_delivery(body, name) for body in answer["directives"]]
        return [each for each in found if await self._taken(each)]

    def _problem(self, problem: ProblemError) -> BusError:
        """What is wrong from the first request on will not mend itself: whoever started it must know."""
        if problem.status in _FOR_GOOD and not self._answered:
            advice = _ADVICE.get(problem.code)
            said = f"{problem}: {advice}" if advice else str(problem)
            self._refused(GatewayRefusedError(said))
        return BusUnavailableError(str(problem))

    async def _taken(self, delivery: Delivery) -> bool:
        wrong = self._usable(delivery.message.body)
        if wrong is not None:
            await self.abandon(delivery)
            self._refused(GatewayRefusedError(wrong))
        return wrong is None

    async def complete(self, delivery: Delivery) -> None:
        """It was settled as it was handed out."""

    async def abandon(self, delivery: Delivery) -> None:
        """Return the lease. If that fails, the ACK timeout of the directive does it."""
        given = delivery.message.body
        lease = {name: given[name] for name in _BOUND if name in given}
        try:
            await self._client.reply(self._service, [{**lease, "type": RELEASE}])
        except ClientError as error:
            raise BusUnavailableError(str(error)) from error

    async def dead_letter(self, delivery: Delivery, reason: str, detail: str) -> None:
        """Nobody keeps it: the log has it, and the ACK timeout decides about the step."""
        log.error("%s is dropped: %s: %s", delivery.message.message_id, reason, detail)

    async def send_notice(self, address: str, message: Message) -> None:
        raise PublishRefusedError("a worker of the pull gateway sends nothing but replies")

    async def receive_notices(self, address: str, wait: timedelta) -> Sequence[Message]:
        """Nobody is told anything here: the answer to a heartbeat says it."""
        await asyncio.sleep(wait.total_seconds())
        return ()

    async def close(self) -> None:
        await self._client.close()


def _delivery(body: Mapping[str, Any], name: str) -> Delivery:
    attempt = (body.get("jobId"), body.get("stepId"), body.get("attempt_no"), body.get("lease_id"))
    named = message_id(*attempt, "DIRECTIVE")  # type: ignore[arg-type]
    return Delivery(Message(named, body), "", name, named, 1)


Unanswered = tuple[Message, "asyncio.Future[ReplyAnswer]"]


class BatchedReplies(Replies):
    """Those that come while a request is under way go together with the next one.

    `stale` is told the lease whose heartbeat was refused: another attempt is current.
    """

    def __init__(self, client: PlainClient, service: str, stale: Callable[[str], None]) -> None:
        self._client = client
        self._service = service
        self._stale = stale
        self._waiting: deque[Unanswered] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        answered = asyncio.get_running_loop().create_future()
        self._waiting.append((message, answered))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all(), name="replies")
        answer: ReplyAnswer = await answered
        return answer

    async def _send_all(self) -> None:
        try:
            await asyncio.sleep(0)  # those of the same turn of the loop go together
            while self._waiting:
                size = min(BATCH, len(self._waiting))
                await self._send([self._waiting.popleft() for _ in range(size)])
        finally:
            self._sender = None

    async def _send(self, batch: Sequence[Unanswered]) -> None:
        try:
            bodies = [message.body for message, _ in batch]
            outcomes = (await self._client.reply(self._service, bodies))["outcomes"]
        except ClientError as error:
            for _, answered in batch:
                _fail(answered, _whole(error))
            return
        for (message, answered), outcome in zip(batch, outcomes, strict=True):
            self._answer(message, answered, outcome)

    def _answer(
        self, message: Message, answered: "asyncio.Future[ReplyAnswer]", outcome: Mapping[str, Any]
    ) -> None:
        status = outcome["status"]
        if status == 200:
            if not answered.done():
                answered.set_result(ReplyAnswer(bool(outcome.get("cancel_requested"))))
            return
        if status == STALE and message.body["type"] == HEARTBEAT:
            self._stale(str(message.body["lease_id"]))
        said = f"{outcome.get('code')}: {outcome.get('detail')}"
        passing = status in _PASSING[2:] or status >= 500
        _fail(answered, BusUnavailableError(said) if passing else PublishRefusedError(said))


def _fail(answered: "asyncio.Future[ReplyAnswer]", error: BusError) -> None:
    if not answered.done():
        answered.set_exception(error)


def _whole(error: ClientError) -> BusError:
    """A refusal of the whole request is for good only where it says what is wrong with these replies."""
    status = error.status if isinstance(error, ProblemError) else 503
    if status in _PASSING or status >= 500:
        return BusUnavailableError(str(error))
    return PublishRefusedError(str(error))
