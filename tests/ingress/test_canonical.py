"""What counts as the same request: the canonical form, and that its fast way is exact."""

import json
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lucius.core.idempotency import _canonical, body_hash, canonical_json
from tests.ingress.requests import request

floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | floats | st.text(max_size=12)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)
objects = st.dictionaries(st.text(max_size=6), values, max_size=5)


def shuffled(value: Any) -> Any:
    """Every object's keys the other way round."""
    if isinstance(value, dict):
        return {key: shuffled(item) for key, item in reversed(value.items())}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


def padded(value: Any) -> Any:
    """Every object with a null more."""
    if isinstance(value, dict):
        return {**{key: padded(item) for key, item in value.items()}, "\uffff nothing": None}
    return [padded(item) for item in value] if isinstance(value, list) else value


def as_floats(value: Any) -> Any:
    """Whole numbers written as floats, where a float holds them exactly."""
    if isinstance(value, dict):
        return {key: as_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_floats(item) for item in value]
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53
    return float(value) if whole else value


@given(values)
@example({"a": [1.0, 1e16, 1e-7, -0.0], "b": "1.0,e+5 null"})
def test_the_fast_way_gives_the_text_of_the_definition(value: Any) -> None:
    assert canonical_json(value) == _canonical(value)


@given(objects)
def test_order_of_keys_does_not_matter(payload: dict[str, Any]) -> None:
    assert body_hash(request(payload=shuffled(payload))) == body_hash(request(payload=payload))


@given(objects)
def test_nulls_in_objects_do_not_matter(payload: dict[str, Any]) -> None:
    assert body_hash(request(payload=padded(payload))) == body_hash(request(payload=payload))


@given(objects)
def test_one_and_one_point_zero_are_the_same(payload: dict[str, Any]) -> None:
    assert body_hash(request(payload=as_floats(payload))) == body_hash(request(payload=payload))


@given(objects, objects)
def test_what_differs_has_another_hash(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = body_hash(request(payload=one)) == body_hash(request(payload=other))
    assert same is (canonical_json(one) == canonical_json(other))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": None, "c": [None, 1]}, '{"b":1,"c":[null,1]}'),
        ([1.50, 2.0, 1e3, 1e-7, -0.0, 0.1], "[1.5,2,1000,0.0000001,0,0.1]"),
        ([Decimal("1.500"), Decimal("1E+2"), True], "[1.5,100,true]"),
        ({"é": "ü\n", "z": "\u2028"}, '{"z":"\u2028","é":"ü\\n"}'),
        (1.0, "1"),
        ("1.0", '"1.0"'),
    ],
)
def test_the_canonical_form_is_as_specified(value: Any, text: str) -> None:
    assert canonical_json(value) == text


def test_order_of_arrays_matters() -> None:
    assert canonical_json([1, 2]) != canonical_json([2, 1])


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_have_no_form(number: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        canonical_json({"x": number})


def test_the_hash_is_sha256_of_the_six_fields_in_utf8() -> None:
    given = request(mode="BURST", doc_id="d", idempotency_key="k", payload={"n": "é"})
    six = {
        name: given[name]
        for name in ("input_ref", "output_ref", "payload", "request_type", "schema_version")
    }
    text = json.dumps(
        {**six, "tenant_id": "tenant_a"}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    assert body_hash(given) == sha256(text.encode()).hexdigest()
