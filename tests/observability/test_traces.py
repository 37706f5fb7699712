"""One trace from the client through directive, execution and reply, seen in the exported spans."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lucius.platform import Task
from lucius.ports.bus import IN_MEMORY, Delivery, Message
from lucius.system.spans import executing
from tests.observability.served import called, ended, serving, submitted, trace_of, way_up
from tests.observability.world import Scripted
from tests.security.hostile import CLEAR, assert_harmless

TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = f"00-{TRACE}-{CLIENT}-01"
SUBMIT = "POST /v1/orchestrate"


def delivery_of(body: dict[str, Any], message_id: str = "m") -> Delivery:
    return Delivery(Message(message_id, body), "global-bus-p0", "ocr", "lock", 1)


async def test_a_trace_goes_on_from_the_client_to_the_directive_to_the_reply(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    seen: list[str] = []

    async def note(task: Task) -> None:
        context = trace.get_current_span().get_span_context()
        seen.append(f"{context.trace_id:032x}")

    async with serving(tmp_path, [Scripted(note)]) as (_, client):
        job = await ended(client, await submitted(client, traceparent=GIVEN))
    found = spans.get_finished_spans()
    ours = [span for span in found if span.name != "GET /v1/jobs/{jobId}"]
    assert {trace_of(span) for span in ours} == {TRACE}
    up = [SUBMIT, CLIENT]
    assert way_up(found, SUBMIT) == up
    assert job["traceparent"].startswith(f"00-{TRACE}-")
    assert way_up(found, "publish DIRECTIVE") == ["publish DIRECTIVE", *up]
    executed = ["execute DIRECTIVE", "publish DIRECTIVE", *up]
    assert way_up(found, "execute DIRECTIVE") == executed
    assert way_up(found, "apply ACK") == ["apply ACK", "publish ACK", *executed]
    assert way_up(found, "apply RESULT") == ["apply RESULT", "publish RESULT", *executed]
    assert seen == [TRACE], "a service's own spans hang below the execution"


def test_no_text_of_a_message_is_exported_raw_or_with_its_secrets(
    spans: InMemorySpanExporter,
) -> None:
    names = ("jobId", "stepId", "step_type", "tenant_id", "lease_id", "correlation_id")
    body = dict.fromkeys((*names, "type"), f"{CLEAR} password=hunter2")
    with executing(delivery_of(body, f"{CLEAR} password=hunter2"), IN_MEMORY) as span:
        span.failed(CLEAR)
    (found,) = spans.get_finished_spans()
    said = (
        found.name,
        found.status.description or "",
        *map(str, (found.attributes or {}).values()),
    )
    assert len(said) > 2 + len(names)
    assert_harmless("\n".join(said))
    assert "hunter2" not in "".join(map(str, (found.attributes or {}).values()))


async def test_spans_carry_the_ids_of_the_attempt_and_nothing_of_its_content(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    async with serving(tmp_path, [Scripted()]) as (_, client):
        job_id = await submitted(client, correlation_id="corr-1", payload={"language": "zz-9"})
        await ended(client, job_id)
    span = next(s for s in spans.get_finished_spans() if called(s) == "execute DIRECTIVE")
    about = dict(span.attributes or {})
    assert (about["lucius.job_id"], about["lucius.step_id"]) == (job_id, "ocr")
    assert (about["lucius.attempt_no"], about["lucius.correlation_id"]) == (1, "corr-1")
    everything = "".join(each.to_json() for each in spans.get_finished_spans())
    assert "zz-9" not in everything
    assert "callback_token" not in everything


async def pulled(client: Any) -> dict[str, Any]:
    path, body = "/v1/services/ocr/directives:pull", {"max": 1, "wait_seconds": 5}
    directive: dict[str, Any] = (await client.post(path, json=body)).json()["directives"][0]
    return directive


def answer_to(directive: dict[str, Any], **more: Any) -> dict[str, Any]:
    names = ("jobId", "stepId", "attempt_no", "lease_id")
    return {name: directive[name] for name in names} | more


async def test_replies_over_http_join_the_trace_they_name_or_that_of_their_job(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    async with serving(tmp_path) as (_, client):
        await submitted(client, traceparent=GIVEN)
        directive = await pulled(client)
        token = {"authorization": f"Bearer {directive['callback_token']}"}
        urls, worker = directive["callback_urls"], f"00-{TRACE}-{'7' * 16}-01"
        await client.post(urls["ack"], json=answer_to(directive), headers=token)
        result = answer_to(directive, status="SUCCEEDED", traceparent=worker)
        await client.post(urls["result"], json=result, headers=token)
    found = spans.get_finished_spans()
    ack = ["apply ack", "POST /v1/callbacks/ack", SUBMIT, CLIENT]
    assert way_up(found, "apply ack") == ack
    result_up = ["apply success", "POST /v1/callbacks/result", "7" * 16]
    assert way_up(found, "apply success") == result_up


STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({}, {"tracestate": STATE}),
        ({"tracestate": STATE}, {}),
        ({"tracestate": STATE, "traceparent": "garbage"}, {}),
        ({"tracestate": STATE}, {"traceparent": GIVEN}),
        ({}, {"traceparent": GIVEN, "tracestate": "garbage"}),
        ({}, {"traceparent": GIVEN, "tracestate": 7}),
    ],
    ids=["alone", "a header alone", "of no parent", "of another parent", "malformed", "no text"],
)
@pytest.mark.parametrize("tracing", [False, True])
async def test_a_tracestate_without_its_parent_or_without_sense_is_dropped(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    headers: dict[str, str],
    fields: dict[str, Any],
    tracing: bool,
) -> None:
    if tracing:
        request.getfixturevalue("spans")
    async with serving(tmp_path) as (_, client):
        await submitted(client, headers=headers, **fields)
        assert "tracestate" not in await pulled(client)
