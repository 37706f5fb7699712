"""The whole engine under faults, from many seeds. Nothing that must hold is broken, and everything occurs."""

import os
import subprocess
import sys
from collections import Counter
from typing import Final

import pytest

from tests.simulation.__main__ import told
from tests.simulation.plan import (
    AIMED_WINDOWS,
    BULK,
    EVENTS,
    FAULTS,
    KIT_DEEDS,
    RAW_DEEDS,
    plan_of,
)
from tests.simulation.run import run
from tests.simulation.shrink import shrunk

SEEDS: Final = 320
GROUPS: Final = 16
QUICK: Final = 4
LATER: Final = [pytest.param(group, marks=pytest.mark.slow) for group in range(QUICK, GROUPS)]
"""`make test-fast` runs the first groups."""
REPEATED: Final = (1, 3, 5, 6, 8, 10, 17, 20, 22, 29, 37)
"""Of every setup and of every aim there is one."""

SOMETIMES: Final = (
    *(f"action.{kind}" for kind in ("submit", "repeat", "order", "bulk", "configure", "await_end")),
    *(f"action.{kind}" for kind in (*FAULTS, *AIMED_WINDOWS)),
    *AIMED_WINDOWS,
    *(kind for kind in FAULTS if "." in kind),
    *(f"deed.{deed}" for deed in {*KIT_DEEDS, *RAW_DEEDS}),
    *(f"job.{state}" for state in ("SUCCEEDED", "FAILED_FINAL", "CANCELLED")),
    *("aborted.ack_timeout", "aborted.lease_expired", "aborted.result_failed", "aborted.cancelled"),
    *("aborted.publish_refused", "aborted.returned", "aborted.process_died"),
    *("outcome.duplicate", "outcome.late", "outcome.stale"),
    *("submission.duplicate", "refused.IDEMPOTENCY_KEY_REUSED", "refused.TENANT_SATURATED"),
    *("cancel.applied", "cancel_now.applied", "pause.applied", "resume.applied", "dismiss.applied"),
    *("redrive.applied", "redrive.succeeded", "bulk.applied", "waited", "client.again"),
    *("lost compare-and-swap", "message.NUDGE", "message.HEARTBEAT", "message.RELEASE"),
)
"""Without one of these, the absence of failures would say little."""


def seen_by(seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        report = run(plan_of(seed))
        if report.broken is not None:
            pytest.fail(told(shrunk(report.plan)), pytrace=False)
        seen += report.seen
    return seen


@pytest.mark.parametrize("group", [*range(QUICK), *LATER])
def test_whatever_goes_wrong_nothing_is_lost_and_everything_ends(group: int) -> None:
    seen = seen_by(range(group, SEEDS, GROUPS))
    assert seen["job.SUCCEEDED"]


@pytest.mark.slow
def test_every_fault_and_every_outcome_occurs() -> None:
    """It stops at the first seed by which all were met; the seeds are those of the test above."""
    missing = set(SOMETIMES)
    for seed in range(SEEDS):
        missing -= set(run(plan_of(seed)).seen)
        if not missing:
            return
    raise AssertionError(f"never in {SEEDS} seeds: {sorted(missing)}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", REPEATED)
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    first, second = run(plan_of(seed)), run(plan_of(seed))
    assert first.lines == second.lines


@pytest.mark.slow
def test_the_same_seeds_give_the_same_runs_in_another_process() -> None:
    """Where hashes of texts, and so the order of sets, are others."""
    program = (
        "from tests.simulation.plan import plan_of\n"
        "from tests.simulation.run import run\n"
        f"print(*(run(plan_of(seed)).digest for seed in {REPEATED}))"
    )
    there = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        check=True,
        text=True,
    )
    assert there.stdout.split() == [run(plan_of(seed)).digest for seed in REPEATED]


def test_every_kind_of_fault_stands_in_the_list() -> None:
    assert set(EVENTS) < set(FAULTS)
    assert len(BULK) == len(set(BULK))
