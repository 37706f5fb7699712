"""The service level: a job or a pause that takes too long is escalated, or fails where so configured."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from lucius.core.inputs import CancelRequested, PauseRequested, ResumeRequested
from lucius.core.job import AbortReason, JobState, Phase, StepState, phase_of
from lucius.core.plan import Plan, Sla
from tests.core.explore.configurations import small_plan
from tests.core.story import Story

J, S = JobState, StepState
CANCEL, PAUSE, RESUME = CancelRequested(), PauseRequested(), ResumeRequested()


def strict(**sla: Any) -> Plan:
    level = replace(Sla(), job=timedelta(hours=2), pause=timedelta(hours=3), **sla)
    return small_plan(0, sla=level)


def test_a_job_beyond_its_sla_is_escalated_again_and_again() -> None:
    story = Story(strict())
    for _ in range(2):
        assert story.due_in == timedelta(hours=2)
        story.tick_due()
        assert story.events[-1].data == {"escalated": "job_sla"}
    assert story.job.state is J.DISPATCHING


def test_a_job_beyond_its_sla_fails_where_so_configured() -> None:
    story = Story(strict(fail_job=True)).started()
    story.wait(hours=2)
    story.heartbeat()
    story.tick()
    assert story.states() == (J.FAILED_FINAL, S.FAILED_FINAL)
    assert story.job.fault is not None
    assert story.job.fault.code == "SLA_EXCEEDED"
    assert story.step().executions[-1].reason is AbortReason.SLA


def test_a_pause_beyond_its_sla_is_escalated_or_fails_the_job() -> None:
    told = Story(strict())
    told.give(PAUSE)
    assert told.due_in == timedelta(hours=3)
    told.tick_due()
    assert told.events[-1].data == {"escalated": "pause_sla"}
    assert told.job.state is J.PAUSED
    failed = Story(strict(fail_pause=True))
    failed.give(PAUSE)
    failed.tick_due()
    assert failed.job.state is J.FAILED_FINAL
    assert phase_of(failed.job) is Phase.FAILED


def test_a_job_that_is_being_cancelled_is_escalated_but_not_failed() -> None:
    story = Story(strict(fail_job=True)).started()
    story.give(CANCEL)
    story.wait(hours=2)
    story.heartbeat()
    story.tick()
    assert story.job.state is J.CANCELLING


def test_resuming_starts_the_sla_of_the_job_anew() -> None:
    story = Story(strict())
    story.give(PAUSE)
    story.wait(hours=1).give(RESUME)
    assert story.due_in == timedelta(hours=2)
