"""What a team writes: a service with a name, its step types and `execute()`."""

import importlib
import inspect
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from lucius import __version__
from lucius.core.errors import LuciusError
from lucius.platform.errors import InvalidPayloadError, StepError

# Payloads: from JSON to a team's own model, with a message that names every field that is wrong.

PayloadModel = Callable[..., Any]
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def parse_payload(model: PayloadModel | None, payload: Any) -> Any:
    """The payload as the service wants it: as it came, as a model, or through a function.

    A model is a dataclass, a TypedDict or a pydantic model. Its types are taken strictly: "2" is no
    number. Fields that it does not know are ignored, as contracts only grow. If it has a method
    `validate()`, that is called last. A ValueError anywhere makes the step fail for good.
    """
    if model is None:
        return payload
    try:
        if not isinstance(model, type):
            return model(payload)
        parsed = _adapter(model).validate_json(json.dumps(payload), strict=True)
        validate = getattr(parsed, "validate", None)
        if validate is not None and not hasattr(model, "model_validate"):
            validate()
        return parsed
    except ValidationError as error:
        raise InvalidPayloadError("; ".join(map(_line, error.errors()))) from error
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidPayloadError(str(error)) from error


def payload_schema(model: PayloadModel | None) -> dict[str, Any]:
    """The JSON schema of a step's payload, for `payload_schema` of its step type in the protocol file.

    A function tells nothing about what it takes, and a service without a model takes anything.
    """
    if not isinstance(model, type):
        return {"type": "object"}
    schema = _adapter(model).json_schema()
    return {"$schema": DIALECT, **schema}


@lru_cache(maxsize=256)
def _adapter(model: type) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _line(error: Any) -> str:
    return f"/{'/'.join(map(str, error['loc']))}: {error['msg'].lower()}"


Isolation = Literal["none", "process"]
DependencyCheck = Callable[[], Awaitable[None]]
"""Returns if a dependency is well; raises with a sentence that says what is wrong."""
MIB: Final = 1024 * 1024
CPU_QUOTA: Final = "/sys/fs/cgroup/cpu.max"
"""Microseconds of CPU in each period, for all processes of a container."""
MEMORY_LIMIT: Final = "/sys/fs/cgroup/memory.max"
"""Bytes for all processes of a container. One byte more, and the kernel ends the container."""
OWN_MEMORY: Final = 512 * MIB
"""Of these, for the process that runs the service, and the one that forks its children."""


@dataclass(frozen=True, slots=True)
class Output:
    """What `execute()` gives back.

    `name`: which staged object is the step's output (the first one if it is not said).
    `ref`: a reference to show instead, for services whose output lives elsewhere: JSON, and short.
    A service with `commit` must stage or name something; else the step fails with OUTPUT_MISSING.
    """

    ref: Any = None
    name: str | None = None


class ServiceError(LuciusError):
    """A service that cannot run as it is written; the message says what to change."""


class Service:
    """Subclass it and write `execute()`. It may run again for the same step: stage, do not publish.

    `async def execute(self, task: Task)` shares the event loop with everyone and must not hold it up.
    `def execute(self, task: SyncTask)` runs in a thread. With `isolation = "process"` either runs in a
    process of its own, with limits: the place for work that computes, or that reads what others sent.
    """

    name: str = ""
    step_types: tuple[str, ...] = ()
    version: str = __version__
    """Which release of the service this is; `lucius services` shows it for each worker."""
    payload_model: PayloadModel | None = None
    """A dataclass (or a static method that takes the payload): what `task.payload` becomes."""
    errors: Mapping[type[Exception], type[StepError]] = MappingProxyType({})
    """What exceptions of libraries mean: `{httpx.TransportError: RetryableError, BadZipFile: FatalError}`."""
    commit: bool = True
    """False for a service without outputs: no staging, no commit record, no promotion."""
    input_limit: int | None = None
    """Bytes of an object that `task.read()` and the like take; a larger one fails the step for good."""
    time_limit: timedelta | None = None
    """How long `execute()` may take before it is stopped and tried again."""
    isolation: Isolation = "none"
    processes: int | None = None
    """With `isolation = "process"`: how many, and so how many steps at once. None: one a core."""
    memory_limit: int = 1024 * MIB
    """Bytes that a process may have in use before it is killed and the step fails.

    A container needs `processes` times as much, and `OWN_MEMORY`; in a smaller one there are fewer processes.
    """
    cancel_grace: timedelta | None = timedelta(seconds=30)
    """How long a process may go on after a cancellation before it is killed. None: to its end."""
    private: bool = False
    """Whether it holds secrets: then its processes and those of other services have no parent in common."""
    environment: tuple[str, ...] = ()
    """Variables that its processes get besides PATH and the like. With a secret, set `private` too."""
    tasks_per_process: int = 500
    """A process is replaced after so many tasks, or earlier when it keeps much memory."""

    def execute(self, task: Any) -> Awaitable[Output | None] | Output | None:
        raise NotImplementedError

    def checks(self) -> Mapping[str, DependencyCheck]:
        """What `execute()` depends on, by name. A process of the service is ready while all are well."""
        return {}

    @property
    def blocking(self) -> bool:
        """Whether `execute()` is a plain function: it gets a SyncTask and stays off the loop."""
        return not inspect.iscoroutinefunction(self.execute)

    @property
    def source(self) -> str:
        """MODULE:NAME of what a team wrote."""
        return f"{type(self).__module__}:{type(self).__qualname__}"


def check_service(service: Service) -> None:
    """ServiceError: it could start, and would never do what its class seems to say."""
    for fault in _faults(service):
        raise ServiceError(f"{service.source} {fault}")


def _faults(service: Service) -> Iterator[str]:
    if not service.name:
        yield "has no name: write `name = ...` in its class, the name that protocols have for it"
    if isinstance(service.step_types, str):
        yield f"has a text as step_types: write `step_types = ({service.step_types!r},)`, with the comma"
    if not service.step_types:
        yield "has no step types: write `step_types = (...,)` in its class, those it executes"
    if type(service).execute is Service.execute:
        yield "has no execute(): write `def execute(self, task)` in its class"
    if service.isolation not in get_args(Isolation):
        yield f"has isolation = {service.isolation!r}: it takes {' or '.join(map(repr, get_args(Isolation)))}"
    for name in ("time_limit", "cancel_grace"):
        if not isinstance(found := getattr(service, name), timedelta | None):
            yield f"has {name} = {found!r}: it takes a timedelta, such as timedelta(minutes=2)"
    if isinstance(service.environment, str):
        yield f"has a text as environment: write `environment = ({service.environment!r},)`, with the comma"
    if service.processes is not None and service.processes < 1:
        yield f"has processes = {service.processes}: it takes 1 or more"


def slots_of(service: Service, slots: int) -> int:
    """A process-isolated service takes as many steps at once as it has processes.

    All of them may reach their limit at once, so there are no more than fit into the container.
    """
    if service.isolation == "none":
        return slots
    wanted, room = service.processes or cores(), container_memory()
    if room is None:
        return wanted
    return max(1, min(wanted, (room - OWN_MEMORY) // service.memory_limit))


def memory_limit_of(service: Service) -> int:
    """Of each process: what the service sets, and no more than its container has."""
    room = container_memory()
    if room is None:
        return service.memory_limit
    return min(service.memory_limit, max(room - OWN_MEMORY, room // 2))


def container_memory() -> int | None:
    """None: the machine sets no limit, or does not say."""
    with suppress(OSError, ValueError):  # without a limit it says "max"
        return int(Path(MEMORY_LIMIT).read_text())
    return None


def cores() -> int:
    """Those that this process may use, where the machine says: a container may have fewer than its host."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # without a quota it says "max 100000"
        quota, period = map(int, Path(CPU_QUOTA).read_text().split())
        return max(1, min(allowed, ceil(quota / period)))
    return allowed


Execute = Callable[[Any], Any]
"""`async def f(task: Task)` or `def f(task: SyncTask)`; either gives an Output or None."""


class FunctionService(Service):
    def __init__(self, execute: Execute, name: str, step_types: tuple[str, ...]) -> None:
        self.name = name
        self.step_types = step_types
        self._execute = execute

    def execute(self, task: Any) -> Any:
        return self._execute(task)

    @property
    def blocking(self) -> bool:
        return not inspect.iscoroutinefunction(self._execute)

    @property
    def source(self) -> str:
        return f"{self._execute.__module__}:{self._execute.__qualname__}"

    def __reduce__(self) -> Any:
        """The function's name leads to this service, as it was decorated."""
        return _named, (self._execute.__module__, self._execute.__qualname__)


def _named(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def service(
    name: str,
    *step_types: str,
    payload_model: PayloadModel | None = None,
    commit: bool = True,
    time_limit: timedelta | None = None,
    isolation: Isolation = "none",
    processes: int | None = None,
    memory_limit: int = Service.memory_limit,
) -> Callable[[Execute], Service]:
    """Make a service of one function: `@service("ocr", "OCR")`."""

    def decorated(execute: Execute) -> Service:
        made = FunctionService(execute, name, step_types or (name.upper(),))
        made.payload_model = payload_model
        made.commit = commit
        made.time_limit = time_limit
        made.isolation = isolation
        made.processes = processes
        made.memory_limit = memory_limit
        return made

    return decorated
