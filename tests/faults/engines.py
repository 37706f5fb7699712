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

ELSEWHERE: Final[dict[str, str]] = {
    "tests/adapters/test_power_loss.py": "Local files, which know no engine",
    "tests/conformance/test_ledger_unreadable.py": "A ledger, which knows no engine",
    "tests/core/test_attempts.py": "Temporal only: signals",
    "tests/engine/test_busy_services.py": "The window, which knows no engine",
    "tests/engine/test_fair_window.py": "The window, which knows no engine",
    "tests/engine/test_overload.py": "The window, which knows no engine",
    "tests/engine/test_processes_apart.py": "The window, which knows no engine",
    "tests/engine/test_pull_room.py": "The window, which knows no engine",
    "tests/faults/test_azure_ledger.py": "A ledger, which knows no engine",
    "tests/faults/test_azure_lost_answers.py": "A ledger, which knows no engine",
    "tests/faults/test_azure_projections.py": "A ledger, which knows no engine",
    "tests/faults/test_damaged_start.py": "A ledger, and the start that both engines share",
    "tests/faults/test_disk_full.py": "A ledger; what follows from its refusal runs on both",
    "tests/faults/test_frozen_worker.py": "Processes of the kit, which knows no engine",
    "tests/faults/test_kill.py": "One process; `tests/e2e/test_chaos.py` kills those of Temporal",
    "tests/faults/test_ledger_health.py": "A ledger, which knows no engine",
    "tests/faults/test_reboot.py": "Local files, and the start that both engines share",
    "tests/faults/test_submit_race.py": "The claim, before an engine has the job",
    "tests/faults/test_suspended.py": "One process; `tests/e2e/test_chaos.py` freezes an invoker",
    "tests/faults/test_unreadable_row.py": "A ledger, and the start that both engines share",
    "tests/faults/test_zombie_redrive.py": "Both engines, by parameters of its own",
    "tests/security/test_dead_at_once.py": "One process, and the bus that dies with it",
    "tests/temporal/test_crashes.py": "Temporal only: starts and signals",
    "tests/temporal/test_drift.py": "Temporal only: starts and signals",
}
"""Files with stories that are not told on the stage of `stage.py`, and what they are about."""


def engines_of(story: str) -> tuple[str, ...]:
    return (OUTBOX,) if story in OUTBOX_ONLY else ENGINES
