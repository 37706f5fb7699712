"""Callback tokens through the whole of it: bound to one attempt, needed over HTTP, rotated without loss."""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import yaml

from lucius.core.routing import reply_topic
from lucius.engine.replies import REPLIES
from lucius.ports.bus import Message
from tests.api.live import BOUND, Live, live
from tests.bus_looks import dead_letters
from tests.services.stage import packaged


def key(name: str) -> str:
    return f"{name}:{token_hex(16)}"


async def given_out(lucius: Live, **changes: Any) -> dict[str, Any]:
    await lucius.accepted(**changes)
    (directive,) = await lucius.pull()
    return directive


async def refused(lucius: Live, directive: Mapping[str, Any], token: str) -> bool:
    """Whether no callback takes the token for this attempt."""
    answers = [
        await lucius.reply(kind, {**directive, "callback_token": token}, status="SUCCEEDED")
        for kind in ("ack", "result", "heartbeat", "release")
    ]
    return {answer.json().get("code") for answer in answers} == {"CALLBACK_TOKEN_INVALID"}


async def test_a_token_of_another_job_step_or_tenant_is_refused(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        mine = await given_out(lucius)
        theirs = await given_out(lucius, tenant_id="tenant_b")
        before = await lucius.job(mine["jobId"])
        assert await refused(lucius, mine, theirs["callback_token"])
        assert await refused(lucius, theirs, mine["callback_token"])
        for changed in ({"stepId": "sis"}, {"attempt_no": 2}, {"lease_id": "other"}):
            assert await refused(lucius, {**mine, **changed}, mine["callback_token"])
        assert await lucius.job(mine["jobId"]) == before
        await lucius.answer(mine)


async def test_a_token_is_worth_nothing_with_another_tenants_name_in_it(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        mine = await given_out(lucius)
        key_id, _, mac = mine["callback_token"].split(".")
        name = urlsafe_b64encode(b"tenant_b").rstrip(b"=").decode()
        assert await refused(lucius, mine, f"{key_id}.{name}.{mac}")
        answer = await lucius.reply("ack", mine, tenant_id="tenant_b")
        assert answer.json()["code"] == "CALLBACK_TOKEN_INVALID"


async def test_a_token_of_the_last_attempt_moves_nothing(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        first = await given_out(lucius)
        await lucius.reply("release", first)
        (second,) = await lucius.pull()
        assert await refused(lucius, second, first["callback_token"])
        stale = await lucius.reply("result", first, status="SUCCEEDED")
        assert (stale.status_code, stale.json()["code"]) == (409, "STALE_ATTEMPT")
        await lucius.answer(second)


@pytest.mark.parametrize("auth", ["none", "keys"])
async def test_http_callbacks_need_a_token_whatever_the_authentication(
    tmp_path: Path, auth: str
) -> None:
    bound = {"jobId": "job_x", "stepId": "ocr", "attempt_no": 1, "lease_id": "l"}
    async with live(tmp_path, auth=auth) as lucius:
        for kind in ("ack", "result", "heartbeat", "release"):
            body = {**bound, "status": "SUCCEEDED"}
            answer = await lucius.post(f"/v1/callbacks/{kind}", body)
            assert (answer.status_code, answer.json()["code"]) == (401, "CALLBACK_TOKEN_REQUIRED")


async def test_keys_are_rotated_while_work_is_out(tmp_path: Path) -> None:
    old, new = key("old"), key("new")
    async with live(tmp_path, callback_keys=old) as lucius:
        first = await given_out(lucius)
        await lucius.reply("ack", first)
    async with live(tmp_path, callback_keys=f"{old},{new}") as lucius:
        await lucius.answer(first)
        second = await given_out(lucius, doc_id="2", payload={"language": "de"})
        assert (first["callback_token"][:4], second["callback_token"][:4]) == ("old.", "new.")
        await lucius.reply("ack", second)
    async with live(tmp_path, callback_keys=new) as lucius:
        assert await refused(lucius, first, first["callback_token"])
        await lucius.answer(second)


# -- over the bus ----------------------------------------------------------------------------------


async def sent(lucius: Live, directive: Mapping[str, Any], **fields: Any) -> None:
    body = {name: directive[name] for name in BOUND} | {"type": "ACK"} | fields
    message = Message(f"reply-{token_hex(4)}", body, {"type": "ACK"})
    await lucius.runtime.bus.publish(directive["reply_topic"], (message,))


async def set_aside(lucius: Live, directive: Mapping[str, Any], **fields: Any) -> list[str]:
    """Why a reply was set aside, once it has been."""
    bus, happened = lucius.runtime.bus, asyncio.Event()
    dead_letter = bus.dead_letter

    async def noted(*given: Any) -> None:
        await dead_letter(*given)
        happened.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bus, "dead_letter", noted)
        await sent(lucius, directive, **fields)
        await happened.wait()
    letters = await dead_letters(bus, REPLIES, [reply_topic(directive["lane"])])
    return [letter.reason for letter in letters]


async def state_after(lucius: Live, job_id: str, version: int) -> str:
    job = await lucius.runtime.engine.wait(job_id, version, 10)
    assert job is not None
    return job.state.value


def unmoved(job: Mapping[str, Any]) -> dict[str, Any]:
    """All of a job but what the record of a refused reply changes."""
    return {name: value for name, value in job.items() if name not in ("version", "updated_at")}


async def refusals(lucius: Live, job_id: str) -> list[dict[str, Any]]:
    events = (await lucius.client.get(f"/v1/jobs/{job_id}/events")).json()["events"]
    said = [{"event_type": event["event_type"], **(event["payload"] or {})} for event in events]
    return [each for each in said if each.get("outcome") == "refused"]


async def test_a_bus_reply_without_token_is_set_aside_where_one_is_needed(tmp_path: Path) -> None:
    async with live(tmp_path, require_reply_token="true") as lucius:
        directive = await given_out(lucius)
        job_id = directive["jobId"]
        before = await lucius.job(job_id)
        assert await set_aside(lucius, directive) == ["BAD_TOKEN"]
        after = await lucius.job(job_id)
        assert unmoved(after) == unmoved(before)
        (refusal,) = await refusals(lucius, job_id)
        assert (refusal["event_type"], refusal["fault"]) == ("ack", "BAD_TOKEN")
        assert refusal["message"] == "the reply carries no callback token"
        await sent(lucius, directive, callback_token=directive["callback_token"])
        assert await state_after(lucius, job_id, after["version"]) == "IN_PROGRESS"


async def test_a_worker_whose_replies_are_refused_is_not_said_to_be_absent(tmp_path: Path) -> None:
    """`why` and `services` name the token, not NO_WORKER_EVER; also for a job that has failed by it."""
    file = tmp_path / "protocols.yaml"
    retries = {"max_attempts": 1, "ack_timeout_seconds": 1}
    steps = [{"type": "OCR", **retries}]
    content = {
        "step_types": {"OCR": {"service": "ocr"}},
        "protocols": [{"request_type": "OCR", "protocol_id": "ocr_v1", "steps": steps}],
    }
    file.write_text(yaml.safe_dump(content))
    given: dict[str, Any] = {"require_reply_token": "true", "protocols": str(file)}
    async with live(tmp_path / "data", **given) as lucius:
        job_id = await lucius.accepted()
        job = await lucius.runtime.engine.job(job_id)
        assert job is not None
        run = job.steps[0].execution
        assert run is not None
        routing = job.plan.routing
        bound = {"jobId": job_id, "stepId": "ocr", "attempt_no": 1, "lease_id": run.exec_id}
        directive = {**bound, "lane": routing.lane, "reply_topic": routing.reply_topic}
        assert await set_aside(lucius, directive) == ["BAD_TOKEN"]
        (service,) = (await lucius.client.get("/v1/services")).json()["services"]
        assert service["refused_at"] is not None
        assert service["last_seen"] is None
        assert (await why(lucius, job_id))["cause"] == "BAD_TOKEN"
        await lucius.client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": 20})
        found = await why(lucius, job_id)
        assert ((await lucius.job(job_id))["error_code"], found["cause"]) == (
            "ACK_TIMEOUT",
            "BAD_TOKEN",
        )


async def why(lucius: Live, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = (await lucius.client.get(f"/v1/jobs/{job_id}/why")).json()
    return found


async def test_a_stale_reply_with_a_bad_token_is_recorded_too(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        first = await given_out(lucius)
        await lucius.reply("release", first)
        (second,) = await lucius.pull()
        fields = {"type": "RESULT", "status": "SUCCEEDED", "callback_token": "x"}
        assert await set_aside(lucius, first, **fields) == ["BAD_TOKEN"]
        (refusal,) = await refusals(lucius, first["jobId"])
        assert (refusal["event_type"], refusal["fault"]) == ("success", "BAD_TOKEN")
        await lucius.answer(second)


async def test_a_flood_of_refused_replies_stops_being_recorded(tmp_path: Path) -> None:
    async with live(tmp_path, require_reply_token="true") as lucius:
        directive = await given_out(lucius)
        for number in range(25):
            letters = await set_aside(lucius, directive)
            assert len(letters) == number + 1
        assert len(await refusals(lucius, directive["jobId"])) == 20
        await lucius.answer(directive)


async def test_a_bus_reply_without_token_counts_where_none_is_needed(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        directive = await given_out(lucius)
        version = (await lucius.job(directive["jobId"]))["version"]
        await sent(lucius, directive)
        assert await state_after(lucius, directive["jobId"], version) == "IN_PROGRESS"


@pytest.mark.parametrize("token", ["", "x", 7, {"a": 1}])
async def test_a_bus_reply_with_a_bad_token_never_counts(tmp_path: Path, token: Any) -> None:
    async with live(tmp_path) as lucius:
        directive = await given_out(lucius)
        before = await lucius.job(directive["jobId"])
        assert await set_aside(lucius, directive, callback_token=token) == ["BAD_TOKEN"]
        assert unmoved(await lucius.job(directive["jobId"])) == unmoved(before)


@pytest.mark.parametrize("tenant", ["tenant_b", "", 7, {"a": 1}], ids=str)
async def test_a_bus_reply_for_another_tenant_is_set_aside(tmp_path: Path, tenant: Any) -> None:
    async with live(tmp_path) as lucius:
        directive = await given_out(lucius)
        before = await lucius.job(directive["jobId"])
        token = directive["callback_token"]
        fields = {"tenant_id": tenant, "callback_token": token}
        assert await set_aside(lucius, directive, **fields) == ["WRONG_TENANT"]
        assert await lucius.job(directive["jobId"]) == before
        refused = await lucius.reply("ack", directive, tenant_id=tenant)
        typed = isinstance(tenant, str)
        expected = (401, "CALLBACK_TOKEN_INVALID") if typed else (422, "INVALID_CALLBACK")
        assert (refused.status_code, refused.json()["code"]) == expected
        await sent(lucius, directive, tenant_id=directive["tenant_id"])
        assert await state_after(lucius, directive["jobId"], before["version"]) == "IN_PROGRESS"


async def test_a_reply_for_another_deployment_on_the_same_bus_is_set_aside_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    """Two deployments that share a namespace by mistake: neither takes the other's replies for its own."""
    async with live(tmp_path / "one", callback_keys=key("k1")) as other:
        foreign = await given_out(other)
    async with live(tmp_path / "two", callback_keys=key("k1")) as lucius:
        token = foreign["callback_token"]
        assert await set_aside(lucius, foreign, callback_token=token) == ["BAD_TOKEN"]
        await lucius.answer(await given_out(lucius))


async def test_the_kit_sends_its_tokens(tmp_path: Path) -> None:
    services = packaged()
    async with live(tmp_path, services=services, require_reply_token="true") as lucius:
        job_id = await lucius.accepted()
        job = await lucius.client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": 20})
        events = (await lucius.client.get(f"/v1/jobs/{job_id}/events")).json()["events"]
    assert job.json()["error_code"] == "REFERENCE_REFUSED"
    assert {"ack", "failure_final"} <= {event["event_type"] for event in events}
