"""What the Temporal engine does, counted: orchestrators start, invokers signal, workers ask."""

import asyncio
from typing import Any, Final

from temporalio import workflow
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from lucius.core.job import TERMINAL_JOB
from lucius.core.turn import SIGNALS, WAKE
from lucius.engine.temporal.invoker import ALREADY, APPLIED, HELD, SUPERSEDED
from lucius.engine.temporal.workflow import PUBLISH, RECORD, TIMEOUT
from lucius.system.instruments import Count, Distribution, Instruments

STARTED, THERE, CLOSED, DELIVERED, UNREACHED = (
    "started",
    "already",
    "closed",
    "delivered",
    "unreached",
)
UNANSWERED, UNKNOWN = "unanswered", "unknown_job"
BROKEN: Final = "broken"
"""A workflow that ended by an error of its own, or was cancelled at the server."""


class TemporalInstruments(Instruments):
    """Labels are closed sets."""

    def __init__(self) -> None:
        self.starts = Count(
            "lucius_workflow_starts_total",
            "Starts of workflows: started, already there, or the Temporal server was not reached",
            ("outcome",),
        )
        self.signals = Count(
            "lucius_workflow_signals_total",
            "Signals to workflows: delivered, closed (the workflow has ended or never was), or the server"
            " was not reached",
            ("signal", "outcome"),
        )
        self.signal_lag = Distribution(
            "lucius_workflow_signal_lag_seconds",
            "From the move of a job to the delivery of the signal that tells its workflow",
            ("signal",),
        )
        self.asks = Count(
            "lucius_workflow_asks_total",
            "Questions of workflows to the invoker, by activity and what the invoker answered",
            ("activity", "outcome"),
        )
        self.repeats = Count(
            "lucius_workflow_retries_total",
            "Questions that were asked again, because the invoker had not answered",
            ("activity",),
        )
        self.timeouts = Count(
            "lucius_workflow_timeouts_total",
            "Timers of workflows that fired: they moved the job (applied) or were early (already, held)",
            ("outcome",),
        )
        self.ended = Count(
            "lucius_workflows_ended_total",
            f"Workflows that ended at this worker, by the state of their job; {BROKEN}: without one",
            ("state",),
        )
        self._expect_fixed()

    def _expect_fixed(self) -> None:
        for outcome in (STARTED, THERE, UNREACHED):
            self.starts.expect(outcome)
        for signal in {*SIGNALS.values(), WAKE}:
            for outcome in (DELIVERED, CLOSED, UNREACHED):
                self.signals.expect(signal, outcome)
        for activity in (RECORD, PUBLISH, TIMEOUT):
            self.repeats.expect(activity)
            for outcome in (APPLIED, ALREADY, HELD, SUPERSEDED, UNKNOWN, UNANSWERED):
                self.asks.expect(activity, outcome)
        for outcome in (APPLIED, ALREADY, HELD):
            self.timeouts.expect(outcome)
        for state in (*(state.value for state in TERMINAL_JOB), BROKEN):
            self.ended.expect(state)

    def asked(self, activity: str, outcome: str) -> None:
        self.asks.add(activity, outcome)
        if activity == TIMEOUT and outcome in (APPLIED, ALREADY, HELD):
            self.timeouts.add(outcome)


class OutcomeCounter(Interceptor):
    """Counts how workflows end, outside of the workflow, which stays pure."""

    def __init__(self, instruments: TemporalInstruments) -> None:
        self._instruments = instruments

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor]:
        ended = self._instruments.ended

        class Counting(WorkflowInboundInterceptor):
            async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
                try:
                    result = await super().execute_workflow(input)
                except workflow.ContinueAsNewError:
                    raise
                except (Exception, asyncio.CancelledError):
                    _count()
                    raise
                _count()
                return result

        def _count() -> None:
            """By the state of the job; a workflow that ends before its job is broken."""
            standing = workflow.instance().standing()
            if not workflow.unsafe.is_replaying():
                ended.add(standing["state"] if standing.get("terminal") else BROKEN)

        return Counting
