"""One directive that a service is handed, what it is answered, and everything that it says about it."""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

ACK: Final = "ACK"
HEARTBEAT: Final = "HEARTBEAT"
RESULT: Final = "RESULT"
RELEASE: Final = "RELEASE"
KINDS: Final = (ACK, HEARTBEAT, RESULT, RELEASE)
PULL_SECONDS: Final = 30.0
"""How long a directive may wait for a service that has other steps to execute."""


class BrokenError(Exception):
    """A check failed. The message says what was seen."""


class EndedError(BrokenError):
    """The process has ended while it was looked at: one crash, whatever else was under way."""


class NotApplicableError(Exception):
    """A check that says nothing about this service. The message says why, and what would change that."""


@dataclass(frozen=True, slots=True)
class ReplyVerdict:
    """What a reply is answered with: a status, and what the body says besides."""

    status: int = 200
    more: Mapping[str, Any] = field(default_factory=dict)


APPLIED: Final = ReplyVerdict(200, {"outcome": "applied"})
STALE: Final = ReplyVerdict(409, {"code": "STALE_ATTEMPT", "detail": "another attempt is current"})
UNAVAILABLE: Final = ReplyVerdict(503, {"code": "LEDGER_UNAVAILABLE", "detail": "try again"})
CANCEL: Final = ReplyVerdict(200, {"outcome": "applied", "cancel_requested": True})
NOT_PROVEN: Final = ReplyVerdict(401, {"code": "CALLBACK_TOKEN_INVALID", "detail": "not its token"})


@dataclass(frozen=True, slots=True)
class ReceivedReply:
    """One reply: when it came, and whether it carried the token of its attempt."""

    kind: str
    body: Mapping[str, Any]
    at: float
    proven: bool

    @property
    def status(self) -> str:
        """Of a RESULT, in the words of the contract, whichever dialect it speaks."""
        status = str(self.body.get("status", "")).upper()
        if status != "FAILED":
            return status
        final = str(self.body.get("failure_class", "")).upper() == "NON_RETRYABLE"
        return "FAILED_FINAL" if final else "FAILED_RETRY"

    @property
    def output(self) -> Any:
        found = self.body.get("output_ref")
        return self.body.get("artifact_refs") if found is None else found

    @property
    def code(self) -> str:
        error = self.body.get("error")
        error = error if isinstance(error, Mapping) else {}
        return str(error.get("code") or self.body.get("error_code") or "")

    @property
    def message(self) -> str:
        error = self.body.get("error")
        error = error if isinstance(error, Mapping) else {}
        return str(error.get("message") or self.body.get("error_message") or
                   self.body.get("reason") or "")  # fmt: skip

    def told(self) -> str:
        """For people."""
        if self.kind != RESULT:
            return self.kind
        return f"RESULT {self.status} {self.code}".strip() + (
            f" ({self.message[:200]})" if self.message else ""
        )


def now() -> float:
    """Seconds on the loop's clock, as all times of a certificate are."""
    return asyncio.get_running_loop().time()


class Exam:
    """`verdicts`: by kind of reply, what the first, the second, ... is answered. The last one repeats."""

    def __init__(
        self,
        directive: dict[str, Any],
        verdicts: Mapping[str, Sequence[ReplyVerdict]] | None = None,
    ) -> None:
        self.directive = directive
        self.handed_at: list[float] = []
        self.replies: list[ReceivedReply] = []
        self._verdicts = verdicts or {}
        self._changed = asyncio.Event()

    def hand_out(self) -> dict[str, Any]:
        self.handed_at.append(now())
        self._changed.set()
        return self.directive

    def receive(self, reply: ReceivedReply) -> ReplyVerdict:
        self.replies.append(reply)
        self._changed.set()
        if not reply.proven:
            return NOT_PROVEN
        given = self._verdicts.get(reply.kind, (APPLIED,))
        return given[min(len(self.of(reply.kind)), len(given)) - 1]

    def of(self, kind: str) -> list[ReceivedReply]:
        return [reply for reply in self.replies if reply.kind == kind]

    @property
    def succeeded(self) -> bool:
        return any(reply.status == "SUCCEEDED" for reply in self.of(RESULT))

    async def until(self, met: Callable[[], bool], within: float) -> bool:
        """Whether it was met in time."""
        deadline = now() + within
        while not met():
            self._changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                return met()
        return True

    async def handed(self, times: int = 1, within: float = PULL_SECONDS) -> None:
        if not await self.until(lambda: len(self.handed_at) >= times, within):
            raise BrokenError(f"the service did not pull the directive within {within:g} s")

    async def acknowledged(self, within: float) -> None:
        """The clock starts as the directive is handed out."""
        await self.handed()
        deadline = self.handed_at[0] + within
        await self.until(lambda: bool(self.of(ACK)), max(0.0, deadline - now()))
        if not self.of(ACK) or self.of(ACK)[0].at > deadline:
            raise BrokenError(
                f"no ACK came within {within:g} s of the pull; it said: {self.told()}"
            )

    async def wait_for_reply(self, kind: str, within: float, count: int = 1) -> ReceivedReply:
        """The reply of that kind, once so many came, counted from now or from when it is handed out."""
        await self.handed()
        if await self.until(lambda: len(self.of(kind)) >= count, within):
            return self.of(kind)[count - 1]
        again = "" if count == 1 else f" number {count}"
        raise BrokenError(f"no {kind}{again} came within {within:g} s; it said: {self.told()}")

    def told(self) -> str:
        return ", ".join(reply.told() for reply in self.replies) or "nothing"


# The small server of a certificate: a pull gateway that hands out exams and writes down every reply.

LONGEST_WAIT: Final = 20.0
HOST: Final = "127.0.0.1"
NAMING: Final = ("callback_token", "lease_id", "jobId")


class ExamGateway:
    """Speaks what `lucius up` speaks to workers, and nothing else. Listens on loopback."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._queue: deque[Exam] = deque()
        self._exams: dict[tuple[str, Any], Exam] = {}
        """By what a reply may name: token, lease, job."""
        self._news = asyncio.Event()
        self._outages = 0
        self.asked = asyncio.Event()
        """Set once somebody has asked for directives."""
        self._runner: web.AppRunner | None = None
        self.url = ""
        self.ended_in: str | None = None
        """The check that met the end of the process first."""
        self.strays: list[Mapping[str, Any]] = []
        """Replies that belong to no exam."""

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_post("/v1/services/{service}/directives:pull", self._pull)
        app.router.add_post("/v1/services/{service}/replies", self._replies)
        app.router.add_post("/v1/callbacks/{kind}", self._callback)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, port)
        await site.start()
        self.url = f"http://{HOST}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    # -- handing out -------------------------------------------------------------------------

    def hand(self, exam: Exam) -> None:
        """Put it into the queue; more than once is a duplicate."""
        kinds = {kind.lower(): f"{self.url}/v1/callbacks/{kind.lower()}" for kind in KINDS}
        exam.directive.setdefault("callback_urls", kinds)
        for name in NAMING:
            if isinstance(value := exam.directive.get(name), str):
                self._exams.setdefault((name, value), exam)
        self._queue.append(exam)
        self._news.set()

    def fail_pulls(self, count: int) -> None:
        """Answer so many pulls with 503, that which waits included."""
        self._outages = count
        self._news.set()

    @property
    def down(self) -> bool:
        return self._outages > 0

    async def pulled(self, limit: int, wait: float) -> list[dict[str, Any]] | ReplyVerdict:
        """What a worker gets that asks for directives, or why it gets none."""
        self.asked.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(wait, LONGEST_WAIT)):
                while not self._queue and not self.down:
                    self._news.clear()
                    await self._news.wait()
        if self.down:
            self._outages -= 1
            return UNAVAILABLE
        count = min(max(1, limit), len(self._queue))
        return [self._queue.popleft().hand_out() for _ in range(count)]

    async def _pull(self, request: web.Request) -> web.Response:
        asked = await _object(request)
        if request.match_info["service"] != self._service:
            detail = f"this gateway serves {self._service}"
            return _answer(ReplyVerdict(404, {"code": "SERVICE_NOT_FOUND", "detail": detail}))
        found = await self.pulled(int(asked.get("max", 1)), float(asked.get("wait_seconds", 0)))
        if isinstance(found, ReplyVerdict):
            return _answer(found)
        return web.json_response({"directives": found})

    # -- hearing -----------------------------------------------------------------------------

    async def _callback(self, request: web.Request) -> web.Response:
        kind = request.match_info["kind"].upper()
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return _answer(
            self._receive(kind, await _object(request), token if scheme == "Bearer" else "")
        )

    async def _replies(self, request: web.Request) -> web.Response:
        replies = (await _object(request)).get("replies")
        given = replies if isinstance(replies, list) else []
        return web.json_response({"outcomes": self.replied(given)})

    def replied(self, replies: Sequence[Any]) -> list[dict[str, Any]]:
        """The outcomes of a batch."""
        outcomes: list[dict[str, Any]] = []
        for reply in replies:
            body = reply if isinstance(reply, dict) else {}
            verdict = self._receive(
                str(body.get("type", "")).upper(), body, body.get("callback_token")
            )
            outcomes.append({"status": verdict.status, **verdict.more})
        return outcomes

    def _receive(self, kind: str, body: Mapping[str, Any], token: Any) -> ReplyVerdict:
        exam = self._meant(body, token)
        if exam is None:
            self.strays.append(body)
            return NOT_PROVEN
        proven = token == exam.directive.get("callback_token")
        return exam.receive(ReceivedReply(kind, body, now(), proven))

    def _meant(self, body: Mapping[str, Any], token: Any) -> Exam | None:
        """Whose reply it is: by its token, or else by what it names."""
        for name, value in zip(
            NAMING, (token, body.get("lease_id"), body.get("jobId")), strict=True
        ):
            if isinstance(value, str) and (name, value) in self._exams:
                return self._exams[name, value]
        return None


async def _object(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read() or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _answer(verdict: ReplyVerdict) -> web.Response:
    return web.json_response(dict(verdict.more), status=verdict.status)
