"""JSON kept as text: it reads like the mapping that it is, and takes no more memory than its text."""

import json
from sys import getsizeof

import orjson
import pytest

from lucius.core.plan import Plan
from lucius.core.record import Packed, opened
from tests.conformance.jobs import plan_of

VALUE = {"steps": {"ocr": {"dpi": 300}, "sis": {"deep": [1, None, {"é": 2**70}]}}, "x": 1.5}


def test_it_reads_like_the_mapping_that_it_is() -> None:
    packed = Packed(json.dumps(VALUE).encode())
    assert packed == VALUE
    assert packed["x"] == 1.5
    assert list(packed) == ["steps", "x"]
    assert len(packed) == 2
    assert opened(packed) == VALUE
    assert opened(VALUE) is VALUE


def test_it_keeps_no_more_than_its_text() -> None:
    """An encoder's buffer may be many times as large as what is in it."""
    text = orjson.dumps({"a": [[] for _ in range(10_000)]})
    packed = Packed(text)
    assert packed.text == text
    assert packed.text is not text
    assert getsizeof(packed.text) < len(text) + 100


@pytest.mark.parametrize(
    "whole", [VALUE, {"language": "en"}, {}], ids=["by step", "shared", "none"]
)
def test_every_step_finds_its_payload_in_a_packed_one(whole: dict[str, object]) -> None:
    def plan(payload: object) -> Plan:
        return plan_of(1, payload=payload)

    packed = plan(Packed(json.dumps(whole).encode()))
    for step_id in ("ocr", "embedding", "sis"):
        assert packed.payload_of(step_id) == plan(whole).payload_of(step_id)
        assert packed.payloads()[step_id] == plan(whole).payload_of(step_id)
