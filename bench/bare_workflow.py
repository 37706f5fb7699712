"""A workflow with three activities and six signals, and nothing else: what Temporal itself takes."""

from datetime import timedelta
from typing import Any

from temporalio import workflow

STEPS = 3


@workflow.defn(name="BareJob")
class BareJob:
    """Three times: an activity, then two signals."""

    def __init__(self) -> None:
        self._signals = 0

    @workflow.run
    async def run(self) -> str:
        for step in range(STEPS):
            await workflow.execute_activity(
                "bare_step", step, start_to_close_timeout=timedelta(seconds=30)
            )
            await workflow.wait_condition(lambda step=step: self._signals >= 2 * (step + 1))  # type: ignore[misc]
        return "SUCCEEDED"

    @workflow.signal
    def told(self, body: dict[str, Any]) -> None:
        self._signals += 1
