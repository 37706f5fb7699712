"""One directive that a service is handed, what it is answered, and everything that it says about it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

ACK: Final = "ACK"
HEARTBEAT: Final = "HEARTBEAT"
RESULT: Final = "RESULT"
RELEASE: Final = "RELEASE"
KINDS: Final = (ACK, HEARTBEAT, RESULT, RELEASE)
PULL_SECONDS: Final = 30.0
"""How long a directive may wait for a service that has other steps to execute."""


class BrokenError(Exception):
    """A check failed. The message says what was seen."""


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
class Heard:
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
        self.replies: list[Heard] = []
        self._verdicts = verdicts or {}
        self._changed = asyncio.Event()

    def hand_out(self) -> dict[str, Any]:
        self.handed_at.append(now())
        self._changed.set()
        return self.directive

    def hear(self, reply: Heard) -> ReplyVerdict:
        self.replies.append(reply)
        self._changed.set()
        if not reply.proven:
            return NOT_PROVEN
        given = self._verdicts.get(reply.kind, (APPLIED,))
        return given[min(len(self.of(reply.kind)), len(given)) - 1]

    def of(self, kind: str) -> list[Heard]:
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

    async def heard(self, kind: str, within: float, count: int = 1) -> Heard:
        """The reply of that kind, once so many came, counted from now or from when it is handed out."""
        await self.handed()
        if await self.until(lambda: len(self.of(kind)) >= count, within):
            return self.of(kind)[count - 1]
        again = "" if count == 1 else f" number {count}"
        raise BrokenError(f"no {kind}{again} came within {within:g} s; it said: {self.told()}")

    def told(self) -> str:
        return ", ".join(reply.told() for reply in self.replies) or "nothing"
