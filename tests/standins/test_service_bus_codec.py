"""The stand-in's codec gives back what it was given, and refuses what it does not know."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.dev.standins.service_bus.codec import (
    Array,
    CodecError,
    Described,
    Int,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    decode,
    encode,
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(0, 2**50).map(Timestamp),
    st.text(max_size=300),
    st.text("abc-:", max_size=9).map(Symbol),
    st.binary(max_size=300),
    st.uuids(),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=5), inner, max_size=4),
        st.tuples(st.integers(0, 300).map(ULong), inner).map(lambda pair: Described(*pair)),
    ),
    max_leaves=12,
)


@given(values)
def test_a_value_comes_back_with_its_type(value: Any) -> None:
    again = decode(encode(value))
    assert again == value
    assert type(again) is type(value)


def test_arrays_come_back() -> None:
    array = Array(0x98, (UUID(int=1), UUID(int=2)))
    assert decode(encode(array)) == array


@pytest.mark.parametrize(
    "raw", [b"", b"\xa1\x05ab", b"\x74", b"\xd0\x00\x00\x00\x04\x00\x00\x00\x02\x40"]
)
def test_what_is_no_amqp_is_refused(raw: bytes) -> None:
    with pytest.raises(CodecError):
        decode(raw)
