"""The models are the contract: described, with examples that fit, and true of what LUCIUS answers."""

import json
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

import lucius
from lucius.contract.models.base import View, example_of
from lucius.contract.models.commands import Command, SubmittedView, envelope_schema
from lucius.contract.models.control import CancelManyBody, DismissManyBody, RedriveBody
from lucius.contract.models.insight import PlanFilter, StartRedriveBody
from lucius.contract.models.jobs import (
    EventView,
    ExecutionsView,
    JobEndedWebhook,
    JobView,
    ListedJobView,
    OutboxView,
)
from lucius.contract.models.messages import AckMessage, PullBody, RepliesBody, ResultMessage
from lucius.contract.words import TERMINAL_JOB, EntryStatus, JobState, JobStatus, StepStatus
from lucius.core.effects import Event
from lucius.core.job import EntryState, StepState, entry_status, job_status, step_status
from lucius.core.wire import parse_reply
from lucius.http.routing import json_response
from lucius.http.views import event_view, executions_view, job_view
from lucius.operations.webhooks import ending
from tests.contract.fitting import every_model, misfits
from tests.core.explore.configurations import CONTROL
from tests.core.explore.walk import walk

MODELS = every_model()
named = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def whole_example(model: type[BaseModel]) -> Any:
    return example_of(model, *model.model_fields)


@named
def test_every_field_is_described_and_has_an_example(model: type[BaseModel]) -> None:
    lacking = [name for name, field in model.model_fields.items() if not field.description]
    assert not lacking
    assert model.__doc__
    assert whole_example(model).keys() == model.model_fields.keys()


@named
def test_examples_fit_the_model_and_its_schema(model: type[BaseModel]) -> None:
    schemas = [model.model_json_schema()]
    if issubclass(model, View):
        schemas.append(model.model_json_schema(mode="serialization"))
    least = example_of(model, *(["group"] if model is PlanFilter else []))
    for example in (least, whole_example(model)):
        assert misfits(json.dumps(example).encode(), model) == []
        for schema in schemas:
            found = jsonschema_rs.Draft202012Validator(schema).iter_errors(example)
            assert [error.message for error in found] == []


@named
def test_every_example_of_a_field_fits(model: type[BaseModel]) -> None:
    whole = whole_example(model)
    for name, field in model.model_fields.items():
        for example in field.examples or ():
            assert misfits(json.dumps({**whole, name: example}).encode(), model) == [], name


# -- what LUCIUS answers ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def jobs() -> Any:
    return walk(CONTROL).rules.jobs


def test_jobs_in_all_states_fit_their_models(jobs: Any) -> None:
    """Of every job of a small world that is explored to its end."""
    seen = set()
    for job in jobs:
        seen.add(job.state)
        assert misfits(orjson.dumps(job_view(job)), JobView) == []
        assert misfits(orjson.dumps(job_view(job, steps=False)), ListedJobView) == []
        assert misfits(bytes(json_response(executions_view(job)).body), ExecutionsView) == []
    assert seen == set(JobState) - {JobState.QUEUED}  # before its first directive: the API tests


def test_what_webhooks_are_told_fits_its_model(jobs: Any) -> None:
    ended = [job for job in jobs if job.terminal]
    assert {job.state for job in ended} == set(TERMINAL_JOB)
    for job in ended:
        assert misfits(orjson.dumps(ending(job)), JobEndedWebhook) == []


def test_an_answer_is_read_as_words_and_moments(jobs: Any) -> None:
    job = JobView.model_validate_json(orjson.dumps(job_view(jobs[-1])))
    assert isinstance(job.state, JobState)
    assert job.created_at == jobs[-1].plan.accepted_at
    assert isinstance(job.steps[0].state, StepState)


def test_an_older_client_reads_what_a_newer_server_says() -> None:
    answer = {"jobId": "job_1", "state": "HIBERNATING", "duplicate": False, "since": 3}
    read = SubmittedView.model_validate_json(json.dumps(answer))
    assert read.state == "HIBERNATING"
    assert read.model_extra == {"since": 3}
    assert json.loads(read.model_dump_json(exclude_unset=True)) == answer


def test_the_coarser_words_are_those_of_the_core() -> None:
    spoken: list[tuple[type[StrEnum], set[str]]] = [
        (JobStatus, set(map(job_status, JobState))),
        (StepStatus, set(map(step_status, StepState))),
        (EntryStatus, set(map(entry_status, EntryState))),
    ]
    for words, said in spoken:
        assert set(words) == said


def test_an_event_keeps_its_instant_to_the_byte(jobs: Any) -> None:
    event = Event(1, "submitted", jobs[0].plan.accepted_at, moves=("job QUEUED->DISPATCHING",))
    assert misfits(orjson.dumps(event_view("job_1", event)), EventView) == []


# -- what callers send -----------------------------------------------------------------------

REPLY = {"jobId": "job_1", "stepId": "ocr", "attempt_no": 1, "lease_id": "l"}
COMMAND = example_of(Command)


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (PullBody, {"max": "1"}),
        (PullBody, {"max": True}),
        (PullBody, {"max": 1.5}),
        (PullBody, {"wait_seconds": True}),
        (PullBody, {"wait_seconds": float("nan")}),
        (PullBody, {"version": {}}),
        (RedriveBody, {"payload": []}),
        (RedriveBody, {"reason": "x" * 501}),
        (CancelManyBody, {"filter": {"tenant_id": None}}),
        (CancelManyBody, {"filter": {"tenant_id": []}}),
        (CancelManyBody, {"filter": {"state": "SUCCEEDED"}}),
        (CancelManyBody, {"filter": {"tenant": "acme"}}),
        (CancelManyBody, {"filter": {"created_to": "soon"}}),
        (CancelManyBody, {"filter": {}, "immediate": None}),
        (DismissManyBody, {"filter": {"live": True}}),
        (StartRedriveBody, {"filter": {"live": False}}),
        (StartRedriveBody, {"filter": {"group": "g"}, "stop_after": "101%"}),
        (AckMessage, {**REPLY, "attempt_no": 0}),
        (AckMessage, {**REPLY, "type": "RESULT"}),
        (ResultMessage, REPLY),
        (RepliesBody, {"replies": [{}] * 257}),
        (Command, {**COMMAND, "payload": None}),
        (Command, {**COMMAND, "input_ref": "no URI"}),
        (Command, {**COMMAND, "traceparent": "00-0-0-0"}),
    ],
)
def test_what_is_no_such_body_is_refused(model: type[BaseModel], body: Any) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(body)


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (PullBody, {"max": 2.0, "wait_seconds": 3, "slots": None, "more": 1}),
        (CancelManyBody, {"filter": {"state": ["queued"], "created_to": "2026-01-27"}}),
        (StartRedriveBody, {"filter": {"group": "g"}, "stop_after": 25}),
        (AckMessage, {**REPLY, "type": "ack", "worker_id": None}),
        (ResultMessage, {**REPLY, "status": "failed", "failure_class": "non-retryable"}),
        (RepliesBody, {"replies": [REPLY, 7, None]}),
        (Command, {**COMMAND, "mode": "burst", "doc_id": None, "own": [1]}),
    ],
)
def test_what_is_such_a_body_is_taken(model: type[BaseModel], body: Any) -> None:
    assert model.model_validate(body).model_dump(exclude_unset=True).keys() == body.keys()


def test_a_reply_in_its_published_form_is_one_for_the_core() -> None:
    for name in ("AckMessage", "ResultMessage", "HeartbeatMessage", "ReleaseMessage"):
        job_id, _ = parse_reply(whole_example(MODELS[name]))
        assert job_id.startswith("job_")


def test_the_envelope_is_published_as_it_is_checked() -> None:
    validator = jsonschema_rs.Draft202012Validator(envelope_schema())
    values: list[Any] = [
        None,
        1,
        True,
        "",
        " ",
        "x",
        "s3://a",
        "x" * 257,
        {},
        [],
        {"uri": "s3://a"},
    ]
    for name in Command.model_fields:
        for value in (*values, "safe", "v1", ["https://a.example"], ["u"] * 9, {"uri": 1}):
            command = {**COMMAND, name: value}
            found: list[Any] = []
            try:
                Command.model_validate(command)
            except ValidationError as error:
                found = error.errors()
            assert validator.is_valid(command) == (not found), command


# -- what importing it costs -----------------------------------------------------------------


def modules_after(statement: str) -> list[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    path = str(Path(lucius.__path__[0]).parent)
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("module", ["words", "codes", "causes"])
def test_the_words_of_the_contract_need_no_package(module: str) -> None:
    """The core is built on them, and needs the standard library alone."""
    assert "pydantic" not in modules_after(f"import lucius.contract.{module}")


def test_a_model_is_built_when_it_is_first_used() -> None:
    code = (
        "from lucius.contract.models import jobs;"
        "print(jobs.JobView.__pydantic_complete__, jobs.OutboxView.__pydantic_complete__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    assert OutboxView.model_validate(example_of(OutboxView)).held is False


def test_a_schema_says_null_only_where_null_is_taken() -> None:
    schema = TypeAdapter(PullBody).json_schema()
    assert schema["properties"]["slots"]["type"] == ["integer", "null"]
    assert "default" not in schema["properties"]["slots"]
    assert "null" not in json.dumps(CancelManyBody.model_json_schema()["$defs"]["CancelFilter"])
