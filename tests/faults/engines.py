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


OTHER_NAMES: Final[dict[str, dict[str, list[str]]]] = {
    "FM_018": {
        "reproduce": [
            "test_without_the_window_the_same_flood_holds_up_the_others",
            "test_without_the_look_at_its_service_either_the_flood_times_out",
            "test_without_the_look_at_the_service_they_time_out",
            "test_without_shares_the_window_is_full_with_the_directives_of_another",
            "test_without_the_look_at_the_pulls_it_does",
        ],
        "prevent": [
            "test_a_flood_succeeds_without_ack_timeouts_and_others_wait_at_most_twice_as_long",
            "test_jobs_queue_for_one_slow_slot_and_none_fails_for_it",
            "test_a_burst_over_all_lanes_uses_up_no_attempt",
            "test_a_tenant_is_served_as_if_it_were_alone",
            "test_a_worker_that_pulls_fifty_every_five_seconds_gets_fifty",
            "test_what_waits_for_the_next_pull_uses_up_no_attempt",
        ],
    },
    "FM_021": {"prevent": ["test_the_second_death_costs_an_attempt_however_soon_it_comes"]},
    "FM_026": {
        "reproduce": [
            "test_without_skipping_it_stops_the_start",
            "test_without_leaving_it_out_it_stays_due",
        ],
        "prevent": [
            "test_the_start_leaves_it_out_and_takes_up_the_others",
            "test_ticks_meet_it_once_and_go_on_with_what_else_is_due",
            "test_a_reply_to_it_is_set_aside_with_the_reason",
        ],
        "recover": ["test_one_that_was_mended_counts_again"],
    },
    "FM_027": {
        "reproduce": [
            "test_without_the_guard_something_is_forgotten",
            "test_without_its_guard_a_late_writer_goes_backwards",
        ],
        "prevent": [
            "test_a_writer_that_stops_anywhere_leaves_nothing_undone",
            "test_a_late_writer_changes_nothing_that_is_newer",
        ],
        "recover": [
            "test_a_writer_that_stops_anywhere_leaves_nothing_undone",
            "test_whatever_answers_are_lost_every_job_ends_and_verify_is_clean",
            "test_whoever_meets_what_a_dead_writer_left_finishes_it",
        ],
    },
    "FM_028": {
        "reproduce": ["test_planted_differences_are_found_and_a_lost_end_is_told_again"],
        "prevent": [
            "test_a_signal_that_is_lost_is_sent_again",
            "test_signals_are_sent_until_they_are_delivered_and_leave_no_event",
        ],
        "recover": [
            "test_a_job_that_was_not_started_is_started_later",
            "test_the_sweep_of_an_orchestrator_starts_what_was_not_started_and_nothing_twice",
        ],
    },
    "FM_029": {
        "reproduce": ["test_without_a_sync_something_answered_is_lost"],
        "prevent": [
            "test_an_output_that_was_overwritten_does_not_come_back_with_a_reboot",
            "test_of_two_outputs_in_one_place_the_power_takes_none_but_the_older",
            "test_what_is_removed_after_an_orderly_stop_does_not_come_back",
        ],
        "recover": [
            "test_nothing_answered_is_lost_whenever_it_fails",
            "test_a_place_that_cannot_be_written_is_set_aside_and_named",
        ],
    },
    "FM_030": {
        "reproduce": ["test_without_the_guard_a_damaged_note_stops_the_start"],
        "prevent": ["test_a_damaged_note_stops_nothing", "test_a_damaged_column_stops_nothing"],
        "recover": ["test_a_service_whose_pause_is_damaged_stays_paused_until_it_is_resumed"],
    },
}
"""Tests of failure modes whose names do not begin with `test_fm_`."""


def engines_of(story: str) -> tuple[str, ...]:
    return (OUTBOX,) if story in OUTBOX_ONLY else ENGINES
