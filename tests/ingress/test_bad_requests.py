"""Every bad request is refused with a specific code that names the field."""

from typing import Any

import pytest

from lucius.core.errors import RequestError
from lucius.core.plan import Mode
from lucius.engine.admission.faults import MAX_LISTED
from lucius.engine.admission.ingress import Ingress
from lucius.ports.config import TenantConfig
from tests.ingress.requests import (
    NOW,
    PACKAGED,
    STEPS,
    TRACEPARENT,
    admit,
    bursting,
    catalog,
    refused,
    request,
)

ENVELOPE = "INVALID_ENVELOPE"
SURROGATE = "\ud800"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    **{
        f"no {name}": ({name: ...}, ENVELOPE, f"/{name}")
        for name in ("tenant_id", "request_type", "input_ref", "output_ref", "payload")
    },
    "no schema version": ({"schema_version": ...}, ENVELOPE, "/schema_version"),
    "a schema version to come": (
        {"schema_version": "v2"},
        "UNSUPPORTED_SCHEMA_VERSION",
        "/schema_version",
    ),
    "a schema version as number": ({"schema_version": 1}, ENVELOPE, "/schema_version"),
    "null for a tenant": ({"tenant_id": None}, ENVELOPE, "/tenant_id"),
    "an empty tenant": ({"tenant_id": ""}, ENVELOPE, "/tenant_id"),
    "a blank tenant": ({"tenant_id": "  "}, ENVELOPE, "/tenant_id"),
    "a long tenant": ({"tenant_id": "t" * 129}, ENVELOPE, "/tenant_id"),
    "a tenant with a line break": ({"tenant_id": "a\nb"}, ENVELOPE, "/tenant_id"),
    "a tenant between spaces": ({"tenant_id": " x "}, ENVELOPE, "/tenant_id"),
    "a tenant after a space": ({"tenant_id": " x"}, ENVELOPE, "/tenant_id"),
    "a tenant of special characters": ({"tenant_id": "/" * 128}, ENVELOPE, "/tenant_id"),
    "a tenant as number": ({"tenant_id": 7}, ENVELOPE, "/tenant_id"),
    "an unknown request type": ({"request_type": "FAX"}, "UNKNOWN_REQUEST_TYPE", "/request_type"),
    "a request type as list": ({"request_type": ["OCR"]}, ENVELOPE, "/request_type"),
    "a payload as list": ({"payload": []}, ENVELOPE, "/payload"),
    "an unknown mode": ({"mode": "FAST"}, ENVELOPE, "/mode"),
    "a mode as number": ({"mode": 1}, ENVELOPE, "/mode"),
    "an empty document id": ({"doc_id": ""}, ENVELOPE, "/doc_id"),
    "a document id as number": ({"doc_id": 12}, ENVELOPE, "/doc_id"),
    "burst without document": ({"mode": "BURST"}, "DOC_ID_REQUIRED", "/doc_id"),
    "a long key": ({"idempotency_key": "k" * 257}, ENVELOPE, "/idempotency_key"),
    "an empty key": ({"idempotency_key": ""}, ENVELOPE, "/idempotency_key"),
    "a correlation id as object": ({"correlation_id": {}}, ENVELOPE, "/correlation_id"),
    "a bad traceparent": ({"traceparent": TRACEPARENT[:-1]}, ENVELOPE, "/traceparent"),
    "a traceparent of zeros": (
        {"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-00"},
        ENVELOPE,
        "/traceparent",
    ),
    "webhooks as text": ({"callback_urls": "https://a.example"}, ENVELOPE, "/callback_urls"),
    "too many webhooks": (
        {"callback_urls": ["https://a.example"] * 9},
        ENVELOPE,
        "/callback_urls",
    ),
    "a webhook without TLS": (
        {"callback_urls": ["https://a.example", "http://a.example"]},
        ENVELOPE,
        "/callback_urls/1",
    ),
    "a webhook with a user": ({"callback_urls": ["https://u:p@a.b"]}, ENVELOPE, "/callback_urls/0"),
    "a webhook as number": ({"callback_urls": [1]}, ENVELOPE, "/callback_urls/0"),
    "a webhook without host": ({"callback_urls": ["https:///x"]}, ENVELOPE, "/callback_urls/0"),
    "a reference as number": ({"input_ref": 3}, "REFERENCE_INVALID", "/input_ref"),
    "a word for overwrite": ({"overwrite": "yes"}, ENVELOPE, "/overwrite"),
    "a reference without uri": (
        {"output_ref": {"url": "s3://b/c"}},
        "REFERENCE_INVALID",
        "/output_ref/uri",
    ),
    "a scheme outside policy": (
        {"output_ref": {"uri": "ftp://host/x"}},
        "REFERENCE_NOT_ALLOWED",
        "/output_ref/uri",
    ),
    "a signature in a reference": (
        {"input_ref": "https://x.blob.core.windows.net/c/b?sv=1&sig=abc"},
        "REFERENCE_HAS_CREDENTIALS",
        "/input_ref",
    ),
    "a payload without its required field": (
        {"payload": {"steps": {"ocr": {}}}},
        "INVALID_PAYLOAD",
        "/payload/steps/sis/prompt_set",
    ),
    "a step payload of the wrong type": (
        {"payload": {"steps": {**STEPS, "ocr": {"language": 5}}}},
        "INVALID_PAYLOAD",
        "/payload/steps/ocr/language",
    ),
    "a step payload that is no object": (
        {"payload": {"steps": {**STEPS, "ocr": []}}},
        "INVALID_PAYLOAD",
        "/payload/steps/ocr",
    ),
    "a payload for a step that is not there": (
        {"payload": {"steps": {**STEPS, "embeding/1": {"chunk_size": 1}}}},
        "INVALID_PAYLOAD",
        "/payload/steps/embeding~11",
    ),
    "steps that are no object, for several steps": (
        {"payload": {"steps": [STEPS], "prompt_set": ["a"]}},
        "INVALID_PAYLOAD",
        "/payload/steps",
    ),
    "steps that are null, for several steps": (
        {"payload": {"steps": None, "prompt_set": ["a"]}},
        "INVALID_PAYLOAD",
        "/payload/steps",
    ),
    "a shared payload of the wrong type": (
        {"request_type": "OCR", "payload": {"pages": 0}},
        "INVALID_PAYLOAD",
        "/payload/pages",
    ),
    "an item of a list": (
        {"request_type": "SIS", "payload": {"prompt_set": ["a", 2]}},
        "INVALID_PAYLOAD",
        "/payload/prompt_set/1",
    ),
    "not a number": ({"payload": {"x": float("nan")}}, ENVELOPE, "/payload/x"),
    "infinity": ({"extra": [1, float("-inf")]}, ENVELOPE, "/extra/1"),
    "a lone surrogate": ({"payload": {"a/b": {"x": SURROGATE}}}, ENVELOPE, "/payload/a~1b/x"),
    "a lone surrogate as name": ({"extra": {SURROGATE: 1}}, ENVELOPE, "/extra/\\ud800"),
    "an integer beyond 64 bits": ({"payload": {"n": 2**64}}, ENVELOPE, "/payload/n"),
    "something that is not JSON": ({"payload": {"x": {1, 2}}}, ENVELOPE, "/payload/x"),
    "deep nesting": ({"payload": {"x": deep(31)}}, ENVELOPE, "/payload/x" + "/0" * 30),
    "nesting deeper than any encoder": ({"x": deep(400)}, ENVELOPE, "/x" + "/0" * 31),
}


@pytest.mark.parametrize(("changes", "code", "pointer"), BAD.values(), ids=BAD)
def test_a_bad_field_is_named_with_its_code(
    changes: dict[str, Any], code: str, pointer: str
) -> None:
    error = refused(request(**changes))
    assert (error.code, error.status) == (code, 422)
    assert [at for at, _ in error.faults] == [pointer]
    assert error.faults[0][1]


def test_nesting_up_to_the_limit_is_fine() -> None:
    given = request(payload={"steps": STEPS, "x": deep(30)})
    assert admit(given).plan.payload["x"] == deep(30)


def test_a_request_that_is_no_object_is_refused() -> None:
    bodies: tuple[Any, ...] = ([], "text", None, 3)
    for body in bodies:
        with pytest.raises(RequestError) as raised:
            Ingress(PACKAGED).admit(body, job_id="job_1", now=NOW)
        assert (raised.value.code, raised.value.faults[0][0]) == (ENVELOPE, "")


def test_every_fault_is_listed_in_one_error() -> None:
    error = refused(
        {
            "request_type": "OCR",
            "input_ref": "ftp://host/x",
            "payload": {"pages": "all", "language": 1},
            "schema_version": "v9",
            "mode": "BURST",
        }
    )
    assert error.code == ENVELOPE
    assert {at for at, _ in error.faults} == {
        "/tenant_id",
        "/output_ref",
        "/input_ref",
        "/payload/pages",
        "/payload/language",
        "/schema_version",
        "/doc_id",
    }
    reasons = dict(error.faults)
    assert reasons["/tenant_id"] == "is required"
    assert reasons["/doc_id"].startswith("DOC_ID_REQUIRED: ")


def test_a_list_of_faults_has_an_end() -> None:
    prompts = list(range(50)) * 2
    error = refused(request(request_type="SIS", payload={"prompt_set": prompts}))
    assert len(error.faults) == MAX_LISTED + 1
    assert error.faults[-1][1] == "and 51 more"


def test_messages_do_not_repeat_what_the_payload_held() -> None:
    error = refused(request(request_type="OCR", payload={"language": {"secret": "geheim"}}))
    assert "geheim" not in str(error.faults)


def test_a_key_in_the_header_must_agree_with_the_body() -> None:
    error = refused(request(idempotency_key="a"), key="b")
    assert (error.code, error.faults[0][0]) == (ENVELOPE, "/idempotency_key")
    assert refused(request(), key="x" * 300).faults[0][0] == "/idempotency_key"


def test_a_tenant_that_may_not_burst_is_forbidden_to_ask_for_it() -> None:
    config = catalog(tenants={"tenant_a": TenantConfig(burst_allowed=False)})
    error = refused(request(mode="BURST", doc_id="d"), config=config)
    assert (error.code, error.status, error.faults[0][0]) == ("BURST_NOT_ALLOWED", 403, "/mode")
    error = refused(request(mode="BURST"), config=catalog(burst_allowed=False))
    assert error.code == "BURST_NOT_ALLOWED"


def test_a_tenant_may_burst_where_others_may_not() -> None:
    config = catalog(burst_allowed=False, tenants={"tenant_a": TenantConfig(burst_allowed=True)})
    routing = admit(request(mode="BURST", doc_id="d"), config=config).plan.routing
    assert routing.resolved_mode is Mode.BURST


def test_burst_by_configuration_needs_a_document_too() -> None:
    assert refused(request(), config=bursting()).code == "DOC_ID_REQUIRED"


def test_an_unknown_request_type_is_answered_with_those_there_are() -> None:
    assert "OCR->EMBEDDING->SIS" in refused(request(request_type="FAX")).faults[0][1]
