"""What `execute()` raises decides whether the step is tried again."""

import pytest

from lucius.core.errors import WorkspaceError, WorkspaceRefusedError
from lucius.core.wire import CUT_MARK, MAX_STRING
from lucius.platform import (
    FatalError,
    Output,
    RetryableError,
    Service,
    StepCancelledError,
    Task,
    service,
)
from lucius.platform.errors import classify
from tests.platform.bench import Bench, on_the_bench


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RetryableError("later"), "FAILED_RETRY", "STEP_FAILED"),
        (RetryableError("later", code="RATE_LIMITED"), "FAILED_RETRY", "RATE_LIMITED"),
        (FatalError("never", code="BAD_SCAN"), "FAILED_FINAL", "BAD_SCAN"),
        (StepCancelledError("stop"), "FAILED_FINAL", "CANCELLED"),
        (WorkspaceError("disk full"), "FAILED_RETRY", "WORKSPACE_UNAVAILABLE"),
        (WorkspaceRefusedError("outside"), "FAILED_FINAL", "REFERENCE_REFUSED"),
        (KeyError("surprise"), "FAILED_RETRY", "UNEXPECTED_ERROR"),
    ],
)
def test_errors_are_classified(error: Exception, status: str, code: str) -> None:
    failure = classify(error)
    assert (failure.status.value, failure.code) == (status, code)
    assert str(error.args[0]) in failure.message


def test_a_long_message_is_cut_with_a_mark() -> None:
    failure = classify(RetryableError("x" * 100_000))
    assert len(failure.message) == MAX_STRING
    assert failure.message.endswith(CUT_MARK)


@on_the_bench
async def test_an_error_becomes_a_failed_result(bench: Bench) -> None:
    @service("ocr", "OCR")
    async def broken(task: Task) -> Output:
        raise ZeroDivisionError("by nothing")

    await bench.runner(broken)
    await bench.send(1)
    result = await bench.result()
    assert (result["status"], result["error"]) == (
        "FAILED_RETRY",
        {"code": "UNEXPECTED_ERROR", "message": "ZeroDivisionError: by nothing"},
    )


@on_the_bench
async def test_a_failed_attempt_leaves_no_commit_and_the_next_succeeds(bench: Bench) -> None:
    class Flaky(Service):
        name, step_types = "ocr", ("OCR",)

        async def execute(self, task: Task) -> Output | None:
            await task.stage("output.txt", "half")
            if task.attempt_no == 1:
                raise RetryableError("not yet")
            return None

    await bench.runner(Flaky())
    await bench.send(1)
    assert (await bench.result(1))["status"] == "FAILED_RETRY"
    await bench.send(2)
    assert (await bench.result(2))["status"] == "SUCCEEDED"


@on_the_bench
async def test_naming_an_output_that_was_not_staged_fails_for_good(bench: Bench) -> None:
    @service("ocr", "OCR")
    async def absent(task: Task) -> Output:
        return Output(name="output.txt")

    await bench.runner(absent)
    await bench.send(1)
    assert (await bench.result())["error"]["code"] == "OUTPUT_NOT_STAGED"
