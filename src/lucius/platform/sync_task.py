"""What a plain `def execute()` is given: the same as a Task, where reading and staging simply return."""

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from lucius.platform.task import Task

T = TypeVar("T")


class WaitFor(Protocol):
    """Waits for a coroutine of the task, from a thread that is not the loop's."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


class SyncTask:
    """One attempt of one step, for code that runs beside the event loop."""

    def __init__(self, task: Task, wait: WaitFor) -> None:
        self._task = task
        self._wait = wait

    @property
    def payload(self) -> Any:
        return self._task.payload

    @property
    def job_id(self) -> str:
        return self._task.job_id

    @property
    def step_id(self) -> str:
        return self._task.step_id

    @property
    def step_type(self) -> str:
        return self._task.step_type

    @property
    def tenant_id(self) -> str:
        return self._task.tenant_id

    @property
    def attempt_no(self) -> int:
        return self._task.attempt_no

    @property
    def lease_id(self) -> str:
        return self._task.lease_id

    @property
    def effect_key(self) -> str:
        return self._task.effect_key

    @property
    def directive(self) -> Mapping[str, Any]:
        return self._task.directive

    @property
    def earlier(self) -> Mapping[str, Any]:
        return self._task.earlier

    @property
    def cancel_requested(self) -> bool:
        return self._task.cancel_requested

    def report(self, progress: str) -> None:
        """As `Task.report`."""
        self._task.report(progress)

    def check_cancelled(self) -> None:
        """Raise StepCancelledError if the job is being cancelled. Call it between pieces of work."""
        self._task.check_cancelled()

    def read(self, reference: Any) -> bytes:
        return self._wait(self._task.read(reference))

    def input(self) -> bytes:
        return self._wait(self._task.input())

    def previous(self, step_id: str) -> bytes:
        return self._wait(self._task.previous(step_id))

    def latest(self) -> bytes:
        return self._wait(self._task.latest())

    def stage(self, name: str, data: bytes | str) -> str:
        return self._wait(self._task.stage(name, data))
