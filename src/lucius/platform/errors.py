"""What a step may fail with. A class of error decides whether the step is tried again."""

from dataclasses import dataclass
from typing import ClassVar

from lucius.core.errors import LuciusError, WorkspaceError, WorkspaceRefusedError
from lucius.core.inputs import ResultStatus
from lucius.core.wire import bounded


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


class StepCancelledError(FatalError):
    """The job is being cancelled, and the service stopped for it."""

    default_code = "CANCELLED"


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


class CommittedOutputLostError(FatalError):
    """The commit record names an output that is gone or is not what was committed."""

    default_code = "COMMITTED_OUTPUT_LOST"


class InvalidDirectiveError(LuciusError):
    """A message that is no directive for this service: it is set aside, nobody is answered."""


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


def classify(error: Exception) -> Failure:
    """What nobody foresaw is tried again; the attempts are counted elsewhere."""
    match error:
        case StepError():
            return Failure(error.status, error.code, bounded(str(error)))
        case WorkspaceRefusedError():
            return Failure(ResultStatus.FAILED_FINAL, "REFERENCE_REFUSED", bounded(str(error)))
        case WorkspaceError():
            return Failure(ResultStatus.FAILED_RETRY, "WORKSPACE_UNAVAILABLE", bounded(str(error)))
    text = f"{type(error).__name__}: {error}"
    return Failure(ResultStatus.FAILED_RETRY, "UNEXPECTED_ERROR", bounded(text))
