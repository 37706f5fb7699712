"""The messages: every dialect of a reply is understood, and a directive is rendered the same each time."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.core import wire
from lucius.core.errors import RequestError
from lucius.core.ids import is_traceparent
from lucius.core.inputs import (
    AckReceived,
    HeartbeatReceived,
    LeaseReturned,
    ResultReceived,
    ResultStatus,
)
from lucius.core.job import Fault
from lucius.core.limits import json_faults
from lucius.core.plan import StepPlan, output_folders
from lucius.core.wire import (
    CUT_MARK,
    MAX_STRING,
    bounded_ref,
    directive,
    directive_properties,
    effect_key,
    message_id,
    notice,
    parse_reply,
    plain_ref,
)
from tests.core.explore.configurations import small_plan
from tests.core.story import Story

BOUND = {"jobId": "job", "stepId": "a", "attempt_no": 1, "lease_id": "a1"}
LEASE = ("a", 1, "a1")


def result(**fields: Any) -> ResultReceived:
    job_id, reply = parse_reply({**BOUND, "type": "RESULT", **fields})
    assert job_id == "job"
    assert isinstance(reply, ResultReceived)
    return reply


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"status": "SUCCEEDED"}, ResultStatus.SUCCEEDED),
        ({"status": "succeeded"}, ResultStatus.SUCCEEDED),
        ({"status": "FAILED_RETRY"}, ResultStatus.FAILED_RETRY),
        ({"status": "FAILED_FINAL"}, ResultStatus.FAILED_FINAL),
        ({"status": "FAILED"}, ResultStatus.FAILED_RETRY),
        ({"status": "FAILED", "failure_class": "RETRYABLE"}, ResultStatus.FAILED_RETRY),
        ({"status": "FAILED", "failure_class": "retryable"}, ResultStatus.FAILED_RETRY),
        ({"status": "FAILED", "failure_class": "NON_RETRYABLE"}, ResultStatus.FAILED_FINAL),
        ({"status": "FAILED", "failure_class": "non-retryable"}, ResultStatus.FAILED_FINAL),
    ],
)
def test_every_way_to_say_how_a_step_ended(fields: dict[str, str], status: ResultStatus) -> None:
    assert result(**fields).status is status


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"error": {"code": "BAD", "message": "why"}}, Fault("BAD", "why")),
        ({"error_code": "BAD", "error_message": "why"}, Fault("BAD", "why")),
        ({"reason": "why"}, Fault("STEP_FAILED", "why")),
        ({}, Fault("STEP_FAILED", "")),
        ({"error": "not an object"}, Fault("STEP_FAILED", "")),
    ],
)
def test_every_way_to_say_why(fields: dict[str, Any], fault: Fault) -> None:
    assert result(status="FAILED", **fields).fault == fault
    assert result(status="SUCCEEDED", **fields).fault is None


def test_every_way_to_name_the_output() -> None:
    assert result(status="SUCCEEDED", output_ref={"uri": "s3://out"}).result_ref == {
        "uri": "s3://out"
    }
    assert result(status="SUCCEEDED", artifact_refs=["s3://out"]).result_ref == ["s3://out"]
    assert result(status="SUCCEEDED", output_ref="x", artifact_refs=["y"]).result_ref == "x"
    assert result(status="SUCCEEDED").result_ref is None


def test_an_ack_may_carry_a_status_and_names_its_worker() -> None:
    body = {**BOUND, "type": "ACK", "status": "ACKED", "worker_id": "w", "timestamp": "t"}
    assert parse_reply(body) == ("job", AckReceived(*LEASE, worker_id="w", timestamp="t"))


def test_heartbeat_and_release() -> None:
    assert parse_reply({**BOUND, "type": "HEARTBEAT"})[1] == HeartbeatReceived(*LEASE)
    assert parse_reply({**BOUND, "type": "RELEASE"})[1] == LeaseReturned(*LEASE)


def test_over_http_the_type_is_the_endpoint() -> None:
    assert parse_reply(BOUND, "ACK")[1] == AckReceived(*LEASE)
    with pytest.raises(RequestError) as refused:
        parse_reply({**BOUND, "type": "RESULT", "status": "SUCCEEDED"}, "ACK")
    assert refused.value.faults == (("/type", "must be ACK"),)


def test_every_bad_field_is_named() -> None:
    with pytest.raises(RequestError) as refused:
        parse_reply({"type": "RESULT", "attempt_no": True, "status": "DONE"})
    assert refused.value.code == "INVALID_CALLBACK"
    named = {pointer for pointer, _ in refused.value.faults}
    assert named == {"/jobId", "/stepId", "/lease_id", "/attempt_no", "/status"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "DIRECTIVE"),
        ("type", None),
        ("attempt_no", 0),
        ("attempt_no", "1"),
        ("attempt_no", 1.5),
        ("jobId", ""),
        ("lease_id", 7),
        ("stepId", "x" * 300),
    ],
)
def test_a_reply_that_is_not_bound_is_refused(field: str, value: Any) -> None:
    with pytest.raises(RequestError) as refused:
        parse_reply({**BOUND, "type": "ACK", field: value})
    assert any(pointer == f"/{field}" for pointer, _ in refused.value.faults)


def test_an_unknown_failure_class_is_refused() -> None:
    with pytest.raises(RequestError) as refused:
        result(status="FAILED", failure_class="MAYBE")
    assert refused.value.faults[0][0] == "/failure_class"


def test_long_strings_from_workers_are_cut_with_a_mark() -> None:
    fault = result(status="FAILED", reason="x" * 10_000).fault
    assert fault is not None
    assert len(fault.message) == MAX_STRING
    assert fault.message.endswith(CUT_MARK)


def test_a_reference_that_is_too_large_is_replaced_by_its_hash() -> None:
    reply = result(status="SUCCEEDED", output_ref={"uri": "x" * 10_000})
    assert set(reply.result_ref) == {"cut", "sha256"}


def test_a_reference_that_is_far_too_large_is_replaced_before_anyone_looks_through_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []

    def faults(value: Any, at: str) -> list[tuple[str, str]]:
        looks.append(at)
        return []

    monkeypatch.setattr(wire, "json_faults", faults)
    large: list[Any] = [
        [[]] * 50_000,
        ["https://h/?sig=x"] * 5_000,
        {"a" * 20_000: 1},
        "x" * 20_000,
    ]
    for ref in large:
        assert set(result(status="SUCCEEDED", output_ref=ref).result_ref) == {"cut", "sha256"}
    assert not looks
    result(status="SUCCEEDED", output_ref=["https://h/?sig=x"])
    assert looks == ["/output_ref"]


def test_a_long_reference_that_is_short_without_its_credentials_is_kept() -> None:
    ref = "https://h/a?sig=" + "x" * 10_000
    kept = result(status="SUCCEEDED", output_ref=ref).result_ref
    assert kept == {"uri": "https://h/a", "credentials_removed": True}


def test_what_is_too_large_and_no_json_is_refused_by_its_place() -> None:
    with pytest.raises(RequestError) as refused:
        result(status="SUCCEEDED", output_ref=["x" * 20_000, object()])
    assert refused.value.faults[0][0] == "/output_ref/1"


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.booleans()))
def test_whatever_arrives_is_understood_or_refused(body: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        parse_reply({"type": "RESULT", **body})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=8,
)


@given(JSON, st.integers(0, 50))
def test_what_is_said_to_be_longer_is_longer(value: Any, limit: int) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert not wire._longer_than(limit, value) or len(text) > limit


@given(JSON | st.dictionaries(st.text(), st.text(min_size=50), max_size=5))
def test_what_passes_for_a_plain_reference_has_no_fault_and_fits(ref: Any) -> None:
    if plain_ref(ref):
        assert not list(json_faults(ref))
        assert bounded_ref(ref) is ref


@pytest.mark.parametrize("ref", ["s3://a/b", {"uri": "s3://a/b"}, {}, {"uri": "\x01" * 290}])
def test_a_plain_reference_takes_the_short_way(ref: Any) -> None:
    assert plain_ref(ref)
    assert result(status="SUCCEEDED", output_ref=ref).result_ref == ref


# -- directives ------------------------------------------------------------------------------


def test_a_directive_carries_what_the_specification_lists() -> None:
    story = Story().sent()
    body = directive(story.job, *LEASE)
    assert body["type"] == "DIRECTIVE"
    assert {name: body[name] for name in BOUND} == BOUND
    for name in ("tenant_id", "protocol_id", "step_type", "input_ref", "workspace_ref"):
        assert body[name]
    routing = story.job.plan.routing
    assert (body["lane"], body["mode"]) == (routing.lane, "BURST")
    assert body["routing_key_used"] == routing.routing_key_used


def test_unknown_fields_of_the_envelope_are_passed_on_but_never_replace_known_ones() -> None:
    plan = replace(small_plan(0), extra={"priority": 7, "lease_id": "forged", "tenant_id": "other"})
    story = Story(plan).sent()
    body = directive(story.job, *LEASE)
    assert body["priority"] == 7
    assert body["lease_id"] == "a1"
    assert body["tenant_id"] == plan.tenant_id


def test_a_later_step_is_told_the_results_of_earlier_stages() -> None:
    story = Story(small_plan(0, 0, 1)).started("a").started("b")
    story.succeed("a", ref="of a")
    story.succeed("b", ref="of b")
    story.sent("c")
    body = directive(story.job, *story.lease("c"))
    assert body["previous"] == {"a": {"uri": "of a"}, "b": {"uri": "of b"}}
    assert body["final_step"] is True


def test_each_step_is_told_a_folder_of_its_own() -> None:
    kinds = ("OCR", "EMBEDDING", "OCR", "SIS")
    steps = tuple(StepPlan(f"s{n}", kind, "x", n) for n, kind in enumerate(kinds))
    assert output_folders(steps) == ("s0", "embedding", "s2", "sis")
    job = Story(small_plan(0, 1)).job
    assert directive(job, "b", 1, "b1")["output_folder"] == output_folders(job.plan.steps)[1]


def test_a_directive_says_how_many_redrives_led_to_it() -> None:
    plan = replace(small_plan(0), redrive_no=2)
    assert directive(Story(plan).job, "a", 1, "a1")["redrive_no"] == 2


def test_payloads_go_to_their_steps() -> None:
    plan = replace(small_plan(0, 1), payload={"steps": {"a": {"dpi": 300}}})
    assert plan.payload_of("a") == {"dpi": 300}
    assert plan.payload_of("b") == {}
    shared = replace(plan, payload={"language": "en"})
    assert shared.payload_of("a") == shared.payload_of("b") == {"language": "en"}
    single = replace(small_plan(0), payload={"language": "en"})
    assert single.payload_of("a") == {"language": "en"}


def test_the_properties_of_a_message_are_those_that_services_filter_on() -> None:
    story = Story().sent()
    properties = directive_properties(directive(story.job, *LEASE))
    assert set(properties) == {
        "type",
        "step_type",
        "service",
        "mode",
        "lane",
        "tenant_id",
        "jobId",
        "stepId",
        "attempt_no",
        "lease_id",
        "message_key",
    }
    assert message_id("job", *LEASE, "ACK") == "job:a:1:a1:ACK"


def test_a_pool_is_named_where_the_step_has_one_and_a_client_cannot_name_it() -> None:
    job = Story().sent().job
    mine = replace(job.plan, extra={"pool": "theirs"})
    assert "pool" not in directive(replace(job, plan=mine), *LEASE)
    steps = (replace(mine.steps[0], pool="gold"), *mine.steps[1:])
    body = directive(replace(job, plan=replace(mine, steps=steps)), *LEASE)
    assert (body["pool"], directive_properties(body)["pool"]) == ("gold", "gold")


def test_an_effect_key_is_that_of_the_root_job_and_of_what_is_done() -> None:
    key = effect_key("root", "a", "in", {"dpi": 300})
    assert key == effect_key("root", "a", "in", {"dpi": 300.0})
    assert key != effect_key("root", "a", "in", {"dpi": 301})
    assert key != effect_key("root", "b", "in", {"dpi": 300})


def test_a_message_id_fits_every_bus_and_stays_unique() -> None:
    """Service Bus takes 128 characters. Rows of the outbox are found by the job id in front."""
    job_id, lease = f"job_{'0' * 32}", "f" * 36
    made = {
        message_id(job_id, "s" * 63 + last, attempt, lease, kind)
        for last in "ab"
        for attempt in (1, 2)
        for kind in ("DIRECTIVE", "ACK", "HEARTBEAT:1", "HEARTBEAT:2")
    }
    assert len(made) == 16
    assert {len(each) for each in made} == {128}
    assert all(each.startswith(f"{job_id}:sss") for each in made)
    told, *_ = notice("LEASE_ENDED", (job_id, "s" * 64, 20, lease), ())
    again, *_ = notice("LEASE_ENDED", (job_id, "s" * 64, 20, lease), ())
    assert len(told) == len(again) == 128
    assert told != again
    assert len(message_id("j" * 256, "s" * 256, 10**300, "l" * 256, "ACK")) == 128


def test_references_of_a_directive_are_objects() -> None:
    """As the specification has them, whatever the client and the services before have given."""
    story = Story()
    plan = replace(story.job.plan, input_ref="s3://b/in", output_ref={"uri": "s3://b/o", "v": 1})
    body = directive(replace(story.sent().job, plan=plan), *LEASE)
    assert body["input_ref"] == {"uri": "s3://b/in"}
    assert body["output_ref"] == {"uri": "s3://b/o", "v": 1}
    assert body["workspace_ref"] == {"uri": plan.workspace_ref}


def test_a_directive_has_a_correlation_id_and_a_trace_though_the_client_gave_none() -> None:
    job = Story().sent().job
    bare = replace(job, plan=replace(job.plan, correlation_id=None, traceparent=None))
    first, again = directive(bare, *LEASE), directive(bare, *LEASE)
    assert first == again
    assert first["correlation_id"] == job.job_id
    assert is_traceparent(first["traceparent"])
    other = replace(bare, plan=replace(bare.plan, job_id="job_2"))
    assert directive(other, *LEASE)["traceparent"] != first["traceparent"]


@pytest.mark.parametrize("number", [0, -1, 2**31, 10**300, 1e300, True, "1", None])
def test_a_number_that_no_attempt_can_have_is_refused(number: Any) -> None:
    """A stale reply is recorded with its number: one beyond 64 bits made the job's events unreadable."""
    with pytest.raises(RequestError) as refused:
        parse_reply({**BOUND, "type": "ACK", "attempt_no": number})
    assert [at for at, _ in refused.value.faults] == ["/attempt_no"]
