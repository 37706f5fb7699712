"""Canonical JSON and the hashes over it: what counts as the same request."""

import json
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.core.idempotency import (
    HASHED_FIELDS,
    _canonical,
    body_hash,
    canonical_json,
    key_hash,
    normal_request_type,
)

text = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        ({"a": {"d": 1, "c": [3, 1, 2]}}, '{"a":{"c":[3,1,2],"d":1}}'),
        ({"a": None, "b": {"c": None}}, '{"b":{}}'),
        ([None, 1], "[null,1]"),
        (1.0, "1"),
        (1.50, "1.5"),
        (-0.0, "0"),
        (1e3, "1000"),
        (1e-7, "0.0000001"),
        (1e22, "10000000000000000000000"),
        (100, "100"),
        (Decimal("2.500"), "2.5"),
        (Decimal("10"), "10"),
        (True, "true"),
        ("1.0", '"1.0"'),
        ("Grüße →", '"Grüße →"'),
        ('say "null"', '"say \\"null\\""'),
        ({"Z": 1, "a": 2, "é": 3}, '{"Z":1,"a":2,"é":3}'),
        ((1, 2), "[1,2]"),
    ],
)
def test_the_canonical_form(value: Any, canonical: str) -> None:
    assert canonical_json(value) == canonical


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_a_number_that_is_not_finite_has_no_form(value: Any) -> None:
    with pytest.raises(ValueError):
        canonical_json(value)


@given(values)
def test_the_fast_way_writes_what_the_definition_says(value: Any) -> None:
    assert canonical_json(value) == _canonical(value)


@given(values)
def test_the_canonical_form_is_stable(value: Any) -> None:
    once = canonical_json(value)
    assert canonical_json(json.loads(once, parse_float=Decimal)) == once


@given(st.dictionaries(text, values, max_size=6))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert canonical_json(turned) == canonical_json(value)


@given(st.dictionaries(text, values, max_size=4), text)
def test_a_null_field_is_as_good_as_none(value: dict[str, Any], name: str) -> None:
    without = {key: item for key, item in value.items() if key != name}
    assert canonical_json({**without, name: None}) == canonical_json(without)


@given(st.integers(-(10**15), 10**15))
def test_a_whole_number_is_one_number_however_it_is_written(number: int) -> None:
    assert canonical_json(float(number)) == canonical_json(number)


# -- requests --------------------------------------------------------------------------------

REQUEST: dict[str, Any] = {
    "tenant_id": "tenant_a",
    "request_type": "OCR->SIS",
    "input_ref": {"uri": "s3://in.pdf"},
    "output_ref": None,
    "payload": {"language": "en", "dpi": 300.0},
    "schema_version": "v1",
}


def test_the_hash_is_sha256_of_the_canonical_fields() -> None:
    canonical = (
        '{"input_ref":{"uri":"s3://in.pdf"},"payload":{"dpi":300,"language":"en"},'
        '"request_type":"OCR->SIS","schema_version":"v1","tenant_id":"tenant_a"}'
    )
    assert body_hash(REQUEST) == sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize("name", HASHED_FIELDS)
def test_every_hashed_field_counts(name: str) -> None:
    assert body_hash({**REQUEST, name: "another"}) != body_hash(REQUEST)


@pytest.mark.parametrize("name", ["mode", "doc_id", "correlation_id", "callback_urls", "unknown"])
def test_other_fields_do_not_count(name: str) -> None:
    assert body_hash({**REQUEST, name: "another"}) == body_hash(REQUEST)


def test_arrows_are_one_name_however_they_are_drawn() -> None:
    assert normal_request_type("OCR→EMBEDDING → SIS") == "OCR->EMBEDDING->SIS"
    assert body_hash({**REQUEST, "request_type": "OCR→SIS"}) == body_hash(REQUEST)


def test_a_key_never_hashes_like_a_body() -> None:
    assert key_hash("order-1") == key_hash("order-1") != key_hash("order-2")
    assert key_hash("order-1") != sha256(b"order-1").hexdigest()
