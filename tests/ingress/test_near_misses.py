"""A field that nobody knows is kept. If its name is a slip of a known one, the caller is told."""

import string
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lucius.contract.models.commands import envelope_schema
from lucius.core.record import opened
from lucius.engine.admission.faults import (
    LEAST,
    MOST_WARNINGS,
    known_fields,
    near_misses,
    nearest,
)
from tests.ingress.requests import STEPS, admit, request
from tests.ingress.test_redrive import ended, redrive

NAMES = ["language", "pages", "chunk_size", "overlap", "dimensions", "prompt_set"]
names = st.text(string.ascii_lowercase + "_", min_size=LEAST, max_size=12).filter(
    lambda name: len(name.replace("_", "")) >= LEAST
)


@given(st.sets(names, min_size=1, max_size=8))
def test_an_exact_name_is_never_warned_about(known: set[str]) -> None:
    schema: dict[str, Any] = {"properties": {name: {} for name in known}}
    payload = dict.fromkeys(known, 1)
    assert near_misses({}, [("/payload", payload, known_fields(schema))]) == ()


def warned(**changes: Any) -> dict[str, str]:
    return dict(admit(request(**changes)).warnings)


def test_every_part_of_a_command_is_looked_at() -> None:
    steps = {
        **STEPS,
        "ocr": {"langauge": "en"},
        "sis": {"prompt_set": [{"prompt": "a", "anwser": "x"}]},
    }
    found = warned(payload={"steps": steps}, callback_url="https://x.io", priority=3)
    assert found == {
        "/callback_url": "is not known here: did you mean `callback_urls`?",
        "/payload/steps/ocr/langauge": "is not known here: did you mean `language`?",
        "/payload/steps/sis/prompt_set/0/anwser": "is not known here: did you mean `answer`?",
    }


def test_what_is_warned_about_is_kept() -> None:
    one = request(request_type="OCR", payload={"page": 3}, callback_url="x")
    plan = admit(one).plan
    assert opened(plan.payload) == {"page": 3}
    assert plan.extra == {"callback_url": "x"}


def test_a_valid_command_has_no_warnings() -> None:
    assert warned() == {}
    assert warned(**dict.fromkeys(("mode", "doc_id", "overwrite", "traceparent"))) == {}
    assert nearest("overwrite", envelope_schema()["properties"]) is None


def test_a_flood_of_unknown_fields_costs_little_and_tells_little() -> None:
    known = known_fields({"properties": {"language": {}}})
    flood = {f"language{letter}": 1 for letter in string.ascii_letters}
    assert len(near_misses({}, [("", flood, known)])) == MOST_WARNINGS
    late = {**{f"unknown_{n}": 1 for n in range(10_000)}, "langauge": 1}
    assert near_misses({}, [("", late, known)]) == ()


def test_a_corrected_payload_of_a_redrive_is_looked_at_too() -> None:
    steps = {**STEPS, "embedding": {"chunk_sise": 512}}
    assert [each.pointer for each in redrive(ended(), {"steps": steps}).warnings] == [
        "/payload/steps/embedding/chunk_sise"
    ]
    assert redrive(ended()).warnings == ()
