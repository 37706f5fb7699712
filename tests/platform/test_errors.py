"""What `execute()` raises decides whether the step is tried again."""

import errno
import json
import logging
import re
import socket
import zipfile
from pathlib import Path

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
from lucius.system.logs import JsonFormatter
from tests.observability.world import logged
from tests.platform.bench import Bench, Writer, on_the_bench

HERE = Path(__file__).name
CUT_MARK_AT = re.escape(CUT_MARK)


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
        (ConnectionRefusedError("no one there"), "FAILED_RETRY", "DEPENDENCY_UNAVAILABLE"),
        (TimeoutError("too late"), "FAILED_RETRY", "DEPENDENCY_UNAVAILABLE"),
        (socket.gaierror("who is that"), "FAILED_RETRY", "DEPENDENCY_UNAVAILABLE"),
        (MemoryError("too much"), "FAILED_FINAL", "MEMORY_LIMIT"),
        (
            ExceptionGroup("of a TaskGroup", [TimeoutError("late")]),
            "FAILED_RETRY",
            "DEPENDENCY_UNAVAILABLE",
        ),
    ],
)
def test_errors_are_classified(error: Exception, status: str, code: str) -> None:
    failure = classify(error)
    assert (failure.status.value, failure.code) == (status, code)
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    assert str(error.args[0]) in failure.message
    assert failure.unexpected == (code == "UNEXPECTED_ERROR")


def test_a_full_disk_of_the_service_is_tried_again() -> None:
    failure = classify(OSError(errno.ENOSPC, "No space left on device"))
    assert (failure.status.value, failure.code) == ("FAILED_RETRY", "DISK_FULL")
    assert classify(OSError(errno.EPERM, "no")).code == "UNEXPECTED_ERROR"


class BadScanError(FatalError):
    default_code = "BAD_SCAN"


@on_the_bench
async def test_a_service_says_what_the_errors_of_its_libraries_mean(bench: Bench) -> None:
    class Careful(Writer):
        errors = {zipfile.BadZipFile: BadScanError, TimeoutError: FatalError}

        async def execute(self, task: Task) -> Output:
            raise zipfile.BadZipFile("cut off") if task.attempt_no == 1 else TimeoutError("late")

    await bench.runner(Careful())
    await bench.send(1)
    await bench.send(2)
    found = [
        (each["attempt_no"], each["status"], each["error"]["code"])
        for each in await bench.replies("RESULT", 2)
    ]
    assert sorted(found) == [(1, "FAILED_FINAL", "BAD_SCAN"), (2, "FAILED_FINAL", "STEP_FAILED")]


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
    assert (result["status"], result["error"]["code"]) == ("FAILED_RETRY", "UNEXPECTED_ERROR")
    assert re.fullmatch(
        rf"ZeroDivisionError: by nothing \(at {HERE}:\d+\)", result["error"]["message"]
    )


def fails_inside(value: str) -> None:
    """Deeper in the service, and deepest in a library."""
    json.loads(f"no JSON: {len(value)}")


@on_the_bench
async def test_what_nobody_foresaw_names_the_service_s_own_line_and_leaves_a_traceback(
    bench: Bench,
) -> None:
    @service("ocr", "OCR")
    async def broken(task: Task) -> Output:
        fails_inside(task.job_id)
        return Output()

    await bench.runner(broken)
    with logged(JsonFormatter(), logging.WARNING) as lines:
        await bench.send(1)
        message = (await bench.result())["error"]["message"]
    line = fails_inside.__code__.co_firstlineno + 2
    assert (
        message == f"JSONDecodeError: Expecting value: line 1 column 1 (char 0) (at {HERE}:{line})"
    )
    (logged_line,) = [json.loads(line) for line in lines]
    assert "in fails_inside" in logged_line["stack"]
    assert "decoder.py" in logged_line["stack"]
    assert logged_line["jobId"] not in message + logged_line["stack"], "no values of variables"


@on_the_bench
async def test_what_a_service_raises_on_purpose_leaves_no_traceback(bench: Bench) -> None:
    @service("ocr", "OCR")
    async def refusing(task: Task) -> Output:
        raise FatalError("no page has text", code="EMPTY")

    await bench.runner(refusing)
    with logged(JsonFormatter(), logging.WARNING) as lines:
        await bench.send(1)
        assert (await bench.result())["error"] == {"code": "EMPTY", "message": "no page has text"}
    assert "stack" not in json.loads(lines[0])


def test_the_place_outlives_a_long_message_and_a_secret_in_it_does_not() -> None:
    try:
        raise ValueError("password=hunter2 " + "x" * 10_000)
    except ValueError as error:
        failure = classify(error)
    assert len(failure.message) <= MAX_STRING
    assert "hunter2" not in failure.message
    assert re.search(rf"{CUT_MARK_AT} \(at {HERE}:\d+\)$", failure.message)


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
