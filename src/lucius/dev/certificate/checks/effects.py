"""Effects and outputs"""

import asyncio
from hashlib import sha256
from typing import Any

from lucius.dev.certificate.exam import ACK, RESULT, BrokenError, Exam, NotApplicableError
from lucius.dev.certificate.trial import Trial, check, output_of

FOREIGN = b"this was here before\n"


@check(
    "output-is-there",
    promise="What RESULT SUCCEEDED names as `output_ref` exists, with the size and hash that it says.",
    remedy="Write the output completely before the RESULT is sent.",
)
async def output_is_there(trial: Trial) -> None:
    trial.needs_outputs()
    path, said = output_of(await trial.success(trial.hand()))
    if not path.is_file():
        raise BrokenError(f"there is no {path}")
    data = path.read_bytes()
    facts = {"size": len(data), "sha256": sha256(data).hexdigest()}
    for name, value in facts.items():
        if isinstance(said, dict) and said.get(name, value) != value:
            raise BrokenError(f"{name} is {value}, and the RESULT says {said[name]}")


@check(
    "artefact-layout",
    promise="A step writes to `<workspace_ref>/<output_folder>/` and nowhere else in the workspace,"
    " folders that begin with `_` aside.",
    remedy="Use `task.stage(name, data)`, or build paths from `workspace_ref` and `output_folder` alone.",
)
async def artefact_layout(trial: Trial) -> None:
    trial.needs_outputs()
    exam = trial.hand(output_ref=None, final_step=False)
    await trial.success(exam)
    home, folder = trial.home(exam), exam.directive["output_folder"]
    if not trial.promoted(exam):
        raise BrokenError(f"nothing stands in {home / folder}")
    for path in sorted(home.iterdir()):
        if path.name != folder and not path.name.startswith(("_", ".")):
            raise BrokenError(f"{path} is not the step's folder, {folder}/")


@check(
    "output-ref-honoured",
    promise="The output of the last step stands where the client's `output_ref` says.",
    remedy="Where `final_step` is true, copy the output to `output_ref`; the kit does that.",
)
async def output_ref_honoured(trial: Trial) -> None:
    trial.needs_outputs()
    exam = trial.hand()
    await trial.success(exam)
    if not trial.wanted(exam).is_file():
        raise BrokenError(f"there is no {trial.wanted(exam)}")


@check(
    "foreign-output-kept",
    promise="What stands at `output_ref` and was not written by this job stays, unless `overwrite` is true.",
    remedy="Create the output only if it is absent, and fail for good otherwise.",
)
async def foreign_output_kept(trial: Trial) -> None:
    trial.needs_outputs()
    wanted = trial.folders.output / "foreign" / "result"
    wanted.parent.mkdir(exist_ok=True)
    wanted.write_bytes(FOREIGN)
    exam = trial.hand(output_ref={"uri": wanted.as_uri()})
    result = await trial.result(exam)
    if wanted.read_bytes() != FOREIGN:
        raise BrokenError(f"{wanted} was replaced")
    if result.status != "FAILED_FINAL":
        raise BrokenError(f"expected RESULT FAILED_FINAL, and saw {result.told()}")


@check(
    "no-effect-before-the-end",
    promise="While a step runs, nothing stands where its effect belongs.",
    remedy="Stage under the attempt's own folder, and publish at the end (`task.stage` does). Without"
    " outputs, apply the effect last.",
    slow=True,
)
async def no_effect_before_the_end(trial: Trial) -> None:
    exam = trial.hand_slow()
    await exam.wait_for_reply(ACK, trial.pace.ack)
    await trial.beat(exam, trial.pace.slow + trial.pace.ack)
    if not exam.of(RESULT):
        await trial.expect_no_effect(exam, "while the step still runs")
    await trial.success(exam, more=trial.pace.slow)
    if not await trial.effect(exam):
        raise BrokenError("there is no effect after RESULT SUCCEEDED")


@check(
    "failure-leaves-nothing",
    promise="A step that failed for good has left no effect.",
    remedy="Check payload and input before anything is written.",
)
async def failure_leaves_nothing(trial: Trial) -> None:
    exam = trial.hand(trial.poison)
    result = await trial.result(exam)
    if result.status == "SUCCEEDED":
        raise NotApplicableError("the service takes any payload: name a wrong one under `poison`")
    await trial.expect_no_effect(exam, f"though the step failed with {result.code}")


@check(
    "duplicate-starts-nothing",
    promise="The same directive again, while its work is under way, starts nothing.",
    remedy="Deduplicate by (`jobId`, `stepId`, `attempt_no`, `lease_id`) before the work begins.",
    slow=True,
)
async def duplicate_starts_nothing(trial: Trial) -> None:
    exam = trial.hand_slow()
    await exam.wait_for_reply(ACK, trial.pace.ack)
    trial.gateway.hand(exam)
    await exam.handed(2)
    await trial.success(exam, more=trial.pace.slow)
    before = await trial.effect(exam)
    await asyncio.sleep(trial.pace.slow + trial.pace.quiet)
    await expect_same(trial, exam, before, "by a duplicate of its directive")
    expect_one_result(exam, 2)


@check(
    "duplicate-after-the-end",
    promise="The same directive again, after its RESULT, repeats no effect and may repeat the RESULT.",
    remedy="Keep the result of an attempt, and send it again for a duplicate.",
)
async def duplicate_after_the_end(trial: Trial) -> None:
    exam = trial.hand()
    await trial.success(exam)
    before = await trial.effect(exam)
    trial.gateway.hand(exam)
    await exam.handed(2)
    await trial.quiet()
    await expect_same(trial, exam, before, "by a duplicate of its directive")
    expect_one_result(exam, 2)


@check(
    "effect-once-over-attempts",
    promise="If the RESULT of an attempt is lost, the next attempt reports the same and repeats no effect.",
    remedy="Record the effect under `effect_key`, if that is absent, before it is applied; the kit does.",
)
async def effect_once_over_attempts(trial: Trial) -> None:
    exam = trial.hand()
    await trial.success(exam)
    before = await trial.effect(exam)
    following = trial.again(exam)
    await trial.success(following)
    await expect_same(trial, exam, before, "by the second attempt")
    same_output(exam, following)


@check(
    "effect-once-over-redrives",
    promise="A redriven job shares the `effect_key` of the first: the effect is not applied again.",
    remedy="Let `effect_key` alone name the effect, not the job or the attempt.",
)
async def effect_once_over_redrives(trial: Trial) -> None:
    exam = trial.hand()
    await trial.success(exam)
    before = await trial.effect(exam)
    redriven = trial.redriven(exam)
    await trial.success(redriven)
    await expect_same(trial, exam, before, "by the redriven job")
    same_output(exam, redriven)


async def expect_same(trial: Trial, exam: Exam, before: Any, by: str) -> None:
    after = await trial.effect(exam)
    if before != after:
        raise BrokenError(f"the effect was applied again {by}")


def expect_one_result(exam: Exam, most: int) -> None:
    said = {(reply.status, str(reply.output)) for reply in exam.of(RESULT)}
    if len(said) > 1 or len(exam.of(RESULT)) > most:
        raise BrokenError("RESULTs that differ: " + ", ".join(r.told() for r in exam.of(RESULT)))


def same_output(one: Exam, other: Exam) -> None:
    first, second = (exam.of(RESULT)[0] for exam in (one, other))
    if first.output is None and second.output is None:
        return
    paths = [output_of(result)[0] for result in (first, second)]
    if paths[0] != paths[1] and paths[0].read_bytes() != paths[1].read_bytes():
        raise BrokenError(f"two outputs that differ for one effect: {paths[0]} and {paths[1]}")
