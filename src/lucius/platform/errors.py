"""What a step may fail with. A class of error decides whether the step is tried again."""

import errno
import socket
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import FrameType, MappingProxyType
from typing import ClassVar, Final

from lucius.core.errors import LuciusError, WorkspaceError, WorkspaceRefusedError
from lucius.core.inputs import ResultStatus
from lucius.core.wire import MAX_STRING, bounded
from lucius.system.logs import redacted

_KIT: Final = "lucius.platform."


class StepError(LuciusError):
    """The root of what `execute()` raises on purpose. Raise one of its two kinds."""

    status: ClassVar[ResultStatus] = ResultStatus.FAILED_RETRY
    default_code: ClassVar[str] = "STEP_FAILED"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.default_code


class RetryableError(StepError):
    """Trying again may help: a dependency is down, a limit was reached."""


class FatalError(StepError):
    """Trying again cannot help: the input or the payload is wrong."""

    status = ResultStatus.FAILED_FINAL


class InvalidPayloadError(FatalError):
    default_code = "INVALID_PAYLOAD"


class ObjectMissingError(FatalError):
    """A reference in the directive names nothing."""

    default_code = "OBJECT_MISSING"


class ObjectTooLargeError(FatalError):
    """An object that a step would read has more bytes than its service takes."""

    default_code = "OBJECT_TOO_LARGE"


class StepCancelledError(FatalError):
    """The job is being cancelled, and the service stopped for it."""

    default_code = "CANCELLED"


class DependencyUnavailableError(RetryableError):
    """What the service calls did not answer, or cut the connection."""

    default_code = "DEPENDENCY_UNAVAILABLE"


class DiskFullError(RetryableError):
    """There is no room left where the service itself writes."""

    default_code = "DISK_FULL"


class TimeLimitError(RetryableError):
    """`execute()` took longer than the service allows itself."""

    default_code = "TIME_LIMIT"


class MemoryLimitError(FatalError):
    """`execute()` took more memory than the service allows itself: the next attempt would too."""

    default_code = "MEMORY_LIMIT"


class ProcessDiedError(RetryableError):
    """The process that executed the step has ended: a crash, `os._exit`, the machine's memory killer."""

    default_code = "PROCESS_DIED"


class ExitCalledError(RetryableError):
    """`execute()` raised what ends a process, such as `sys.exit()`; only the step ends."""

    default_code = "EXIT_CALLED"


class LeaseExpiredError(RetryableError):
    """The lease ran out before the work was committed: another attempt may be under way."""

    default_code = "LEASE_EXPIRED"


class InvalidOutputError(FatalError):
    """What `execute()` gave back cannot be reported: no `Output`, or a `ref` that is not JSON."""

    default_code = "INVALID_OUTPUT"


class OutputMissingError(FatalError):
    """`execute()` ended well, staged nothing and named nothing."""

    default_code = "OUTPUT_MISSING"


class OutputNotWritableError(FatalError):
    """The client wants the output where no service of this process can write."""

    default_code = "OUTPUT_NOT_WRITABLE"


class OutputExistsError(FatalError):
    """Something that this job did not write stands where its output should go."""

    default_code = "OUTPUT_EXISTS"


class SupersededError(FatalError):
    """A redrive has taken this step over: the job that this attempt works for has ended."""

    default_code = "SUPERSEDED"


class CommittedOutputLostError(FatalError):
    """The commit record names an output that is gone or is not what was committed."""

    default_code = "COMMITTED_OUTPUT_LOST"


class InvalidDirectiveError(FatalError):
    """A message that is no directive for this service: it is set aside, and answered if it can be."""

    default_code = "INVALID_DIRECTIVE"


class StepTypeNotServedError(RetryableError):
    """The step is for another service, or for another version of this one, which may get it next time."""

    default_code = "STEP_TYPE_NOT_SERVED"


def step_failure(error: BaseException) -> Exception:
    """What `execute()` raised, as something that fails the step and nothing else."""
    if isinstance(error, Exception):
        return error
    return ExitCalledError(f"execute() raised {type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class Failure:
    status: ResultStatus
    code: str
    message: str
    unexpected: bool = False
    """A defect: whoever mends it wants the whole traceback."""


Mapped = Mapping[type[Exception], type[StepError]]
"""What exceptions of libraries mean to a service; the first class that fits decides."""
COMMON: Final[Mapped] = {
    ConnectionError: DependencyUnavailableError,
    TimeoutError: DependencyUnavailableError,
    socket.gaierror: DependencyUnavailableError,
    MemoryError: MemoryLimitError,
}
FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def classify(error: Exception, mapped: Mapped = MappingProxyType({})) -> Failure:
    """What nobody foresaw is tried again; the attempts are counted elsewhere."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]  # as a TaskGroup wraps it
    known = _meaning(error, mapped)
    if known is not None:
        text = redacted(f"{type(error).__name__}: {error}")
        return Failure(known.status, known.default_code, bounded(text))
    match error:
        case StepError():
            return Failure(error.status, error.code, bounded(str(error)))
        case WorkspaceRefusedError():
            return Failure(ResultStatus.FAILED_FINAL, error.code, bounded(str(error)))
        case WorkspaceError():
            return Failure(ResultStatus.FAILED_RETRY, error.code, bounded(str(error)))
    text, place = redacted(f"{type(error).__name__}: {error}"), _place(error)
    where = f" (at {place})" if place else ""
    message = bounded(text, MAX_STRING - len(where)) + where
    return Failure(ResultStatus.FAILED_RETRY, "UNEXPECTED_ERROR", message, unexpected=True)


def _meaning(error: Exception, mapped: Mapped) -> type[StepError] | None:
    if isinstance(error, LuciusError):
        return None
    for kinds in (mapped, COMMON):
        for kind, meaning in kinds.items():
            if isinstance(error, kind):
                return meaning
    full = isinstance(error, OSError) and error.errno in FULL
    return DiskFullError if full else None


def _place(error: Exception) -> str:
    """File and line where a service's own code was; what it called in libraries is in the log."""
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not _foreign(frame)
    ]
    if not frames:
        return ""
    folder = PurePath(frames[0][0].f_code.co_filename).parent
    own = [each for each in frames if PurePath(each[0].f_code.co_filename).is_relative_to(folder)]
    frame, line = own[-1]
    return f"{PurePath(frame.f_code.co_filename).name}:{line}"


def _foreign(frame: FrameType) -> bool:
    """Of the kit or of the standard library."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith(_KIT) or module.partition(".")[0] in sys.stdlib_module_names
