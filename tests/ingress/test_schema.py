"""The published schema of the envelope is the one that validates. Beside it stands what it cannot say."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucius.contract.models.commands import envelope_schema
from lucius.contract.words import MODES, REASON
from lucius.core.errors import RequestError
from lucius.core.limits import pointer
from tests.api.world import document
from tests.ingress.requests import TRACEPARENT, admit, refused, request

OPTIONAL = [
    name for name in envelope_schema()["properties"] if name not in envelope_schema()["required"]
]
VALUES: list[Any] = [
    *(None, "", " ", "x", "x" * 129, "x" * 257, "a\nb", 0, True, [], {}, ["x"], [1, "http://a"]),
    *("v1", "1.0", "v2", "burst", " SAFE\t", "FAST", TRACEPARENT, TRACEPARENT.upper()),
    *("s3://b/x", "s3:b", {"uri": "s3://b/x"}, {"uri": 3}, ["https://a.example"] * 9),
]
changes = st.dictionaries(
    st.sampled_from([*envelope_schema()["properties"]]), st.sampled_from([*VALUES, ...]), max_size=4
)


def published() -> jsonschema_rs.Draft202012Validator:
    body = document()["paths"]["/v1/orchestrate"]["post"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    return jsonschema_rs.Draft202012Validator({**schema, "components": document()["components"]})


PUBLISHED = published()


def place_of(error: jsonschema_rs.ValidationError) -> str:
    return pointer(*(error.instance_path or [getattr(error.kind, "property", "")]))


@given(changes)
@settings(max_examples=300, derandomize=True, database=None, deadline=None)
def test_what_the_published_schema_refuses_is_refused_at_every_place(fields: Any) -> None:
    envelope = request(**fields)
    bad = {place_of(error) for error in PUBLISHED.iter_errors(envelope)}
    try:
        admit(envelope)
        found: set[str] = set()
    except RequestError as error:
        found = {at for at, _ in error.faults}
    for place in bad:
        assert any(at == place or at.startswith(f"{place}/") for at in found), (place, found)


@pytest.mark.parametrize(
    "fields",
    [
        *({name: None} for name in OPTIONAL),
        *({"mode": mode} for mode in (*MODES[:2], "default", " Safe ")),
        {"mode": "burst", "doc_id": "d"},
        {"further": {"field": 1}},
    ],
    ids=str,
)
def test_what_is_accepted_fits_the_published_schema(fields: dict[str, Any]) -> None:
    envelope = request(**fields)
    assert PUBLISHED.is_valid(envelope)
    assert admit(envelope).plan.tenant_id == "tenant_a"


@pytest.mark.parametrize(
    "fields",
    [{"tenant_id": "  "}, {"doc_id": " "}, {"payload": None}, {"mode": "FAST"}, {"overwrite": 1}],
    ids=str,
)
def test_what_is_refused_for_its_form_does_not_fit_it(fields: dict[str, Any]) -> None:
    envelope = request(**fields)
    assert not PUBLISHED.is_valid(envelope)
    assert refused(envelope).code == "INVALID_ENVELOPE"


@pytest.mark.parametrize("name", ["mode", "overwrite", "payload", "schema_version", "traceparent"])
def test_the_reason_of_a_field_is_what_a_client_is_told(name: str) -> None:
    (fault,) = refused(request(**{name: 3})).faults
    assert fault == (f"/{name}", envelope_schema()["properties"][name][REASON])


def test_every_webhook_that_is_wrong_is_named() -> None:
    faults = dict(
        refused(request(callback_urls=[1, "http://a.example", "https://b.example"])).faults
    )
    assert set(faults) == {"/callback_urls/0", "/callback_urls/1"}
    assert faults["/callback_urls/0"] == "must be a URL"
