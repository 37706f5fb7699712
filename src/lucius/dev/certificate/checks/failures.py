"""Failures"""

import re

from lucius.dev.certificate.exam import BrokenError, NotApplicableError
from lucius.dev.certificate.trial import Trial, check

CODE = re.compile(r"[A-Z][A-Z0-9_]{1,63}")
NOT_DIRECTIVES = (
    {"lease_id": ""},
    {"attempt_no": 0},
    {"attempt_no": "one"},
    {"stepId": "../../elsewhere"},
    {"jobId": None},
)


@check(
    "poison-is-final",
    promise="A payload that cannot be worked on fails the step for good (FAILED_FINAL) at once.",
    remedy="Give the service a `payload_model`, or raise FatalError. Without `poison` in the samples, the"
    " payload is a list with one text.",
)
async def poison_is_final(trial: Trial) -> None:
    result = await trial.result(trial.hand(trial.poison))
    declared = trial.samples.poison is not None
    if result.status == "FAILED_RETRY" or (declared and result.status != "FAILED_FINAL"):
        raise BrokenError(f"expected RESULT FAILED_FINAL, and saw {result.told()}")


@check(
    "failures-have-codes",
    promise="A failure has a stable `code` in capitals and a `message` for people.",
    remedy="Raise FatalError or RetryableError with `code=...`, and say in the message what was wrong.",
)
async def failures_have_codes(trial: Trial) -> None:
    result = await trial.result(trial.hand(trial.poison))
    if result.status == "SUCCEEDED":
        result = await trial.result(trial.hand(input_ref={"uri": _nowhere(trial)}))
    if result.status == "SUCCEEDED":
        raise NotApplicableError("nothing makes this service fail: name a payload under `poison`")
    if not CODE.fullmatch(result.code) or not result.message.strip():
        raise BrokenError(f"saw code {result.code!r} and message {result.message[:100]!r}")


@check(
    "missing-input-is-final",
    promise="An `input_ref` that names nothing fails the step for good; trying again cannot help.",
    remedy="Read with `task.input()`, or report FAILED_FINAL where an object does not exist.",
)
async def missing_input_is_final(trial: Trial) -> None:
    result = await trial.result(trial.hand(input_ref={"uri": _nowhere(trial)}, previous={}))
    if result.status == "FAILED_RETRY":
        raise BrokenError(f"expected RESULT FAILED_FINAL, and saw {result.told()}")


@check(
    "trouble-is-retryable",
    promise="A failure that may pass is FAILED_RETRY: here the workspace cannot be written.",
    remedy="Raise RetryableError, or let the error of the storage through: the kit knows it. `retryable` in"
    " the samples names another case.",
)
async def trouble_is_retryable(trial: Trial) -> None:
    if trial.samples.retryable is not None:
        exam = trial.hand(trial.samples.retryable)
    else:
        trial.needs_outputs()
        exam = trial.hand_blocked()
    result = await trial.result(exam)
    if result.status != "FAILED_RETRY":
        raise BrokenError(f"expected RESULT FAILED_RETRY, and saw {result.told()}")


@check(
    "goes-on-after-a-failure",
    promise="After a step failed, the next one is executed.",
    remedy="An error of one step must not leave anything broken behind: open what it needs inside"
    " `execute()`.",
)
async def goes_on_after_a_failure(trial: Trial) -> None:
    await trial.result(trial.hand(trial.poison))
    await trial.success(trial.hand())


@check(
    "not-a-directive-is-survived",
    promise="A message that is no valid directive has no effect, and the service goes on.",
    remedy="Check `jobId`, `stepId`, `attempt_no`, `lease_id` before anything else, and set it aside.",
)
async def not_a_directive_is_survived(trial: Trial) -> None:
    exams = [trial.hand(**wrong) for wrong in NOT_DIRECTIVES]
    for exam in exams:
        await exam.handed()
    await trial.quiet()
    await trial.success(trial.hand())
    for exam, wrong in zip(exams, NOT_DIRECTIVES, strict=True):
        if exam.succeeded:
            raise BrokenError(f"a directive with {wrong} was reported as SUCCEEDED")


@check(
    "foreign-step-type-is-refused",
    promise="A directive whose `step_type` is not the service's has no effect.",
    remedy="Compare `step_type` with those that the service executes.",
)
async def foreign_step_type_is_refused(trial: Trial) -> None:
    exam = trial.hand(step_type="SOMETHING_ELSE_ENTIRELY")
    await exam.handed()
    await trial.quiet()
    await trial.expect_no_effect(exam, "though the step type is another service's")


def _nowhere(trial: Trial) -> str:
    return (trial.folders.input / "nothing-is-here.pdf").as_uri()
