"""A request that would not fit the narrowest backend is refused on every backend, with 413."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from lucius.app.access import ReplyTokens
from lucius.core.decide import submit
from lucius.core.limits import (
    ENTITY_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_STEPS,
    MESSAGE_BYTES,
    PROPERTY_CHARACTERS,
    directive_capacity,
    fits_property,
)
from lucius.core.wire import MAX_REF, directive, directive_properties
from lucius.engine.admission.ingress import IngressPolicy
from lucius.http.tokens import CallbackTokens
from tests.ingress.requests import STEPS, admit, refused, request, wide

LONG = "x" * (PROPERTY_CHARACTERS + 1)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"payload": {"steps": {**STEPS, "ocr": {"note": LONG}}}}, "/payload/steps/ocr"),
        ({"payload": {**STEPS["sis"], "note": LONG}}, "/payload"),
        ({"input_ref": {"uri": "s3://b/x", "note": LONG}}, "/input_ref"),
        ({"output_ref": {"uri": "s3://b/x", "note": LONG}}, "/output_ref"),
        ({"new_field": LONG}, ""),
        ({"payload": {"x": "y" * ENTITY_BYTES}}, ""),
    ],
)
def test_what_does_not_fit_one_property_is_too_large(changes: dict[str, Any], pointer: str) -> None:
    error = refused(request(**changes))
    assert (error.code, error.status) == ("PAYLOAD_TOO_LARGE", 413)
    assert error.faults[0][0] == pointer


def test_the_whole_payload_has_its_own_limit() -> None:
    names = [f"s{index}" for index in range(5)]
    payload = {"steps": {name: {"note": "x" * 30_000} for name in names}}
    error = refused(request(request_type="WIDE", payload=payload), config=wide({}, 5))
    assert error.faults == (("/payload", f"is larger than {MAX_PAYLOAD_BYTES} bytes"),)


def test_settings_may_lower_the_limit() -> None:
    policy = IngressPolicy(max_payload_bytes=100)
    admit(request(payload=STEPS["sis"]), policy=policy)
    payload = {**STEPS["sis"], "note": "x" * 100}
    error = refused(request(payload=payload), policy=policy)
    assert error.faults == (("/payload", "is larger than 100 bytes"),)


def test_a_directive_must_fit_even_if_all_earlier_results_are_long() -> None:
    count = MAX_STEPS
    payload = {"steps": {f"s{count - 1}": {"note": "é" * 16_000}}}
    given = request(
        request_type="WIDE",
        payload=payload,
        input_ref={"uri": "s3://b/x", "note": "é" * 16_000},
    )
    admit(given, config=wide({}, count))
    given["extra"] = "é" * 5_000
    error = refused(given, config=wide({}, count))
    assert [at for at, _ in error.faults] == [f"/payload/steps/s{count - 1}"]
    assert str(directive_capacity(count - 1)) in error.faults[0][1]


def test_the_largest_directive_that_is_admitted_fits_a_message_of_service_bus() -> None:
    """With all that rendering adds: objects around references, ids that the client did not give."""
    count = MAX_STEPS
    given = request(
        request_type="WIDE",
        payload={"steps": {f"s{count - 1}": {"note": "é" * 15_000}}},
        input_ref="s3://b/" + "x" * 2_041,
        output_ref="s3://b/" + "y" * 2_041,
        extra="é" * 17_500,
    )
    for name in ("correlation_id", "traceparent"):
        given.pop(name, None)
    plan = admit(given, config=wide({}, count)).plan
    job = submit(plan, plan.accepted_at).job
    longest = replace(job.steps[0], result_ref="é" * MAX_REF)
    rendered = replace(job, steps=(longest,) * count)
    body = directive(rendered, f"s{count - 1}", 20, "f" * 36)
    tokens = CallbackTokens({"k": b"s" * 32})
    url = "https://" + "h" * 200
    decorated = ReplyTokens(tokens, url, required=False, prefix="p" * 64).decorate(body)
    assert decorated["previous"]["s0"] == {"uri": "é" * MAX_REF}
    sizes = (len(orjson.dumps(each)) for each in (decorated, directive_properties(body)))
    assert sum(sizes) < MESSAGE_BYTES - 4096
    given["extra"] += "é" * 1500
    refused(given, config=wide({}, count))


def test_characters_are_counted_as_azure_does() -> None:
    assert fits_property(("é" * PROPERTY_CHARACTERS).encode())
    assert not fits_property(("😀" * (PROPERTY_CHARACTERS // 2 + 1)).encode())


def test_other_faults_go_before_the_size() -> None:
    error = refused(request(tenant_id="", new_field=LONG))
    assert error.code == "INVALID_ENVELOPE"
    assert error.faults[1][1].startswith("PAYLOAD_TOO_LARGE: ")
