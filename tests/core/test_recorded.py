"""What a reply says beside its move is recorded with it: the worker's time, and how late work ended."""

import pytest

from lucius.core.callbacks import MAX_NOTED, MAX_NOTED_MESSAGE
from lucius.core.effects import Outcome
from lucius.core.inputs import (
    AckReceived,
    CancelRequested,
    HeartbeatReceived,
    LeaseReturned,
    ResultReceived,
    ResultStatus,
)
from lucius.core.job import Fault
from tests.core.story import Story

STAMP = "2026-01-27T10:00:03Z"


def released() -> Story:
    story = Story()
    story.release()
    story.confirm()
    return story


def test_the_time_of_a_worker_is_recorded_with_what_it_moved() -> None:
    story = released()
    story.give(AckReceived(*story.lease(), timestamp=STAMP))
    assert (story.events[-1].type, story.events[-1].data) == ("ack", {"timestamp": STAMP})
    story.give(ResultReceived(*story.lease(), ResultStatus.SUCCEEDED, timestamp=STAMP))
    assert (story.events[-1].type, story.events[-1].data) == ("success", {"timestamp": STAMP})


def test_it_stands_beside_the_error_of_a_failure_and_is_recorded_for_a_release() -> None:
    story = released()
    failed = ResultStatus.FAILED_RETRY
    story.give(ResultReceived(*story.lease(), failed, fault=Fault("X", "y"), timestamp=STAMP))
    assert story.events[-1].data == {"fault": "X", "message": "y", "timestamp": STAMP}
    other = Story().started()
    other.give(LeaseReturned(*other.lease(), timestamp=STAMP))
    assert other.events[-1].data == {"timestamp": STAMP}


def test_a_heartbeat_still_makes_no_event() -> None:
    story = Story().started()
    before = len(story.events)
    story.give(HeartbeatReceived(*story.lease(), timestamp=STAMP))
    assert len(story.events) == before


@pytest.mark.parametrize("status", ResultStatus)
def test_a_late_result_is_recorded_with_its_status_and_its_error(status: ResultStatus) -> None:
    story = Story().started()
    story.give(CancelRequested(immediate=True))
    fault = Fault("GONE", "no such page") if status is not ResultStatus.SUCCEEDED else None
    late = ResultReceived(*story.lease(), status, fault=fault, timestamp=STAMP)
    assert story.give(late) is Outcome.LATE
    error = {"fault": "GONE", "message": "no such page"} if fault else {}
    expected = {"outcome": "late", "status": status.value, **error, "timestamp": STAMP}
    assert story.events[-1].data == expected


def test_a_stale_failure_is_recorded_with_its_error() -> None:
    story = Story().started()
    old = story.lease()
    story.tick_due()
    story.tick_due()
    story.release()
    stale = ResultReceived(*old, ResultStatus.FAILED_FINAL, fault=Fault("GONE", "x"))
    assert story.give(stale) is Outcome.STALE
    data = {"outcome": "stale", "status": "FAILED_FINAL", "fault": "GONE", "message": "x"}
    assert story.events[-1].data == data


def test_what_late_replies_leave_is_bounded() -> None:
    story = Story().started()
    story.give(CancelRequested(immediate=True))
    fault = Fault("C" * 128, "m" * 4096)
    for _ in range(MAX_NOTED + 5):
        story.give(ResultReceived(*story.lease(), ResultStatus.FAILED_RETRY, fault=fault))
    noted = [event.data for event in story.events if event.data and "outcome" in event.data]
    assert len(noted) == MAX_NOTED
    assert all(len(data["message"]) == MAX_NOTED_MESSAGE for data in noted)
