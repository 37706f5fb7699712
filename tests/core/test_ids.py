"""Ids are never the same twice, whatever process makes them."""

import os
from datetime import UTC, datetime

from lucius.core.ids import accepted_at, new_job_id, new_lease_id

NOW = datetime(2026, 5, 4, 3, 2, 1, 500_000, UTC)


def test_lease_ids_do_not_repeat_and_have_full_length() -> None:
    made = [new_lease_id() for _ in range(5_000)]
    assert len(set(made)) == len(made)
    assert {len(one) for one in made} == {32}


def test_job_ids_do_not_repeat_and_say_when_they_were_made() -> None:
    made = [new_job_id(NOW) for _ in range(5_000)]
    assert len(set(made)) == len(made)
    assert accepted_at(made[0]) == NOW


def test_a_forked_process_makes_other_ids() -> None:
    new_lease_id()
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sending, new_lease_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(sending)
    with os.fdopen(receiving) as given:
        assert given.read() != new_lease_id()
