"""What a valid request becomes: a plan that holds everything, and the claim to be its only job."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.configs.files import PACKAGED, FileConfig
from lucius.core.decide import submit
from lucius.core.errors import RequestError
from lucius.core.idempotency import body_hash, key_hash
from lucius.core.plan import DecisionSource, Mode
from lucius.engine.admission.faults import Faults
from lucius.engine.admission.ingress import Ingress, IngressPolicy, tenant_folder
from lucius.engine.admission.rules import Rules, check_payload, step_payloads
from lucius.http.views import job_view
from lucius.ports.config import TenantConfig
from lucius.ports.ledger import Claim, Limits
from tests.ingress.requests import (
    NOW,
    STEPS,
    TRACEPARENT,
    FixedConfig,
    admit,
    bursting,
    catalog,
    request,
)


def test_a_plan_holds_the_whole_request() -> None:
    plan = admit(
        request(
            doc_id="doc-1",
            correlation_id="corr-1",
            traceparent=TRACEPARENT,
            idempotency_key="key-1",
            callback_urls=["https://client.example/done?job=1"],
            priority={"level": 3},
        )
    ).plan
    assert plan.job_id == "job_1"
    assert plan.accepted_at == NOW
    assert plan.protocol_id == "ocr_embedding_sis_v1"
    assert [step.step_id for step in plan.steps] == ["ocr", "embedding", "sis"]
    assert plan.input_ref == {"uri": "s3://bucket/in/doc-1.pdf"}
    assert plan.payload_of("sis") == STEPS["sis"]
    assert (plan.doc_id, plan.correlation_id, plan.traceparent) == ("doc-1", "corr-1", TRACEPARENT)
    assert plan.callback_urls == ("https://client.example/done?job=1",)
    assert plan.extra == {"priority": {"level": 3}}
    assert plan.engine == "outbox"


@pytest.mark.parametrize("name", ["correlation_id", "idempotency_key"])
@pytest.mark.parametrize(
    "secret",
    ["Bearer hunter2", "https://u:hunter2@h/", "run?sig=hunter2", "password=hunter2", "lk_hunter2"],
)
def test_a_secret_in_an_id_is_stored_and_shown_nowhere(name: str, secret: str) -> None:
    admitted = admit(request(**{name: f"order 7 {secret}"}))
    assert "hunter2" not in repr(admitted)
    assert "hunter2" not in json.dumps(job_view(submit(admitted.plan, NOW).job))
    assert getattr(admitted.plan, name).startswith("order 7 ")


def test_keys_that_differ_only_in_a_secret_stay_different() -> None:
    one, other = (admit(request(idempotency_key=f"token={n}")).claim for n in "12")
    assert one.claim_hash != other.claim_hash


def test_what_is_absent_or_null_stays_absent() -> None:
    names = ("mode", "doc_id", "idempotency_key", "callback_urls", "correlation_id", "traceparent")
    plan = admit(request(**dict.fromkeys(names))).plan
    assert plan == admit().plan
    assert (plan.doc_id, plan.correlation_id, plan.traceparent) == (None, None, None)
    assert (plan.idempotency_key, plan.callback_urls, plan.extra) == (None, (), {})


@pytest.mark.parametrize("version", ["v1", "1", "1.0"])
def test_documented_schema_versions_are_accepted_as_given(version: str) -> None:
    admitted = admit(request(schema_version=version))
    assert admitted.plan.schema_version == version
    assert admitted.claim == admit(request(schema_version="v1")).claim, "it is the same request"


@pytest.mark.parametrize(
    "name", ["OCR->EMBEDDING->SIS", "OCR→EMBEDDING→SIS", " OCR -> EMBEDDING→SIS"]
)
def test_all_arrows_are_one_request_type_and_one_claim(name: str) -> None:
    admission = admit(request(request_type=name))
    assert admission.plan.request_type == "OCR->EMBEDDING->SIS"
    assert admission.claim == admit().claim


# -- payloads --------------------------------------------------------------------------------


def test_a_single_step_takes_the_payload_as_it_is() -> None:
    plan = admit(request(request_type="OCR", payload={"language": "de", "new": [1]})).plan
    assert plan.payload_of("ocr") == {"language": "de", "new": [1]}


@pytest.mark.parametrize("own", [{"pages": 3}, {"ocr": {"pages": 3}}, ["a"], 3, None], ids=str)
def test_a_single_step_may_have_a_field_steps_of_its_own(own: Any) -> None:
    payload = {"steps": own, "language": "de"}
    plan = admit(request(request_type="OCR", payload=payload)).plan
    assert plan.payload_of("ocr") == payload


def test_the_last_step_of_several_is_not_taken_for_a_single_one() -> None:
    """A redrive checks only what is left, and that may be one step."""
    rule = Rules(catalog()).protocol("OCR->EMBEDDING->SIS")
    assert rule is not None
    faults, payload = Faults(), {"steps": {"sis": {"prompt_set": ["a"]}}}
    check_payload(payload, rule.steps[-1:], faults, known=rule.step_ids)
    assert not faults


def test_a_payload_without_steps_goes_to_every_step() -> None:
    payload = {"prompt_set": ["a"], "language": "en", "chunk_size": 64}
    plan = admit(request(payload=payload)).plan
    assert plan.payload_of("ocr") == plan.payload_of("sis") == payload


def test_steps_without_required_fields_may_be_left_out() -> None:
    plan = admit(request(payload={"steps": {"sis": {"prompt_set": ["a"]}}})).plan
    assert plan.payload_of("ocr") == {}


def test_a_new_step_type_is_admitted_by_a_file_alone(tmp_path: Path) -> None:
    (tmp_path / "redact.yaml").write_text(
        """
step_types:
  REDACT:
    service: redactor
    lease_seconds: 42
    payload_schema: {type: object, required: [words]}
protocols:
  - {request_type: OCR->REDACT, protocol_id: ocr_redact_v1, steps: [OCR, REDACT]}
"""
    )
    ingress = Ingress(FileConfig((PACKAGED, tmp_path)))
    given = request(request_type="OCR→REDACT", payload={"steps": {"redact": {"words": []}}})
    plan = ingress.admit(given, job_id="job_1", now=NOW).plan
    assert (plan.steps[1].step_type, plan.steps[1].service) == ("REDACT", "redactor")
    assert plan.steps[1].policy.lease.total_seconds() == 42
    with pytest.raises(RequestError) as raised:
        ingress.admit(request(request_type="OCR→REDACT", payload={}), job_id="job_2", now=NOW)
    assert raised.value.faults == (("/payload/words", "is required"),)


# -- modes -----------------------------------------------------------------------------------

FAST, SLOW = TenantConfig(mode=Mode.BURST), TenantConfig(mode=Mode.DEFAULT)
BARRED = TenantConfig(burst_allowed=False)


@pytest.mark.parametrize(
    ("requested", "tenant", "mode", "source"),
    [
        ("BURST", SLOW, Mode.BURST, DecisionSource.REQUEST),
        ("safe", FAST, Mode.DEFAULT, DecisionSource.REQUEST),
        (None, SLOW, Mode.DEFAULT, DecisionSource.TENANT_CONFIG),
        (None, FAST, Mode.BURST, DecisionSource.TENANT_CONFIG),
        (None, TenantConfig(), Mode.BURST, DecisionSource.GLOBAL_CONFIG),
        (None, BARRED, Mode.DEFAULT, DecisionSource.GLOBAL_CONFIG),
        ("DEFAULT", BARRED, Mode.DEFAULT, DecisionSource.REQUEST),
    ],
)
def test_request_goes_before_tenant_before_global(
    requested: str | None, tenant: TenantConfig, mode: Mode, source: DecisionSource
) -> None:
    config = bursting(tenant_a=tenant)
    routing = admit(request(mode=requested, doc_id="Doc 1"), config=config).plan.routing
    assert (routing.resolved_mode, routing.decision_source) == (mode, source)
    assert routing.routing_key_used == ("tenant_adoc 1" if mode is Mode.BURST else "tenant_a")


def test_topology_and_delimiter_come_from_the_policy() -> None:
    policy = IngressPolicy(topology="isolated", delimiter="|")
    routing = admit(request(mode="BURST", doc_id="d"), policy=policy).plan.routing
    assert (routing.routing_key_used, routing.topic) == ("tenant_a|d", "global-burst-p15")


# -- claims ----------------------------------------------------------------------------------


def test_without_a_key_the_body_is_the_claim() -> None:
    hashed = body_hash(request())
    admission = admit()
    assert admission.claim == Claim("tenant_a", hashed, hashed, keyed=False)
    assert admission.plan.idempotency_hash == hashed


@pytest.mark.parametrize(("field", "header"), [("k", None), (None, "k"), ("k", "k")])
def test_a_key_in_body_or_header_is_the_claim(field: str | None, header: str | None) -> None:
    admission = admit(request(idempotency_key=field), key=header)
    assert admission.claim == Claim("tenant_a", key_hash("k"), body_hash(request()), keyed=True)
    assert admission.plan.idempotency_key == "k"


def test_the_same_key_with_another_body_has_another_body_hash() -> None:
    first = admit(request(), key="k").claim
    other = admit(request(input_ref="s3://bucket/other.pdf"), key="k").claim
    assert first.claim_hash == other.claim_hash
    assert first.body_hash != other.body_hash


@pytest.mark.parametrize("change", [{"mode": "BURST", "doc_id": "d"}, {"correlation_id": "c"}])
def test_fields_outside_the_seed_list_do_not_make_another_request(change: dict[str, Any]) -> None:
    assert admit(request(**change)).claim == admit().claim


# -- workspace and limits --------------------------------------------------------------------


def test_the_workspace_is_named_after_system_tenant_and_job() -> None:
    policy = IngressPolicy(workspace_url="file:///data/ws/", system="acme")
    plan = admit(request(tenant_id="Tenant A/../b"), policy=policy).plan
    assert plan.workspace_ref == "file:///data/ws/acme/Tenant~20A~2f..~2fb/job_1/"


@pytest.mark.parametrize("tenant_id", ["..", ".", "../x", "a/b", "a%2fb", "~", "ü" * 128, "a\\b"])
def test_no_tenant_reaches_another_folder_than_its_own(tenant_id: str) -> None:
    folder = tenant_folder(tenant_id)
    assert folder not in (".", "..")
    assert not set(folder) & set("/\\%:")
    assert len(folder) <= 120
    assert folder != tenant_folder(tenant_id + "x")


def test_a_tenant_may_have_its_own_limit() -> None:
    config = catalog(tenants={"small": TenantConfig(max_inflight=2)})
    ingress = Ingress(FixedConfig(config), IngressPolicy(limits=Limits(10, 100, 50)))
    assert ingress.limits("small") == Limits(2, 100, 50)
    assert ingress.limits("other") == Limits(10, 100, 50)


@pytest.mark.parametrize("request_type", ["OCR", "OCR->EMBEDDING->SIS"])
@pytest.mark.parametrize(
    "payload",
    [{}, {"steps": 3}, {"steps": {}}, {"steps": {"ocr": {"a": 1}, "sis": None}}, {"a": 1}],
    ids=str,
)
def test_what_is_validated_is_what_the_services_get(
    request_type: str, payload: dict[str, Any]
) -> None:
    rule = Rules(catalog()).protocol(request_type)
    assert rule is not None
    plan = replace(admit().plan, payload=payload, steps=rule.protocol.steps)
    for step, _, value in step_payloads(payload, rule.steps, single=len(rule.steps) == 1):
        assert value == plan.payload_of(step.step_id)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("s3://b/{jobId}.json", "s3://b/job_1.json"),
        (
            {"uri": "file:///out/a.{jobId}.json", "note": 1},
            {"uri": "file:///out/a.job_1.json", "note": 1},
        ),
        ("s3://b/{jobid}.json", "s3://b/{jobid}.json"),
    ],
)
def test_an_output_reference_may_name_the_job(given: Any, kept: Any) -> None:
    admitted = admit(request(output_ref=given))
    assert admitted.plan.output_ref == kept
    assert admitted.claim.body_hash == body_hash(request(output_ref=given)), "as the request came"


def test_the_command_says_whether_its_output_may_replace_what_is_there() -> None:
    assert admit(request(overwrite=True)).plan.extra == {"overwrite": True}
