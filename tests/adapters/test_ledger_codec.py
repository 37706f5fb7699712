"""The stored form: what is written is read back, defaults cost nothing, and the future is kept."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.adapters.ledgers.stored.job_codec import (
    SCHEMA,
    decode_events,
    decode_job,
    encode_events,
    encode_job,
)
from lucius.adapters.ledgers.stored.json_form import instant, micros, pack
from lucius.adapters.ledgers.stored.plan_codec import decode_plan, encode_plan
from lucius.core.decide import decide
from lucius.core.errors import LedgerCorruptError, LedgerTooNewError
from lucius.core.plan import Carried, RetryPolicy, Sla, StepPlan
from lucius.core.record import Packed
from tests.conformance.jobs import at, life_of, make, plan_of
from tests.conformance.ledger_scripts import ACTIONS, WORLDS, input_of

SCRIPTS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(1, 2000)), max_size=30)


@given(world=st.sampled_from(WORLDS), script=SCRIPTS)
def test_any_job_that_can_be_decided_is_read_as_it_was_written(world: Any, script: Any) -> None:
    job, clock = world.job, 0.0
    for action, seconds in script:
        clock += seconds / 10
        received = input_of(job, action, seconds)
        if received is None:
            continue
        decision = decide(job, received, at(clock))
        job = decision.job
        assert decode_job(job.plan, encode_job(job)) == job
        assert tuple(decode_events(encode_events(decision.events))) == decision.events


def test_a_three_step_job_is_small() -> None:
    sizes = [len(encode_job(d.job)) for d in life_of(make(1, released=True).job)]
    assert max(sizes) < 1400
    assert sum(sizes) / len(sizes) < 1000


def test_a_plan_is_read_as_it_was_written() -> None:
    policy = RetryPolicy(5, timedelta(seconds=0.5), timedelta(hours=1), (timedelta(1),))
    plan = plan_of(
        1,
        steps=(
            StepPlan("ocr", "OCR", "ocr", 0, policy),
            StepPlan("sis", "SIS", "sis", 1, pool="gold"),
        ),
        sla=Sla(timedelta(minutes=5), fail_job=True),
        callback_urls=("https://client.example/a", "https://client.example/b"),
        carried={"ocr": Carried({"uri": "s3://x"}, "earlier")},
        redrive_of="earlier",
        redrive_no=3,
        root_job_id="earliest",
        extra={"priority": 1},
        payload={},
        input_ref=None,
    )
    assert decode_plan(encode_plan(plan)) == plan


def test_fields_of_a_plan_that_are_not_known_do_not_disturb() -> None:
    plan = plan_of(1)
    newer = orjson.loads(encode_plan(plan)) | {"colour": "blue"}
    assert decode_plan(orjson.dumps(newer)) == plan


def test_fields_of_an_event_that_are_not_known_are_copied_with_it() -> None:
    newer = [orjson.loads(encode_events([event]))[0] for event in make(1, released=True).events]
    for doc in newer:
        doc["colour"] = {"name": "blue"}
    copied = orjson.loads(encode_events(decode_events(orjson.dumps(newer))))
    assert copied == newer


def test_a_document_says_its_schema_and_omits_defaults() -> None:
    doc = orjson.loads(encode_job(make(1).job))
    assert doc["schema"] == SCHEMA
    assert None not in doc.values()
    assert not doc.keys() & {"noted", "owed", "fault", "paused", "output"}


def test_leases_given_back_and_deaths_are_stored_with_their_step_once_there_are_any() -> None:
    job = make(1).job
    assert not {"returns", "deaths"} & orjson.loads(encode_job(job))["steps"][0].keys()
    counted = replace(job, steps=(replace(job.steps[0], returns=2, deaths=1), *job.steps[1:]))
    step = decode_job(job.plan, encode_job(counted)).steps[0]
    assert (step.returns, step.deaths, step.extra) == (2, 1, None)


def test_a_newer_schema_is_refused() -> None:
    job = make(1).job
    doc = orjson.loads(encode_job(job)) | {"schema": SCHEMA + 1}
    with pytest.raises(LedgerTooNewError, match=str(SCHEMA + 1)):
        decode_job(job.plan, orjson.dumps(doc))


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"\xff", b'{"schema":1}', b'{"schema":"x"}'])
def test_what_is_not_a_job_is_corrupt(raw: bytes) -> None:
    with pytest.raises(LedgerCorruptError):
        decode_job(make(1).job.plan, raw)


@pytest.mark.parametrize("raw", [b"7", b"[1]", b'[{"seq":1}]'])
def test_what_is_not_events_is_corrupt(raw: bytes) -> None:
    with pytest.raises(LedgerCorruptError):
        decode_events(raw)


@given(st.datetimes(timezones=st.just(UTC)))
def test_instants_are_exact_to_the_microsecond(moment: datetime) -> None:
    assert instant(micros(moment)) == moment


def test_the_same_instant_elsewhere_is_the_same_number() -> None:
    east = timezone(timedelta(hours=9))
    assert micros(at(1).astimezone(east)) == micros(at(1))


def test_huge_numbers_survive() -> None:
    job = make(1, released=True).job
    ended = replace(job, final_output={"n": 2**90})
    assert decode_job(job.plan, encode_job(ended)).final_output == {"n": 2**90}


@pytest.mark.parametrize("number", [1, 2**70], ids=["plain", "beyond 64 bits"])
def test_a_packed_payload_is_stored_as_the_object_that_it_is(number: int) -> None:
    payload = {"steps": {"ocr": {"n": number, "none": None, "half": 0.5}}}
    packed = plan_of(1, payload=pack(payload))
    assert encode_plan(packed) == encode_plan(plan_of(1, payload=payload))
    read = decode_plan(encode_plan(packed))
    assert isinstance(read.payload, Packed)
    assert read.payload == payload
    assert read.payload_of("ocr") == payload["steps"]["ocr"]
