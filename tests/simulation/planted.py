"""Faults planted in the engine, one at a time: each is a context in which exactly that is broken.

The simulator must find every one of them. Whoever rewrites a part of the engine plants its fault there anew.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from unittest.mock import patch

from lucius.core import control
from lucius.core.effects import (
    Committed,
    Decision,
    Effect,
    Outcome,
    PublishDirective,
    committed,
)
from lucius.core.ids import new_lease_id
from lucius.core.inputs import Callback, EffectSettled, ResultReceived
from lucius.core.job import AbortReason, Job, Step, StepState
from lucius.core.turn import Turn
from lucius.engine import loop as loop_module
from lucius.engine import ownership as ownership_module
from lucius.engine.admission import ingress
from lucius.engine.dispatcher import Dispatcher
from lucius.engine.inbox import Loaded, Request, TimedInput
from lucius.engine.loop import EngineLoop, OwedDirective, OwedEffects
from lucius.engine.notices import Nudges
from lucius.engine.outbox import Waits
from lucius.engine.ownership import Ownership
from lucius.engine.releases import ReadyQueues, Releases
from lucius.engine.replies import EarlyAcks, ReplyGroup
from lucius.engine.ticks import Alarm, Ticks
from lucius.engine.windows import Windows
from lucius.platform.commit import Commits
from lucius.platform.lease import Lease
from lucius.ports.engine import Applied
from lucius.ports.ledger import Claim, DueJob
from tests.faults.sabotage import (
    no_compare_and_swap,
    no_lease_check,
    standing_of,
)

Planted = Callable[[], AbstractContextManager[Any]]


def _nothing(*args: Any, **named: Any) -> None:
    """Instead of what should be done."""


async def _nothing_async(*args: Any, **named: Any) -> None:
    """As above."""


# -- what is held, released and published --------------------------------------------------------


def lost_wake_up() -> AbstractContextManager[Any]:
    """A directive that is put where none waits wakes nobody."""
    put = OwedEffects.put

    def quietly(self: OwedEffects, job: Job, effect: Effect) -> None:
        if isinstance(effect, PublishDirective) and not self._directives:
            self._directives[effect.lease_id] = (job, effect)
        else:
            put(self, job, effect)

    return patch.object(OwedEffects, "put", quietly)


def published_before_commit() -> AbstractContextManager[Any]:
    """Effects are performed as soon as they are decided."""
    save = EngineLoop._save

    async def hastily(self: EngineLoop, batch: Any) -> None:
        for each in batch.saves:
            if each.owned and each.before is not None:
                self._releases.listen(committed(each.before, each.decision, owned=True))
                for effect in each.decision.effects:
                    self._owed.put(each.decision.job, effect)
        await save(self, batch)

    return patch.object(EngineLoop, "_save", hastily)


def ack_clock_runs_while_queued() -> AbstractContextManager[Any]:
    """A directive that waits behind others at a busy service passes for unanswered."""
    return patch.object(Windows, "queued", lambda self, lease_id: False)


def window_never_given_back() -> AbstractContextManager[Any]:
    """What was cancelled before its ACK keeps its place in the window."""
    return patch.object(Windows, "withdrawn", _nothing)


def in_progress_never_ends() -> AbstractContextManager[Any]:
    """What ends is still counted as in progress."""
    return patch.object(Windows, "rests", _nothing)


def pump_not_asked() -> AbstractContextManager[Any]:
    """Room in the window that becomes free wakes nobody who waits for it."""
    return patch.object(Releases, "pump", _nothing)


def outage_taken_for_refusal() -> AbstractContextManager[Any]:
    """A publish whose outcome is unknown uses up the attempt."""

    async def refused(self: Dispatcher, error: Exception, batch: list[OwedDirective]) -> None:
        for job, effect in batch:
            self._refused(job, effect, error)

    return patch.object(Dispatcher, "_outage", refused)


def unknown_publish_forgotten() -> AbstractContextManager[Any]:
    """A publish whose outcome is unknown passes for done."""

    async def done(self: Dispatcher, error: Exception, batch: list[OwedDirective]) -> None:
        await asyncio.sleep(0)

    forgets = patch.object(Dispatcher, "_outage", done)
    never_again = patch.object(Turn, "ask_publish_again", lambda self, index: _later(self, index))
    return _together(forgets, never_again)


def _later(turn: Turn, index: int) -> None:
    turn.own_entry(index).asked_at = turn.now


# -- time --------------------------------------------------------------------------------------


def alarm_too_late() -> AbstractContextManager[Any]:
    """The alarm rings ten seconds after a job is due."""
    due = Alarm.due

    def later(self: Alarm, at: datetime) -> None:
        due(self, at + timedelta(seconds=10))

    found = Alarm.found

    def found_later(self: Alarm, at: datetime | None) -> None:
        found(self, at + timedelta(seconds=10) if at is not None else None)

    return _together(patch.object(Alarm, "due", later), patch.object(Alarm, "found", found_later))


def tick_skipped() -> AbstractContextManager[Any]:
    """A job of which a step waits for its retry is not ticked."""
    ticked = Ticks._ticked

    async def skipping(self: Ticks, found: Sequence[DueJob], deaf_until: datetime | None) -> bool:
        kept = []
        for due in found:
            job = await self._engine.job(due.job_id)
            if job is None or all(s.state is not StepState.FAILED_RETRY for s in job.steps):
                kept.append(due)
        return await ticked(self, kept, deaf_until) if kept else False

    return patch.object(Ticks, "_ticked", skipping)


# -- replies -----------------------------------------------------------------------------------


def reply_applied_twice() -> AbstractContextManager[Any]:
    """A failure that is told twice counts twice."""

    def change(draft: Turn, step: Step, received: Callback, judged: Outcome) -> Outcome:
        repeated = isinstance(received, ResultReceived) and judged is Outcome.DUPLICATE
        failed = step.execution is not None and step.execution.reason is AbortReason.RESULT_FAILED
        return Outcome.APPLIED if repeated and failed and not draft.job.terminal else judged

    return standing_of(change)


def lease_not_checked() -> AbstractContextManager[Any]:
    """A reply counts while its step is out, whatever lease it speaks for."""
    return no_lease_check()


def reply_settled_before_saved() -> AbstractContextManager[Any]:
    """A reply is taken off the bus before its job is saved."""
    inputs = ReplyGroup.inputs

    def first(self: ReplyGroup, job: Job) -> Sequence[TimedInput]:
        given = inputs(self, job)
        for reply in self._replies:
            self._consumer._tasks.spawn(self._consumer._bus.complete(reply.delivery))
        return given

    return patch.object(ReplyGroup, "inputs", first)


def early_ack_lost_at_stop() -> AbstractContextManager[Any]:
    """An ACK that waits for its RESULT is taken off the bus and forgotten when the process stops."""

    def forget(self: EarlyAcks) -> None:
        for _, acks in self._waiting.values():
            consumer = self._due.__self__  # type: ignore[attr-defined]
            for came in acks:
                consumer._open -= 1
                consumer._tasks.spawn(consumer._bus.complete(came.delivery))
        self._waiting.clear()

    return patch.object(EarlyAcks, "end", forget)


def early_ack_forgotten() -> AbstractContextManager[Any]:
    """An ACK that waits for its RESULT is saved only if that comes."""
    return patch.object(EarlyAcks, "_ring", _nothing)


# -- jobs --------------------------------------------------------------------------------------


def duplicate_makes_second_job() -> AbstractContextManager[Any]:
    """The claim of a request with a key is another one each time."""
    claim = ingress._claim

    def fresh(envelope: Mapping[str, Any], read: Any) -> Claim:
        found = claim(envelope, read)
        return replace(found, claim_hash=new_lease_id()) if found.keyed else found

    return patch.object(ingress, "_claim", fresh)


def cancel_still_releases() -> AbstractContextManager[Any]:
    """A cancel leaves what is held where it is."""
    drop = Turn.drop

    def only_out(self: Turn, index: int) -> None:
        if not self.steps[index].held:
            drop(self, index)

    return patch.object(Turn, "drop", only_out)


def pause_not_saved() -> AbstractContextManager[Any]:
    """A pause is answered, and the job goes on."""

    def only_said(turn: Turn, received: Any) -> Decision:
        told = replace(turn.job, version=turn.job.version + 1)
        return replace(turn.unchanged(Outcome.APPLIED), job=told)

    return patch.object(control, "pause", only_said)


def stale_cache() -> AbstractContextManager[Any]:
    """After a lost compare-and-swap the old copy of the job is served again."""
    read_again = EngineLoop._read_again

    def keep(self: EngineLoop, job_id: str, mail: list[Request]) -> None:
        job = self.known(job_id)
        if job is not None:
            self._inbox.put(Loaded(job, mail))
        else:
            read_again(self, job_id, mail)

    return patch.object(EngineLoop, "_read_again", keep)


def last_save_wins() -> AbstractContextManager[Any]:
    """There is no compare-and-swap."""
    return no_compare_and_swap()


def doubt_not_settled() -> AbstractContextManager[Any]:
    """A write whose outcome is unknown passes for one that was not done."""
    return patch.object(EngineLoop, "_doubt", _nothing)


def doubt_settled_by_what_is_not_saved() -> AbstractContextManager[Any]:
    """After a write whose outcome is unknown, what a turn decides counts before it is saved."""
    read = EngineLoop._read

    async def hastily(self: EngineLoop, job_id: str, mail: list[Request], *, fresh: bool) -> None:
        doubtful = fresh and job_id in self._doubtful

        def caught_up(job: Job) -> tuple[()]:
            if doubtful:
                self._releases.caught_up(job)
            return ()

        said = Request(job_id, caught_up, lambda job, applied: None, lambda error: False)
        await read(self, job_id, [*mail, said], fresh=fresh)

    return patch.object(EngineLoop, "_read", hastily)


def answered_before_saved() -> AbstractContextManager[Any]:
    """The save goes on while its caller has its answer already."""
    save = EngineLoop._save

    async def hastily(self: EngineLoop, batch: Any) -> None:
        for each in batch.saves:
            before, job = each.before, each.decision.job
            asked = job.cancel_requested_at and before and before.cancel_requested_at is None
            for request, _, decisions in each.decided if asked else ():
                request.answered(job, [Applied(one.outcome, job) for one in decisions])
        await save(self, batch)

    return patch.object(EngineLoop, "_save", hastily)


def waiter_not_woken() -> AbstractContextManager[Any]:
    """Whoever waits for the end of a job sleeps on."""
    return patch.object(Waits, "took_up", _nothing)


def wait_begins_after_read() -> AbstractContextManager[Any]:
    """Whoever reads a job while it ends waits for an end that has been."""

    async def until(
        self: Waits, waiting: Any, read: Any, job_id: str, seconds: float, enough: Any
    ) -> Job | None:
        loop = asyncio.get_running_loop()
        job: Job | None = await read(job_id)
        while job is not None and not enough(job) and not self._over:
            if not self._wakes(job):
                self._poll(read, job)
            woken = loop.create_future()
            waiting.setdefault(job_id, set()).add(woken)
            await woken
            job = await read(job_id)
        return job

    return patch.object(Waits, "_until", until)


def redrive_not_linked() -> AbstractContextManager[Any]:
    """The job that was redriven does not hear of it."""

    async def settled(self: Dispatcher, job: Job, effect: Any) -> None:
        await self._engine.apply(job.job_id, EffectSettled(effect.owed_id, performed=True))

    return patch.object(Dispatcher, "_link", settled)


def webhook_forgotten() -> AbstractContextManager[Any]:
    """A webhook that failed is settled like one that was delivered."""
    tell = Dispatcher._notify_client

    async def settled(self: Dispatcher, job: Job, effect: Any) -> None:
        with patch.object(self, "_notify", _swallowed(self._notify)):
            await tell(self, job, effect)

    return patch.object(Dispatcher, "_notify_client", settled)


def _swallowed(notify: Any) -> Any:
    async def always(*args: Any) -> bool:
        await notify(*args)
        return True

    return always


# -- lanes ---------------------------------------------------------------------------------------


def handover_forgets_held() -> AbstractContextManager[Any]:
    """Whoever takes lanes over does not look for what is held there."""
    return patch.object(ReadyQueues, "recover", _nothing_async)


def takeover_skips_a_page() -> AbstractContextManager[Any]:
    """Whoever takes lanes over reads the first page of what is out."""

    async def first_page(self: Ownership, lanes: frozenset[int]) -> AsyncIterator[str]:
        for found in await self._ledger.due(ownership_module.FOREVER, lanes, 2, None):
            yield found.job_id

    return patch.object(Ownership, "_delivering", first_page)


def nudge_is_needed() -> AbstractContextManager[Any]:
    """What a process without lanes leaves to the owner is not due there."""

    def left(before: Job | None, decision: Decision) -> Decision:
        return replace(decision, effects=())

    return patch.object(loop_module, "left_to_owner", left)


def takeover_left_half_done() -> AbstractContextManager[Any]:
    """A takeover that failed is tried again while parts of the first try still run."""

    async def at_once(work: Iterable[Awaitable[Any]]) -> list[Any]:
        return await asyncio.gather(*work)

    return patch.object(ownership_module, "all_of", at_once)


def zombie_says_nothing() -> AbstractContextManager[Any]:
    """Whoever loses a lane while it saves a job of it does not tell the new owner."""
    listen = Nudges.listen

    def quietly(self: Nudges, commit: Committed) -> None:
        if self._lanes.renewal is None:
            listen(self, commit)

    return _unlooked_for(patch.object(Nudges, "listen", quietly))


def lost_lane_counted() -> AbstractContextManager[Any]:
    """What is saved when its lane has gone to another process counts here for ever."""
    saved = EngineLoop._committed

    def counted(self: EngineLoop, save: Any) -> None:
        save.term = self._terms[save.job.plan.shard]
        saved(self, save)

    return _unlooked_for(patch.object(EngineLoop, "_committed", counted))


def unheard_counts_for_ever() -> AbstractContextManager[Any]:
    """What another process has ended, and told nobody, counts here for ever."""
    return patch.object(Releases, "look_again", _nothing)


def lapsed_lane_not_followed() -> AbstractContextManager[Any]:
    """What ends while the lease of its lane has lapsed counts for ever."""
    return _unlooked_for(patch.object(Releases, "ended", _nothing))


def held_lanes_not_taken_over() -> AbstractContextManager[Any]:
    """Lanes that a failed renewal gave up are held again, and nobody takes them over."""

    async def renewed(self: Ownership) -> frozenset[int]:
        held = await self._lanes.renew(self._said)
        lost, gained, self._held = self._held - held, held - self._held, held
        if lost:
            self._engine.forget(lost)
        return gained

    return patch.object(Ownership, "_renew", renewed)


# -- the kit -------------------------------------------------------------------------------------


def second_commit() -> AbstractContextManager[Any]:
    """An attempt commits its output whether or not another one has."""

    async def always(
        self: Commits, directive: Any, worker_id: str, output: Any, staged: Any
    ) -> Any:
        proposed = self._proposal(directive, worker_id, output, tuple(staged.values()))
        for promotion, target in proposed.places():
            await self._workspace.write(target, promotion.content or b"")
        return proposed, len(proposed.places())

    return _together(
        patch.object(Commits, "commit", always), patch.object(Commits, "find", _nothing_async)
    )


def no_heartbeats() -> AbstractContextManager[Any]:
    """A worker that takes long lets its lease run out."""
    return patch.object(Lease, "keep", _nothing)


def _unlooked_for(fault: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    """Without the look that would make up for the fault a minute later."""
    return _together(fault, unheard_counts_for_ever())


@contextmanager
def _together(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


FAULTS: Final[dict[Planted, int]] = {
    lost_wake_up: 0,
    published_before_commit: 0,
    ack_clock_runs_while_queued: 87,
    window_never_given_back: 2,
    in_progress_never_ends: 0,
    pump_not_asked: 0,
    outage_taken_for_refusal: 18,
    unknown_publish_forgotten: 18,
    alarm_too_late: 0,
    tick_skipped: 0,
    reply_applied_twice: 141,
    lease_not_checked: 44,
    reply_settled_before_saved: 0,
    early_ack_lost_at_stop: 51,
    early_ack_forgotten: 87,
    duplicate_makes_second_job: 0,
    cancel_still_releases: 56,
    pause_not_saved: 0,
    stale_cache: 14,
    last_save_wins: 15,
    doubt_not_settled: 562,
    answered_before_saved: 0,
    waiter_not_woken: 0,
    redrive_not_linked: 10,
    webhook_forgotten: 43,
    takeover_skips_a_page: 212,
    handover_forgets_held: 41,
    held_lanes_not_taken_over: 165,
    lapsed_lane_not_followed: 1,
    lost_lane_counted: 5,
    unheard_counts_for_ever: 333,
    nudge_is_needed: 7,
    takeover_left_half_done: 725,
    wait_begins_after_read: 81,
    zombie_says_nothing: 205,
    second_commit: 2,
    no_heartbeats: 0,
}
"""Each with the first seed that finds it: `python -m tests.simulation --planted` finds them anew."""
