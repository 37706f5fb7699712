"""Names and keys on Azure: they come back as they were, and hold nothing that Azure forbids."""

import re
from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.adapters.ledgers.azure import names
from lucius.core.errors import LedgerError
from lucius.core.ids import new_job_id
from lucius.core.limits import TENANT_KEY_CHARACTERS, tenant_fits

FORBIDDEN = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]")
ANYTHING = st.text(
    st.one_of(st.characters(), st.sampled_from("/\\#?|~;%+'\x00\x1f\x7f\x9f\ud800é→😀 ")),
    max_size=40,
)


@given(parts=st.lists(ANYTHING, min_size=1, max_size=4))
def test_every_key_round_trips_and_has_no_forbidden_character(parts: list[str]) -> None:
    made = names.key(*parts)
    assert names.parts_of(made) == tuple(parts)
    assert not FORBIDDEN.search(made)
    assert made
    made.encode()  # what cannot be sent is escaped too


@given(one=st.lists(ANYTHING, min_size=1), other=st.lists(ANYTHING, min_size=1))
def test_two_names_never_share_a_key(one: list[str], other: list[str]) -> None:
    assert (names.key(*one) == names.key(*other)) == (one == other)


@given(parts=st.lists(ANYTHING, min_size=1, max_size=3), more=ANYTHING)
def test_a_range_holds_what_begins_with_its_prefix_and_nothing_else(
    parts: list[str], more: str
) -> None:
    first = names.prefix(*parts)
    assert first <= names.key(*parts, more) < names.past(first)
    longer = names.key(*parts[:-1], parts[-1] + more) if more else names.key(*parts)
    assert not first <= longer < names.past(first)


@given(numbers=st.lists(st.integers(0, names.FAR), min_size=2))
def test_numbers_keep_their_order_in_keys(numbers: list[int]) -> None:
    assert [int(n) for n in sorted(map(names.rising, numbers))] == sorted(numbers)
    fallen = sorted(map(names.falling, numbers))
    assert [names.FAR - int(n) for n in fallen] == sorted(numbers, reverse=True)


@given(value=st.text(max_size=80))
def test_a_table_name_is_one_that_azure_takes_or_is_refused(value: str) -> None:
    kept = "".join(c for c in value if c.isascii() and c.isalnum())
    if 3 <= len(kept) <= 63 and kept[0].isalpha():
        assert names.table_name("LUCIUS_LEDGER_TABLE", value) == kept
    else:
        with pytest.raises(LedgerError, match="LUCIUS_LEDGER_TABLE"):
            names.table_name("LUCIUS_LEDGER_TABLE", value)


def test_the_names_of_the_settings_lose_what_is_forbidden() -> None:
    assert names.table_name("LUCIUS_LEDGER_TABLE", "lucius_ledger") == "luciusledger"
    assert names.table_name("LUCIUS_IDEMPOTENCY_TABLE", "job-idempotency") == "jobidempotency"


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(LedgerError, match="512"):
        names.key("x" * 513)


def test_a_bucket_is_the_tenant_and_the_month_of_the_job() -> None:
    job_id = new_job_id(datetime(2026, 3, 31, 23, 59, tzinfo=UTC))
    assert names.bucket("tenant/a", job_id) == "tenant~2f;a|202603"
    assert names.bucket("tenant_a", "not one of ours") == "tenant_a|000000"


LONGEST: Final = ("READY", "s" * 50 + "/BURST", "9" * 18, f"job_{'f' * 32}", "s" * 64)
"""The other parts of the longest key that names a tenant."""


@pytest.mark.parametrize(
    "tenant_id", ["/" * 64, "\U0001f600" * 128, "t" * 128, "/" * 42 + "é" * 86]
)
def test_every_tenant_that_is_admitted_fits_the_longest_key(tenant_id: str) -> None:
    assert tenant_fits(tenant_id)
    assert names.parts_of(names.key(*LONGEST, tenant_id))[-1] == tenant_id


@given(tenant_id=st.text(max_size=128))
def test_a_tenant_is_refused_by_the_length_of_its_key(tenant_id: str) -> None:
    made = names.escaped(tenant_id) if tenant_id else ""
    assert tenant_fits(tenant_id) is (len(made.encode("utf-16-le")) // 2 <= TENANT_KEY_CHARACTERS)
