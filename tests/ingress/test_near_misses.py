"""A field that nobody knows is kept. If its name is a slip of a known one, the caller is told."""

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.admission.near_misses import (
    LEAST,
    MOST_WARNINGS,
    known_fields,
    near_misses,
    nearest,
)
from lucius.contract.models.commands import envelope_schema
from lucius.core.packed import opened
from tests.ingress.requests import STEPS, admit, request
from tests.ingress.test_redrive import ended, redrive

NAMES = ["language", "pages", "chunk_size", "overlap", "dimensions", "prompt_set"]
names = st.text(string.ascii_lowercase + "_", min_size=LEAST, max_size=12).filter(
    lambda name: len(name.replace("_", "")) >= LEAST
)
letters = st.sampled_from(string.ascii_lowercase)


@st.composite
def typos(draw: st.DrawFn) -> tuple[str, str]:
    """A name, and the same with one letter more, less or other, or two the other way round."""
    name, letter = draw(names), draw(letters)
    at = draw(st.integers(0, len(name) - 1))
    edits = (
        name[:at] + letter + name[at:],
        name[:at] + name[at + 1 :],
        name[:at] + letter + name[at + 1 :],
        name[:at] + name[at : at + 2][::-1] + name[at + 2 :],
    )
    return name, draw(st.sampled_from(edits))


@given(st.sets(names, min_size=1, max_size=8))
def test_an_exact_name_is_never_warned_about(known: set[str]) -> None:
    schema: dict[str, Any] = {"properties": {name: {} for name in known}}
    payload = dict.fromkeys(known, 1)
    assert near_misses({}, [("/payload", payload, known_fields(schema))]) == ()


@given(typos())
def test_a_single_slip_is_found(slip: tuple[str, str]) -> None:
    name, typed = slip
    assert nearest(typed, [name, "quite_another_field"]) == (None if typed == name else name)


@pytest.mark.parametrize("typed", ["chunkSize", "Chunk-Size", "CHUNK_SIZE", "chunksize"])
def test_another_way_of_writing_words_is_a_slip(typed: str) -> None:
    assert nearest(typed, NAMES) == "chunk_size"


@pytest.mark.parametrize(
    "typed", ["customer", "lang", "page_count", "x", "size", "ix", "languages2"]
)
def test_another_name_is_none(typed: str) -> None:
    assert nearest(typed, [*NAMES, "id"]) is None


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


def test_a_payload_for_all_steps_may_name_the_fields_of_each() -> None:
    shared = {"language": "en", "chunk_size": 512, "prompt_set": ["a"]}
    assert warned(payload=shared) == {}
    found = warned(payload={**shared, "langage": "en", "step": {}})
    assert set(found) == {"/payload/langage", "/payload/step"}


def test_one_step_may_have_a_field_of_the_name_steps_or_close_to_it() -> None:
    assert warned(request_type="OCR", payload={"step": 1}) == {}


def test_a_valid_command_has_no_warnings() -> None:
    assert warned() == {}
    assert warned(**dict.fromkeys(("mode", "doc_id", "overwrite", "traceparent"))) == {}
    assert nearest("overwrite", envelope_schema()["properties"]) is None


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {"type": "object"},
        {"properties": {"language": {}}, "additionalProperties": {"type": "string"}},
        {"properties": {"language": {}}, "patternProperties": {"^l": {}}},
    ],
)
def test_where_names_are_free_none_is_a_slip(schema: dict[str, Any] | None) -> None:
    assert near_misses({}, [("", {"langauge": 1}, known_fields(schema))]) == ()


def test_a_schema_may_say_it_by_references_and_branches() -> None:
    """As the model of a payload is written by pydantic."""
    schema = {
        "properties": {"options": {"anyOf": [{"$ref": "#/$defs/Options"}, {"type": "null"}]}},
        "$defs": {
            "Options": {"properties": {"language": {}, "again": {"$ref": "#/$defs/Options"}}}
        },
    }
    value = {"options": {"langage": 1, "again": {"langauge": 2}}}
    found = near_misses({}, [("/payload", value, known_fields(schema))])
    assert [each.pointer for each in found] == [
        "/payload/options/langage",
        "/payload/options/again/langauge",
    ]


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
