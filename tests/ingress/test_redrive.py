"""A redrive is a new job from the failed step on; what had succeeded is carried over."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lucius.core.decide import submit
from lucius.core.errors import RequestError
from lucius.core.job import Job, JobState, StepState
from lucius.core.plan import Mode
from lucius.engine.admission.ingress import Admission, Ingress
from tests.ingress.requests import NOW, PACKAGED, STEPS, FixedConfig, admit, bursting, request, wide

INGRESS = Ingress(PACKAGED)
LATER = NOW + timedelta(hours=1)


def ended(
    state: JobState = JobState.FAILED_FINAL, *, succeeded: int = 1, job: Job | None = None
) -> Job:
    """A job whose first steps have succeeded and whose next one failed."""
    job = job or submit(admit(request(idempotency_key="k")).plan, NOW).job
    rest = StepState.FAILED_FINAL if state is JobState.FAILED_FINAL else StepState.CANCELLED
    steps = tuple(
        replace(
            step, state=StepState.SUCCEEDED, result_ref=step.result_ref or {"uri": f"s3://r/{i}"}
        )
        if i < succeeded
        else replace(step, state=rest)
        for i, step in enumerate(job.steps)
    )
    return replace(job, state=state, steps=steps)


def redrive(old: Job, payload: Any = None, *, job_id: str = "job_2") -> Admission:
    return INGRESS.admit_redrive(old, job_id=job_id, now=LATER, payload=payload)


def test_results_of_finished_steps_are_carried_and_the_rest_runs_again() -> None:
    plan = redrive(ended(succeeded=2)).plan
    assert {name: (c.result_ref, c.job_id) for name, c in plan.carried.items()} == {
        "ocr": ({"uri": "s3://r/0"}, "job_1"),
        "embedding": ({"uri": "s3://r/1"}, "job_1"),
    }
    states = [step.state for step in submit(plan, LATER).job.steps]
    assert states == [StepState.SUCCEEDED, StepState.SUCCEEDED, StepState.DISPATCHING]


def test_a_redrive_keeps_routing_steps_and_workspace_of_the_old_job() -> None:
    old = ended()
    plan = redrive(old).plan
    assert (plan.job_id, plan.redrive_of, plan.root) == ("job_2", "job_1", "job_1")
    assert (old.plan.redrive_no, plan.redrive_no) == (0, 1)
    assert (plan.routing, plan.steps) == (old.plan.routing, old.plan.steps)
    assert plan.workspace_ref == old.plan.workspace_ref
    assert (plan.accepted_at, plan.idempotency_key) == (LATER, None)


def test_routing_is_not_decided_again_whatever_is_configured_by_then() -> None:
    ingress = Ingress(FixedConfig(bursting()))
    plan = ingress.admit_redrive(ended(), job_id="job_2", now=LATER).plan
    assert plan.routing.resolved_mode is Mode.DEFAULT


def test_a_redrive_of_a_redrive_keeps_the_root_and_where_results_came_from() -> None:
    second = ended(succeeded=2, job=submit(redrive(ended()).plan, LATER).job)
    plan = redrive(second, job_id="job_3").plan
    assert (plan.redrive_of, plan.root) == ("job_2", "job_1")
    assert {name: carried.job_id for name, carried in plan.carried.items()} == {
        "ocr": "job_1",
        "embedding": "job_2",
    }
    assert plan.carried["ocr"].result_ref == {"uri": "s3://r/0"}


def test_repeating_a_redrive_makes_the_same_claim_and_another_payload_is_told_apart() -> None:
    first, again = redrive(ended()).claim, redrive(ended(), job_id="job_9").claim
    assert first == again
    assert first.keyed
    other = redrive(ended(), {"steps": {"sis": {"prompt_set": ["other"]}}}).claim
    assert other.claim_hash == first.claim_hash
    assert other.body_hash != first.body_hash
    assert first.claim_hash != admit().claim.claim_hash


def test_a_cancelled_job_may_be_redriven() -> None:
    assert set(redrive(ended(JobState.CANCELLED)).plan.carried) == {"ocr"}


@pytest.mark.parametrize(
    "state", sorted(set(JobState) - {JobState.FAILED_FINAL, JobState.CANCELLED}), ids=str
)
def test_a_job_that_has_not_failed_is_not_redriven(state: JobState) -> None:
    with pytest.raises(RequestError) as raised:
        redrive(replace(ended(), state=state))
    assert (raised.value.code, raised.value.status) == ("NOT_REDRIVABLE", 409)


def test_a_cancelled_job_with_nothing_left_to_run_is_not_redriven() -> None:
    with pytest.raises(RequestError, match="every step"):
        redrive(ended(JobState.CANCELLED, succeeded=3))


# -- a corrected payload ---------------------------------------------------------------------


def test_a_corrected_payload_must_suit_the_steps_that_are_left() -> None:
    with pytest.raises(RequestError) as raised:
        redrive(ended(), {"steps": {"embedding": {"chunk_size": 1}}})
    assert raised.value.code == "INVALID_PAYLOAD"
    assert [at for at, _ in raised.value.faults] == [
        "/payload/steps/embedding/chunk_size",
        "/payload/steps/sis/prompt_set",
    ]


def test_a_corrected_payload_names_only_steps_of_the_job() -> None:
    payload = {"steps": {**STEPS, "embeding": {"chunk_size": 64}}}
    with pytest.raises(RequestError) as raised:
        redrive(ended(), payload)
    assert [at for at, _ in raised.value.faults] == ["/payload/steps/embeding"]


def test_steps_that_are_done_are_not_asked_for_their_payload() -> None:
    payload = {"steps": {**STEPS, "ocr": {"pages": -1}}}
    assert redrive(ended(), payload).plan.payload == payload


@pytest.mark.parametrize(
    ("payload", "code", "pointer"),
    [
        ([], "INVALID_ENVELOPE", "/payload"),
        ({"x": float("nan")}, "INVALID_ENVELOPE", "/payload/x"),
        ({**STEPS["sis"], "x": "y" * 40_000}, "PAYLOAD_TOO_LARGE", "/payload"),
    ],
)
def test_a_bad_payload_is_named(payload: Any, code: str, pointer: str) -> None:
    with pytest.raises(RequestError) as raised:
        redrive(ended(), payload)
    assert (raised.value.code, raised.value.faults[0][0]) == (code, pointer)


def test_a_step_type_that_is_no_longer_known_takes_any_payload() -> None:
    ingress = Ingress(FixedConfig(wide({}, 1)))
    plan = ingress.admit_redrive(ended(), job_id="j", now=LATER, payload={"a": 1}).plan
    assert plan.payload == {"a": 1}
