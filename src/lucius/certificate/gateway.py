"""The small server of a certificate: a pull gateway that hands out exams and writes down every reply."""

import asyncio
import json
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from aiohttp import web

from lucius.certificate.exam import KINDS, NOT_PROVEN, UNAVAILABLE, Exam, Heard, ReplyVerdict, now

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
            self._heard(kind, await _object(request), token if scheme == "Bearer" else "")
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
            verdict = self._heard(
                str(body.get("type", "")).upper(), body, body.get("callback_token")
            )
            outcomes.append({"status": verdict.status, **verdict.more})
        return outcomes

    def _heard(self, kind: str, body: Mapping[str, Any], token: Any) -> ReplyVerdict:
        exam = self._meant(body, token)
        if exam is None:
            self.strays.append(body)
            return NOT_PROVEN
        proven = token == exam.directive.get("callback_token")
        return exam.hear(Heard(kind, body, now(), proven))

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
