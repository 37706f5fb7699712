"""No answer has a field that is not documented, and none lacks one that is."""

from pathlib import Path

import pytest

from lucius.contract.models.base import Model
from lucius.contract.models.jobs import EventView, ExecutionView, JobView, OutboxView, StepView
from lucius.http.app import ROUTES
from tests.api.conforming import Conforming
from tests.api.live import ENVELOPE, Live, live

READS = ("", "/steps", "/executions", "/events")
LISTS = (
    *("/v1/jobs", "/v1/admin/dlq", "/v1/admin/backlog", "/v1/admin/settings"),
    *("/v1/protocols", "/healthz", "/readyz"),
)
DOCUMENTED = {(route.method, route.path) for route in ROUTES if route.response_model is not None}


async def read_all(lucius: Live, job_id: str) -> None:
    for path in READS:
        await lucius.client.get(f"/v1/jobs/{job_id}{path}")
    for path in LISTS:
        assert (await lucius.client.get(path)).status_code == 200


async def answered(lucius: Live) -> None:
    """Every kind of reply, one by one and many at once."""
    (directive,) = await lucius.pull()
    for kind in ("ack", "heartbeat", "release"):
        assert (await lucius.reply(kind, directive, worker_id="w")).status_code == 200
    (again,) = await lucius.pull()
    bound = {name: again[name] for name in ("jobId", "stepId", "attempt_no", "lease_id")}
    batch = [{**bound, "type": kind, "callback_token": again["callback_token"]} for kind in
             ("ACK", "HEARTBEAT")]  # fmt: skip
    await lucius.post("/v1/services/ocr/replies", {"replies": [*batch, {"type": "ACK"}]})
    await lucius.answer(again, "FAILED_FINAL")


async def failures_of(lucius: Live) -> None:
    await lucius.failed("four")
    groups = (await lucius.client.get("/v1/failures")).json()["groups"]
    await lucius.client.get(f"/v1/failures/{groups[0]['group']}")
    plan = (await lucius.post("/v1/redrives", {"filter": {"code": "BROKEN"}})).json()["planId"]
    await lucius.client.get("/v1/redrives")
    await lucius.client.get(f"/v1/redrives/{plan}")
    await lucius.post(f"/v1/redrives/{plan}:stop")


async def test_every_operation_answers_in_its_shape_and_no_other(tmp_path: Path) -> None:
    conforming = Conforming()
    async with live(tmp_path, conforming=conforming) as lucius:
        job_id = await lucius.accepted("one", doc_id="d")
        await read_all(lucius, job_id)
        await answered(lucius)
        await read_all(lucius, job_id)
        await lucius.post(f"/v1/admin/dlq/{await lucius.failed('two')}:dismiss")
        await lucius.order(job_id, "redrive")
        other = await lucius.accepted("three", callback_urls=["https://hooks.invalid/h"])
        for verb in ("pause", "resume", "retry", "cancel"):
            await lucius.order(other, verb)
        for verb in ("pause", "resume", "retry", "cancel", "redrive", "dismiss"):
            await lucius.bulk(verb, {"tenant_id": ["tenant_a"]}, dry_run=True)
        await lucius.post("/v1/admin/outbox/retry")
        await lucius.client.get("/v1/admin/backlog/ocr")
        await lucius.client.get("/v1/services")
        await lucius.post("/v1/workers:drop", {"worker_id": "w"})
        await lucius.client.get("/v1/webhooks")
        await lucius.order(other, "cancel", immediate=True)
        await lucius.post(f"/v1/jobs/{other}/webhooks:resend")
        await lucius.client.get(f"/v1/jobs/{other}/why")
        await lucius.client.get("/v1/why")
        await lucius.post("/v1/services/ocr:pause")
        await lucius.post("/v1/services/ocr:resume")
        await failures_of(lucius)
        await lucius.client.post("/v1/commands", json=dict(ENVELOPE))
        await lucius.client.get("/v1/jobs/nobody")
    assert conforming.seen == DOCUMENTED


ROWS: dict[type[Model], str] = {
    JobView: "tenant_id request_type protocol_id mode doc_id state idempotency_key idempotency_hash"
    " current_step_id current_step_index attempts_total created_at updated_at completed_at"
    " error_code error_message correlation_id traceparent status final_output",
    StepView: "step_id step_index step_type service state status attempt_no lease_id lease_expires_at"
    " input_ref workspace_ref output_ref payload resolved_mode lane routing_key_used"
    " decision_source decision_reason result_ref last_error_code last_error_message created_at"
    " updated_at completed_at",
    OutboxView: "attempt_no lease_id state topic partition created_at sent_at",
    EventView: "event_type payload created_at",
    ExecutionView: "exec_id jobId lease_owner lease_expires_at status started_at finished_at",
}
"""The rows of the data model that LUCIUS follows. An outbox entry is shown within its step, whose own
fields it does not repeat."""


@pytest.mark.parametrize("model", ROWS, ids=lambda model: model.__name__)
def test_rows_have_the_names_of_the_data_model(model: type[Model]) -> None:
    assert set(ROWS[model].split()) <= set(model.model_fields)
