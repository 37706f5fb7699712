"""What a team writes: a service with a name, its step types and `execute()`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lucius.platform.payload import PayloadModel
from lucius.platform.task import Task


@dataclass(frozen=True, slots=True)
class Output:
    """What `execute()` gives back.

    `name`: which staged object is the step's output (the first one if it is not said).
    `ref`: a reference to show instead, for services whose output lives elsewhere: JSON, and short.
    A service with `commit` must stage or name something; else the step fails with OUTPUT_MISSING.
    """

    ref: Any = None
    name: str | None = None


class Service:
    """Subclass it and write `execute()`. It may run again for the same step: stage, do not publish."""

    name: str = ""
    step_types: tuple[str, ...] = ()
    payload_model: PayloadModel | None = None
    """A dataclass (or a static method that takes the payload): what `task.payload` becomes."""
    commit: bool = True
    """False for a service without outputs: no staging, no commit record, no promotion."""
    time_limit: timedelta | None = None
    """How long `execute()` may take before it is stopped and tried again."""

    async def execute(self, task: Task) -> Output | None:
        raise NotImplementedError


Execute = Callable[[Task], Awaitable[Output | None]]


class FunctionService(Service):
    def __init__(self, execute: Execute, name: str, step_types: tuple[str, ...]) -> None:
        self.name = name
        self.step_types = step_types
        self._execute = execute

    async def execute(self, task: Task) -> Output | None:
        return await self._execute(task)


def service(
    name: str,
    *step_types: str,
    payload_model: PayloadModel | None = None,
    commit: bool = True,
    time_limit: timedelta | None = None,
) -> Callable[[Execute], Service]:
    """Make a service of one function: `@service("ocr", "OCR")`."""

    def decorated(execute: Execute) -> Service:
        made = FunctionService(execute, name, step_types or (name.upper(),))
        made.payload_model = payload_model
        made.commit = commit
        made.time_limit = time_limit
        return made

    return decorated
