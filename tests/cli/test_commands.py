"""The command line over a running server: what it prints, and how it exits."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from lucius.core.inputs import ResultReceived, ResultStatus
from lucius.core.job import Fault
from lucius.ports.ledger import JobPage, JobQuery
from tests.cli.conftest import Shell
from tests.cli.server import Server

SUBMIT = ("submit", "--type", "OCR->EMBEDDING", "--input", "s3://b/in.pdf")


async def finish(server: Server, job_id: str, status: ResultStatus) -> None:
    """Answer whatever is out until the job has ended."""
    world = server.world
    while not world.jobs[job_id].terminal:
        reply = await world.out(job_id)
        bound = (reply["stepId"], reply["attempt_no"], reply["lease_id"])
        fault = Fault("MODEL_GONE", "no such model")
        await world.apply(job_id, ResultReceived(*bound, status, f"s3://b/{bound[0]}", fault))


async def work(server: Server, status: ResultStatus) -> None:
    world = server.world
    await world.until(lambda: "job_0" in world.jobs)
    await finish(server, "job_0", status)


def failed_job(server: Server, shell: Shell) -> str:
    job_id: str = shell.json(*SUBMIT)["jobId"]
    server.do(finish(server, job_id, ResultStatus.FAILED_FINAL))
    return job_id


def test_submit_prints_the_id_and_finds_it_again(shell: Shell) -> None:
    first, again = shell.run(*SUBMIT), shell.run(*SUBMIT)
    assert (first.exit_code, first.stdout) == (0, "job_0\n")
    assert again.stdout == "job_0 (the same command as before)\n"
    assert shell.json(*SUBMIT, "--key", "k")["jobId"] == "job_1"


def test_submit_takes_files_and_payloads(server: Server, shell: Shell, tmp_path: Path) -> None:
    document, payload = tmp_path / "in put.pdf", tmp_path / "payload.json"
    document.write_text("x")
    payload.write_text('{"language": "de"}')
    args = ("submit", "--type", "OCR→EMBEDDING", "--tenant", "t", "--correlation-id", "c-1")
    shell.json(*args, "--input", str(document), "--payload", f"@{payload}")
    plan = server.world.jobs["job_0"].plan
    assert plan.input_ref == document.as_uri()
    assert plan.output_ref == document.as_uri() + ".job_0.result.json"
    assert (plan.payload, plan.tenant_id, plan.correlation_id) == ({"language": "de"}, "t", "c-1")


def test_an_output_may_carry_the_job_and_replace_what_is_there(
    server: Server, shell: Shell, tmp_path: Path
) -> None:
    shell.run(*SUBMIT, "--output", f"{tmp_path}/a b.{{jobId}}.json", "--overwrite")
    plan = server.world.jobs["job_0"].plan
    assert plan.output_ref == f"{tmp_path.as_uri()}/a%20b.job_0.json"
    assert plan.extra["overwrite"] is True


@pytest.mark.parametrize("payload", ["{", "[]", "@/nowhere.json"])
def test_a_bad_payload_is_wrong_usage(shell: Shell, payload: str) -> None:
    result = shell.run(*SUBMIT, "--payload", payload)
    assert result.exit_code == 2
    assert "--payload" in result.stderr


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (ResultStatus.SUCCEEDED, 0, "job_0 succeeded: s3://b/embedding"),
        (ResultStatus.FAILED_FINAL, 1, "job_0 FAILED_FINAL: step ocr failed for good"),
    ],
)
def test_submit_and_wait_exits_with_the_outcome(
    server: Server, shell: Shell, status: ResultStatus, code: int, said: str
) -> None:
    worker = asyncio.run_coroutine_threadsafe(work(server, status), server.loop)
    result = shell.run(*SUBMIT, "--wait")
    worker.result(10)
    assert (result.exit_code, said in result.output) == (code, True)
    assert "step ocr AWAITING_ACK->IN_PROGRESS->" in result.output


def test_watch_shows_the_history_and_exits_with_the_outcome(server: Server, shell: Shell) -> None:
    job_id = failed_job(server, shell)
    result = shell.run("job", "watch", job_id)
    assert result.exit_code == 1
    assert "MODEL_GONE" in result.output
    result = shell.run("job", "watch", job_id, "--json")
    assert (result.exit_code, json.loads(result.stdout)["state"]) == (1, "FAILED_FINAL")


def test_show_says_why_a_job_is_where_it_is(shell: Shell) -> None:
    shell.run(*SUBMIT)
    result = shell.run("job", "show", "job_0")
    assert (
        "waits for its turn with ocr-service; `lucius why job_0` says its place in line"
        in result.stdout
    )
    assert "embedding-service" in result.stdout
    assert shell.json("job", "show", "job_0")["steps"][0]["step_id"] == "ocr"


def test_a_job_is_steered(shell: Shell) -> None:
    shell.run(*SUBMIT)
    for verb, said in (
        ("pause", "job_0 paused: PAUSED\n"),
        ("pause", "job_0 paused (it already was): PAUSED\n"),
        ("resume", "job_0 resumed: DISPATCHING\n"),
        ("cancel", "job_0 cancelled: CANCELLED\n"),
    ):
        result = shell.run("job", verb, "job_0")
        assert (result.exit_code, result.stdout) == (0, said)
    result = shell.run("job", "pause", "job_0")
    assert (result.exit_code, result.stderr) == (1, "lucius: JOB_TERMINAL: the job is CANCELLED\n")


def test_events_are_listed_and_followed(shell: Shell) -> None:
    shell.run(*SUBMIT)
    shell.run("job", "cancel", "job_0")
    listed = shell.json("job", "events", "job_0")["events"]
    assert [event["seq"] for event in listed] == [1, 2]
    lines = shell.run("job", "events", "job_0", "--follow").stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["submitted", "cancel"]
    followed = shell.run("job", "events", "job_0", "--follow", "--after", "1", "--json")
    assert json.loads(followed.stdout)["event_type"] == "cancel"


def test_jobs_are_listed_with_filters(shell: Shell) -> None:
    for key in ("a", "b", "c"):
        shell.run(*SUBMIT, "--key", key)
    assert "job_2" in shell.run("jobs").stdout
    page = shell.json("jobs", "--limit", "2")
    assert [job["jobId"] for job in page["jobs"]] == ["job_2", "job_1"]
    rest = shell.json("jobs", "--limit", "2", "--cursor", page["next_cursor"])
    assert [job["jobId"] for job in rest["jobs"]] == ["job_0"]
    assert shell.run("jobs", "--tenant", "other").stdout == "no jobs\n"
    result = shell.run("jobs", "--state", "DONE")
    assert result.exit_code == 1
    assert result.stderr.count("state: must be one of") == 1


def test_an_empty_page_with_a_cursor_is_not_taken_for_the_end(
    server: Server, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, whole = failed_job(server, shell), server.world.ledger.list

    async def behind_empty_pages(query: JobQuery) -> JobPage:
        if query.cursor in (None, "one"):
            return JobPage((), "two" if query.cursor else "one")
        return await whole(replace(query, cursor=None))

    monkeypatch.setattr(server.world.ledger, "list", behind_empty_pages)
    for words in (("jobs",), ("dlq",)):
        assert job_id in shell.run(*words).stdout
        assert [job["jobId"] for job in shell.json(*words)["jobs"]] == [job_id]


def test_the_dlq_is_listed_redriven_and_dismissed(server: Server, shell: Shell) -> None:
    job_id = failed_job(server, shell)
    assert job_id in shell.run("dlq").stdout
    assert len(shell.json("dlq")["jobs"]) == len(shell.json("dlq", "list")["jobs"]) == 1
    assert shell.run("dlq", "dismiss", job_id).stdout == f"{job_id} dismissed\n"
    assert shell.run("dlq").stdout == "no jobs\n"
    assert shell.run("dlq", "redrive", job_id).stdout == f"{job_id} redriven as job_1\n"
    assert shell.json("job", "redrive", job_id)["duplicate"] is True


@pytest.mark.parametrize(
    ("order", "done"), [("dismiss", "job_0 dismissed"), ("redrive", "job_0 redriven as job_2")]
)
def test_a_refusal_does_not_hide_what_was_done_to_the_other_jobs(
    server: Server, shell: Shell, order: str, done: str
) -> None:
    failed, live = failed_job(server, shell), shell.json(*SUBMIT, "--key", "live")["jobId"]
    result = shell.run("dlq", order, "nope", failed, live)
    assert (result.exit_code, result.stdout) == (1, f"{done}\n")
    assert "lucius: nope: JOB_NOT_FOUND: " in result.stderr
    assert f"lucius: {live}: NOT_" in result.stderr
    again = shell.run("dlq", order, failed, "nope", "--json")
    told = json.loads(again.stdout)
    assert again.exit_code == 1
    assert [each["code"] for each in told["refused"]] == ["JOB_NOT_FOUND"]
    assert len(told["jobs"]) == 1


def test_protocols_are_shown(shell: Shell) -> None:
    assert "ocr (ocr-service)" in shell.run("protocols").stdout
    assert shell.json("protocols")["protocols"][0]["request_type"] == "OCR->EMBEDDING"


def test_an_unknown_job_is_a_message(shell: Shell) -> None:
    result = shell.run("job", "show", "nope")
    assert result.exit_code == 1
    assert result.stderr.startswith("lucius: JOB_NOT_FOUND:")


def test_with_json_a_refusal_is_an_object_with_its_code_and_faults(shell: Shell) -> None:
    result = shell.run("job", "show", "nope", "--json")
    said = json.loads(result.stderr)
    assert (result.exit_code, said["code"]) == (1, "JOB_NOT_FOUND")
    assert "JOB_NOT_FOUND" not in said["message"], "the code is said once"
    said = json.loads(shell.run("jobs", "--state", "DONE", "--json").stderr)
    assert said["code"] == "INVALID_PARAMETER"
    assert said["errors"][0]["parameter"] == "state"
