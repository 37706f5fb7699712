"""Which fault stories run on which engine: on both, but for those that are named here with the reason."""

from typing import Final

from lucius.core.plan import OUTBOX, TEMPORAL

ENGINES: Final = (OUTBOX, TEMPORAL)
OUTBOX_ONLY: Final[dict[str, str]] = {
    "test_fm_005_reproduce_without_the_debt_in_the_ledger_the_job_stops_there": (
        "On Temporal the debt is an activity, which the server repeats"
    ),
    "test_fm_007_prevent_a_result_makes_every_move_that_it_proves_in_order": (
        "On Temporal SENT is recorded with the publish, before the RESULT of this story"
    ),
    "test_fm_013_reproduce_without_compare_and_swap_one_attempt_goes_out_twice": (
        "On Temporal both would release the one lease that the workflow has proposed"
    ),
    "test_fm_019_prevent_no_attempt_is_used_and_nothing_more_is_released": (
        "On Temporal the window opens every second for whoever asks next: nothing there waits to be"
        " published again that could try the broker"
    ),
    "test_fm_019_prevent_a_broker_that_is_still_away_closes_the_window_again": (
        "On Temporal the window opens every second, as above"
    ),
    "test_fm_021_recover_what_was_released_is_published_again_as_the_same_attempt": (
        "On Temporal release and publish are one request: FM_004 and FM_005 kill between them"
    ),
}
"""Stories in virtual time that only the outbox engine can tell."""


def engines_of(story: str) -> tuple[str, ...]:
    return (OUTBOX,) if story in OUTBOX_ONLY else ENGINES
