"""The workflow of a job: it owns sequence and time, and nothing else. Pure, small and deterministic.

What comes next it reads from the newest snapshot that it was given: by a signal, or by the answer to what
it asked. There is no rule of the core here.
"""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid5

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey
from temporalio.exceptions import (
    ApplicationError,
    CancelledError,
    FailureError,
    is_cancelled_exception,
)

RECORD = "record_attempt_lease"
PUBLISH = "publish_directive"
TIMEOUT = "report_timeout"
CANCEL = "cancel_workflow"
STATE = SearchAttributeKey.for_keyword("LuciusState")
"""The search attribute that follows the state of the job."""
RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=30),
)
ONE_TRY = timedelta(seconds=30)
LOCAL_TRY = timedelta(seconds=5)
ONCE = RetryPolicy(maximum_attempts=1)
LOOK_AGAIN = 1.0
"""Seconds before it asks again, where an answer changed nothing."""
LOOK_AGAIN_MOST = 30.0
MOST_EVENTS = 10_000
"""Of a history, before the job goes on in a new one."""


@workflow.defn(name="LuciusJob")
class JobWorkflow:
    def __init__(self) -> None:
        self._snapshot: dict[str, Any] = {"version": -1}
        self._taken_at = 0.0
        self._idle = 0
        self._shown: str | None = None

    @workflow.run
    async def run(self, start: dict[str, Any]) -> dict[str, Any]:
        """`start`: `jobId`, `tenant_id`, the snapshot of the new job, and `most_events` of a history.

        `state_shown`: the state that the search attribute shows so far; none: the server does not know it.
        """
        self._job = {"jobId": start["jobId"], "tenant_id": start["tenant_id"]}
        self._take(start.get("snapshot"))
        self._shown = start.get("state_shown")
        if not self._due():
            await self._ask(TIMEOUT, {})
        while not self._snapshot.get("terminal"):
            if self._is_long(start.get("most_events", MOST_EVENTS)):
                again = {**self._job, "snapshot": None, "state_shown": self._shown}
                workflow.continue_as_new(again)
            await self._advance()
        self._show()
        return await self._ended()

    async def _ended(self) -> dict[str, Any]:
        """End as the job did, so that Temporal's own filters find failed and cancelled jobs."""
        state, error = self._snapshot["state"], self._snapshot.get("error")
        told = {"state": state, "error": error}
        if state == "SUCCEEDED":
            return told
        if state == "CANCELLED":
            await self._cancelled()
        code, message = (error["code"], error["message"]) if error else (state, "")
        raise ApplicationError(message, told, type=code, non_retryable=True)

    async def _cancelled(self) -> None:
        """Have it cancelled: only a request from outside does that, and an activity makes it.

        Within the workflow task: then the request is all that comes after it.
        """
        await workflow.execute_local_activity(
            CANCEL, self._job, start_to_close_timeout=LOCAL_TRY, retry_policy=RETRY
        )
        await workflow.wait_condition(lambda: workflow.cancellation_reason() is not None)
        raise CancelledError("the job was cancelled")

    def _is_long(self, most: int) -> bool:
        """Signals that come meanwhile are not lost: the new history begins by asking how the job stands."""
        info = workflow.info()
        return info.is_continue_as_new_suggested() or info.get_current_history_length() > most

    async def _advance(self) -> None:
        """Do what is next, or wait for a signal or the next moment."""
        version, todo = self._snapshot["version"], self._due()
        if todo:
            await asyncio.gather(*(self._ask(activity, body) for activity, body in todo))
        else:
            self._show()
            try:
                await workflow.wait_condition(
                    lambda: self._snapshot["version"] > version,
                    timeout=timedelta(seconds=self._wait()),
                )
            except TimeoutError:
                if not self._due():
                    await self._ask(TIMEOUT, {})
        self._idle = self._idle + 1 if self._snapshot["version"] == version else 0
        if self._idle > 1:
            await self._pause(version)

    def _show(self) -> None:
        """The newest state, where people search for it. It goes with what the task ends with anyway."""
        state = self._snapshot["state"]
        if self._shown not in (None, state):
            workflow.upsert_search_attributes([STATE.value_set(state)])
            self._shown = state

    async def _pause(self, version: int) -> None:
        """Nothing moves: whatever the reason, do not spin."""
        seconds = min(LOOK_AGAIN * 2 ** (self._idle - 2), LOOK_AGAIN_MOST)
        try:
            await workflow.wait_condition(
                lambda: self._snapshot["version"] > version, timeout=timedelta(seconds=seconds)
            )
        except TimeoutError:
            return

    def _due(self) -> list[tuple[str, dict[str, Any]]]:
        """The activities whose time has come."""
        passed = workflow.time() - self._taken_at
        attempts = self._snapshot.get("attempts", ())
        due = [(RECORD, self._attempt(each)) for each in attempts if each["in"] <= passed]
        return due + [(PUBLISH, each) for each in self._snapshot.get("publishes", ())]

    def _attempt(self, each: dict[str, Any]) -> dict[str, Any]:
        """The lease follows from what is asked for: a task that is done again may ask for something else."""
        step_id, attempt_no = each["stepId"], each["attempt_no"]
        asked = f"{step_id} {attempt_no} {self._snapshot['version']}"
        return {
            "stepId": step_id,
            "attempt_no": attempt_no,
            "lease_id": str(uuid5(UUID(workflow.info().run_id), asked)),
            "publish": True,
        }

    def _wait(self) -> float:
        """Seconds until the next moment at which something is to be done."""
        passed = workflow.time() - self._taken_at
        waits = [each["in"] for each in self._snapshot.get("attempts", ())]
        waits.append(self._snapshot.get("wake_in") or 0.0)
        return max(0.01, float(min(waits)) - passed)

    async def _ask(self, activity: str, body: dict[str, Any]) -> None:
        """The same attempt is repeated until the invoker has answered."""
        asked = {**self._job, **body}
        answer = await self._asked_at_once(activity, asked)
        if answer is None:
            answer = await workflow.execute_activity(
                activity, asked, start_to_close_timeout=ONE_TRY, retry_policy=RETRY
            )
        self._take(answer["snapshot"])

    async def _asked_at_once(self, activity: str, asked: dict[str, Any]) -> dict[str, Any] | None:
        """Within the workflow task: the server need not hand out a task of its own, nor tell of its end.

        None: no answer. Then the server repeats the question, and no workflow task is held meanwhile.
        """
        try:
            answer: dict[str, Any] = await workflow.execute_local_activity(
                activity, asked, start_to_close_timeout=LOCAL_TRY, retry_policy=ONCE
            )
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
            return None
        return answer

    def _take(self, snapshot: dict[str, Any] | None) -> None:
        """The highest version counts. Of the same version, the newest: its waits are from now."""
        if snapshot is not None and snapshot["version"] >= self._snapshot["version"]:
            self._snapshot, self._taken_at = snapshot, workflow.time()

    # -- signals: all of them tell how the job stands ----------------------------------------------

    @workflow.signal
    def step_ack(self, told: dict[str, Any]) -> None:
        self._take(told["snapshot"])

    @workflow.signal
    def step_result(self, told: dict[str, Any]) -> None:
        self._take(told["snapshot"])

    @workflow.signal
    def step_released(self, told: dict[str, Any]) -> None:
        self._take(told["snapshot"])

    @workflow.signal
    def step_returned(self, told: dict[str, Any]) -> None:
        self._take(told["snapshot"])

    @workflow.signal
    def step_timeout(self, told: dict[str, Any]) -> None:
        self._take(told["snapshot"])

    @workflow.signal
    def cancel(self, told: dict[str, Any]) -> None:
        self._take(told["snapshot"])

    @workflow.signal
    def pause(self, told: dict[str, Any]) -> None:
        self._take(told["snapshot"])

    @workflow.signal
    def resume(self, told: dict[str, Any]) -> None:
        self._take(told["snapshot"])

    @workflow.signal
    def wake(self, told: dict[str, Any]) -> None:
        self._take(told["snapshot"])

    @workflow.query
    def standing(self) -> dict[str, Any]:
        """The newest snapshot."""
        return self._snapshot
