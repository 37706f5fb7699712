"""One directive, from its delivery to its RESULT: pick up, execute, commit, promote, reply."""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

from lucius.core.errors import BusError, LuciusError, PublishRefusedError
from lucius.core.wire import proven, same_attempt
from lucius.platform.bodies import Body, ServiceInstruments
from lucius.platform.commit import CommitRecord, Commits, folders, uncommitted
from lucius.platform.errors import (
    InvalidDirectiveError,
    LeaseExpiredError,
    RetryableError,
    StepTypeNotServedError,
    classify,
    step_failure,
)
from lucius.platform.lease import BEATS_PER_LEASE, Backoff, Lease, LeaseTimer
from lucius.platform.messages import (
    ACK,
    HEARTBEAT,
    RELEASE,
    RESULT,
    Directive,
    Replies,
    ReplyAnswer,
    ReplyForm,
    answerable,
    failed,
    parse_directive,
    succeeded,
)
from lucius.platform.records import Begun, Records
from lucius.platform.service import Output, Service
from lucius.platform.task import Task
from lucius.ports.bus import Bus, Delivery
from lucius.ports.workspace import Workspace
from lucius.system.logs import message_fields
from lucius.system.spans import executing
from lucius.system.tracing import NO_SPAN, NoSpan

log = logging.getLogger("lucius.platform.execution")
NO_OUTPUT: Final = Output()
MOST_BESIDE: Final = 4 * BEATS_PER_LEASE
"""Heartbeats in a row from beside the loop: after four leases without a turn, another worker may try."""


@dataclass(frozen=True, slots=True)
class Kit:
    """What every execution of a runner shares."""

    service: Service
    body: Body
    bus: Bus
    workspace: Workspace
    replies: Replies
    records: Records
    commits: Commits
    worker_id: str
    clock: Callable[[], str]
    """The time that replies say."""
    instruments: ServiceInstruments
    lease_timer: LeaseTimer
    said: Mapping[str, Any] | None = None
    """What the worker says of itself with every ACK: `slots` and `version`."""


class Progress(Enum):
    PICKING_UP = "picking up"
    """Nothing has started; the directive can be given back to the bus."""
    BEGINNING = "beginning"
    """It is being settled whose work this is; that is quick and not interrupted."""
    EXECUTING = "executing"
    """The lease is held; it can be given back to the orchestrator."""
    CLOSING = "closing"
    """The effect may be committed; only the RESULT is right now."""


class Attempt:
    def __init__(self, kit: Kit, delivery: Delivery, loop: asyncio.AbstractEventLoop) -> None:
        self._kit = kit
        self._loop = loop
        self._delivery = delivery
        self._releasing = False
        self._cancel_requested = False
        self._ended = False
        self._form: ReplyForm | None = None
        self._task: Task | None = None
        self._held: tuple[Directive, Lease] | None = None
        self._span: NoSpan = NO_SPAN
        self.progress = Progress.PICKING_UP

    @property
    def message_id(self) -> str:
        return self._delivery.message.message_id

    @property
    def _log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """Names the attempt; made only where something is said."""
        return logging.LoggerAdapter(log, message_fields(self._delivery.message.body))

    @property
    def job_id(self) -> object:
        return self._delivery.message.body.get("jobId")

    @property
    def lease_id(self) -> object:
        return self._delivery.message.body.get("lease_id")

    def is_addressed(self, said: Mapping[str, Any]) -> bool:
        """Whether a notice is for this attempt, and LUCIUS made it."""
        directive = self._delivery.message.body
        if not same_attempt(said, directive):
            return False
        if proven(said, directive.get("callback_token")):
            return True
        self._log.warning("a notice to %s is ignored: LUCIUS did not make it", self.message_id)
        return False

    async def run(self) -> None:
        try:
            directive = self._accepted()
        except (InvalidDirectiveError, StepTypeNotServedError) as error:
            await self._refuse(error)
            return
        with executing(self._delivery, self._kit.bus.broker) as self._span:
            directive = directive.under(self._span)
            sent_at = await self._acknowledged(directive)
            if sent_at is None:
                return
            self.progress = Progress.BEGINNING
            begun = await self._begun(directive)
            try:
                await self._kit.bus.complete(self._delivery)
            except BusError as error:
                self._comes_again(error)
            if begun is None:
                await self._give_back(directive)
            elif begun.mine:
                await self._work(directive, sent_at)
            elif begun.result is not None:
                self.progress = Progress.CLOSING
                await self._send_result(directive, begun.result)

    # -- pick up -----------------------------------------------------------------------------

    def _accepted(self) -> Directive:
        directive, service = parse_directive(self._delivery.message.body), self._kit.service
        if directive.step_type not in service.step_types:
            served = ", ".join(service.step_types)
            raise StepTypeNotServedError(
                f"/step_type: {directive.step_type} is not served here, but {served}"
            )
        if service.commit and not directive.workspace:
            raise InvalidDirectiveError("/workspace_ref: required")
        return directive

    async def _refuse(self, error: InvalidDirectiveError | StepTypeNotServedError) -> None:
        """What is no directive for this service is set aside: it would never become one.

        If it says whom to answer, its RESULT says why: nobody waits for an ACK that cannot come.
        """
        self._log.error("%s is set aside: %s", self.message_id, error)
        if (faulty := answerable(self._delivery.message.body)) is not None:
            result = failed(classify(error))
            self._kit.instruments.attempts.add(self._kit.service.name, result["status"], error.code)
            await self._send_result(faulty, result)
        await self._set_aside("INVALID_DIRECTIVE", str(error))

    async def _acknowledged(self, directive: Directive) -> float | None:
        """When the ACK went out. Nothing starts before it; past its time, the attempt is replaced."""
        backoff: Backoff | None = None
        try:
            while True:
                sent_at = self._loop.time()
                try:
                    await self._send(directive, ACK, self._kit.said)
                    return sent_at
                except PublishRefusedError as error:
                    await self._set_aside("ACK_REFUSED", str(error))
                    return None
                except BusError as error:
                    self._log.warning("the ACK of %s was not sent: %s", self.message_id, error)
                backoff = backoff or Backoff(within=directive.ack_seconds)
                if not await backoff.wait():
                    break
        except asyncio.CancelledError:
            if not self._releasing:
                raise
        await self._settled(self._kit.bus.abandon(self._delivery))
        return None

    async def _begun(self, directive: Directive) -> Begun | None:
        """Whose work it is; None if that cannot be recorded for as long as an ACK may take."""
        backoff: Backoff | None = None
        while True:
            try:
                return await self._kit.records.begin(directive, self._kit.worker_id)
            except LuciusError as error:
                self._log.warning("%s cannot be recorded as begun: %s", self.message_id, error)
            backoff = backoff or Backoff(within=directive.ack_seconds)
            if self._releasing or not await backoff.wait():
                return None

    async def _set_aside(self, reason: str, detail: str) -> None:
        await self._settled(self._kit.bus.dead_letter(self._delivery, reason, detail))

    async def _settled(self, settling: Awaitable[None]) -> None:
        """If it fails the message comes again, and is then found begun or done."""
        try:
            await settling
        except BusError as error:
            self._comes_again(error)

    def _comes_again(self, error: BusError) -> None:
        self._log.info("%s will be delivered again: %s", self.message_id, error)

    # -- work --------------------------------------------------------------------------------

    async def _work(self, directive: Directive, sent_at: float) -> None:
        beat = partial(self._beat, directive)
        lease = Lease(directive.lease_seconds, sent_at, beat, self._kit.lease_timer)
        self.progress = Progress.EXECUTING
        self._held = directive, lease
        lease.keep()
        try:
            if self._releasing or self._ended:
                raise asyncio.CancelledError
            result = await self._result(directive, lease)
            self.progress = Progress.CLOSING
            self._count(result, sent_at)
            try:
                await self._kit.records.finish(directive, result)
            except LuciusError as error:
                self._log.warning("%s cannot be recorded as done: %s", self.message_id, error)
            await self._send_result(directive, result)
        except asyncio.CancelledError:
            if self._ended and self.progress is Progress.EXECUTING:
                await self._kit.records.forget(directive, self._kit.worker_id)
                return
            if not self._releasing or self.progress is Progress.CLOSING:
                raise
            await self._give_back(directive)
        finally:
            self._held = None
            lease.stop()

    def _count(self, result: Mapping[str, Any], sent_at: float) -> None:
        name, counts = self._kit.service.name, self._kit.instruments
        code = str(result["error"]["code"]) if "error" in result else ""
        counts.attempts.add(name, result["status"], code)
        counts.seconds.add(self._loop.time() - sent_at, name)

    async def _result(self, directive: Directive, lease: Lease) -> Mapping[str, Any]:
        try:
            workspace = self._workspace(directive)
            if self._kit.service.commit:
                return await self._committed(directive, lease, workspace)
            output = await self._executed(directive, workspace)
            return succeeded(uncommitted(output, self._task.staged if self._task else {}))
        except Exception as error:
            failure = classify(error, self._kit.service.errors)
            self._span.failed(failure.code)
            said = (self.message_id, failure.code, failure.message)
            self._log.warning("%s failed: %s: %s", *said, exc_info=failure.unexpected)
            return failed(failure)

    async def _committed(
        self, directive: Directive, lease: Lease, workspace: Workspace
    ) -> Mapping[str, Any]:
        commits = self._kit.commits.over(workspace)

        async def propose() -> tuple[CommitRecord, int]:
            output = await self._executed(directive, workspace)
            lease.check()
            if self._ended:
                raise LeaseExpiredError("the orchestrator has ended the lease")
            self.progress = Progress.CLOSING
            staged = self._task.staged if self._task else {}
            return await commits.commit(directive, self._kit.worker_id, output, staged)

        def stands() -> bool:
            return lease.stands and not self._ended

        return succeeded((await commits.once(directive, propose, stands)).output_ref)

    async def _executed(self, directive: Directive, workspace: Workspace) -> Output:
        """Whatever `execute()` does, only its own step fails by it, or is stopped."""
        payload, limit = directive.body.get("payload"), self._kit.service.input_limit
        self._task = task = Task(directive, payload, workspace, limit)
        if self._cancel_requested:
            task.request_cancel()
        try:
            return await self._kit.body(task) or NO_OUTPUT
        except asyncio.CancelledError as error:
            if _cancelled_from_outside():
                raise
            raise RetryableError("execute() cancelled itself", code="CANCELLED_ITSELF") from error
        except Exception:
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise step_failure(error) from error

    def _workspace(self, directive: Directive) -> Workspace:
        """What this job may touch. A service without outputs may do without a workspace."""
        named = directive.body.get("workspace_ref") is not None
        return self._kit.workspace.within(*(folders(directive) if named else ()))

    # -- replies -----------------------------------------------------------------------------

    def _send(
        self,
        directive: Directive,
        kind: str,
        fields: Mapping[str, Any] | None = None,
        serial: int | None = None,
    ) -> Awaitable[ReplyAnswer]:
        kit = self._kit
        if self._form is None:
            self._form = ReplyForm(directive, kit.worker_id)
        return kit.replies.send(directive, self._form.filled(kind, kit.clock(), fields, serial))

    async def _send_result(self, directive: Directive, result: Mapping[str, Any]) -> None:
        backoff: Backoff | None = None
        while True:
            try:
                await self._send(directive, RESULT, result)
                return
            except PublishRefusedError as error:
                self._log.error(
                    "the RESULT of %s is refused, its lease will run out: %s",
                    self.message_id,
                    error,
                )
                return
            except BusError as error:
                self._log.warning("the RESULT of %s was not sent: %s", self.message_id, error)
            backoff = backoff or Backoff()
            await backoff.wait()

    async def _beat(self, directive: Directive, number: int) -> None:
        said = self._task.progress if self._task is not None else None
        fields = {"progress": said} if said else None
        if (await self._send(directive, HEARTBEAT, fields, number)).cancel_requested:
            self.request_cancel()
        try:
            await self._kit.records.renew(directive, self._kit.worker_id)
        except LuciusError as error:
            self._log.warning("%s cannot be recorded as alive: %s", self.message_id, error)

    # -- heartbeats from another thread, while the loop is held up ---------------------------------

    def overdue(self, now: float) -> bool:
        """Whether a heartbeat should have been sent. A loop that never goes on is not kept alive for ever."""
        held, limit = self._held, self._kit.service.time_limit
        if held is None or held[1].beside >= MOST_BESIDE:
            return False
        late = limit is not None and now - held[1].began_at > limit.total_seconds()
        return not late and held[1].due_at <= now

    async def beat_over(self, replies: Replies) -> None:
        """Send a heartbeat by another way; the lease goes on from when it was sent."""
        held, form, said = self._held, self._form, self._task.progress if self._task else None
        if held is None or form is None:
            return
        directive, lease = held
        sent_at, number = time.monotonic(), lease.next_number()
        fields = {"progress": said} if said else None
        message = form.filled(HEARTBEAT, self._kit.clock(), fields, number)
        lease.beside += 1
        try:
            answer = await replies.send(directive, message)
        except Exception as error:
            lease.wait_in_outage(sent_at)
            self._log.warning("a heartbeat was not sent: %r", error)
            return
        lease.extend(sent_at)
        if answer.cancel_requested:
            self._loop.call_soon_threadsafe(self.request_cancel)

    def request_cancel(self) -> None:
        self._cancel_requested = True
        if self._task is not None:
            self._task.request_cancel()

    def end(self, running: asyncio.Task[None]) -> None:
        """The orchestrator has ended the lease: stop the work, commit nothing, answer nothing."""
        self._ended = True
        if self.progress is Progress.EXECUTING:
            running.cancel()

    # -- draining ----------------------------------------------------------------------------

    def release(self, running: asyncio.Task[None]) -> None:
        """Stop the work and give the lease back, unless its effect may already be committed."""
        self._releasing = True
        if self.progress in (Progress.PICKING_UP, Progress.EXECUTING):
            running.cancel()

    async def _give_back(self, directive: Directive) -> None:
        try:
            await self._send(directive, RELEASE)
            await self._kit.records.forget(directive, self._kit.worker_id)
        except LuciusError as error:
            self._log.warning("the lease of %s was not given back: %s", self.message_id, error)


def _cancelled_from_outside() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def is_interrupt(error: BaseException) -> bool:
    """Whether it is a real Ctrl-C that came while a service ran: that is for the whole process.

    Where LUCIUS handles the signal itself nothing is raised by it, so what is raised is the service's.
    """
    if not isinstance(error, KeyboardInterrupt):
        return False
    handler = signal.getsignal(signal.SIGINT)
    owner = getattr(getattr(handler, "func", handler), "__module__", None)
    return handler is signal.default_int_handler or owner == "asyncio.runners"
