"""What goes wrong at night, made by hand on a running server: `lucius why` names it, and its remedy helps."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner, Result

from lucius.cli.main import main
from tests.cli.up import Changed, Up, running
from tests.soon import soon

PROTOCOLS = """
step_types:
  SLOW: {service: slow}
  LATE: {service: late}
protocols:
  - {protocol_id: slow_v1, request_type: SLOW, steps: [SLOW]}
tenants:
  small: {max_inflight: 2}
"""
LATE = "  - {protocol_id: late_v1, request_type: LATE, steps: [LATE]}\n"
WITH_LATE = PROTOCOLS.replace("tenants:", f"{LATE}tenants:")
JSON = {"content-type": "application/json"}


class Lucius:
    """The command line and a worker, pointed at a server."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.key: str | None = None
        self.worker_key: str | None = None

    def run(self, *words: str) -> Result:
        env = {"LUCIUS_URL": self.url, "LUCIUS_API_KEY": self.key or "", "COLUMNS": "200"}
        return CliRunner().invoke(main, list(words), env=env)

    def json(self, *words: str) -> Any:
        result = self.run(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def submit(self, kind: str, tenant: str = "acme", **more: str) -> str:
        given = {"input": "s3://b/in.pdf", "output": "s3://b/{jobId}", **more}
        words = [word for name, text in given.items() for word in (f"--{name}", text)]
        return str(self.json("submit", "--type", kind, "--tenant", tenant, *words)["jobId"])

    def why(self, job_id: str = "") -> Any:
        return self.json("why", *([job_id] if job_id else []))

    def causes(self) -> dict[str, Any]:
        return {each["cause"]: each for each in self.why()["causes"]}

    def remedy(self, found: Any, **words: str) -> Result:
        """Run the command that a finding advises, with these words for those that stand for something."""
        command = shlex.split(found["command"].partition("  #")[0])
        assert command[0] == "lucius"
        return self.run(*(words.get(word, word) for word in command[1:]))

    def new_key(self, name: str, *roles: str) -> str:
        words = [word for role in roles for word in ("--role", role)]
        at = ("--all-tenants", "--data", str(self.folder / "data"))
        return str(self.json("keys", "create", name, *words, *at)["key"])

    def post(self, path: str, body: Mapping[str, Any], key: str | None = None) -> tuple[int, Any]:
        url = path if path.startswith("http") else f"{self.url}{path}"
        headers = {**JSON, **({"authorization": f"Bearer {key}"} if key else {})}
        try:
            with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except HTTPError as error:
            return error.code, json.loads(error.read())

    def pull(self, service: str, key: str | None, most: int = 8) -> tuple[int, Any]:
        body = {"max": most, "wait_seconds": 0, "worker_id": "w1", "slots": 8}
        return self.post(f"/v1/services/{service}/directives:pull", body, key)

    def take(self, service: str, key: str | None) -> list[Any]:
        """Pull as a worker, and acknowledge."""
        _, answer = self.pull(service, key)
        for each in answer["directives"]:
            self.reply(each, "ack", {"status": "ACKED", "slots": 8})
        return list(answer["directives"])

    def reply(self, directive: Mapping[str, Any], kind: str, said: Mapping[str, Any]) -> None:
        names = ("jobId", "stepId", "attempt_no", "lease_id", "tenant_id")
        body = {name: directive[name] for name in names} | {"worker_id": "w1", **said}
        url, token = directive["callback_urls"][kind], directive["callback_token"]
        status, answer = self.post(url, body, token)
        assert status == 200, answer


def said(found: Any) -> str:
    return " ".join([found["summary"], *(each["what"] for each in found["evidence"])])


def eventually(ask: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    found: list[Any] = []

    def look() -> bool:
        found[:] = [ask()]
        return holds(found[0])

    assert soon(look), found
    return found[0]


@pytest.fixture
def lucius(tmp_path: Path) -> Iterator[Lucius]:
    """A server whose services are workers elsewhere, and whose callers have keys."""
    (tmp_path / "p.yaml").write_text(PROTOCOLS)
    options = ("--data", "data", "--no-services")
    env = {"LUCIUS_PROTOCOLS": "p.yaml", "LUCIUS_AUTH": "keys"}
    with running(Up(tmp_path, *options, **env)) as server:
        found = Lucius(tmp_path, server.url)
        found.key = found.new_key("boss", "admin", "submit", "read", "operate")
        found.worker_key = found.new_key("worker", "service")
        yield found


def test_a_service_without_a_worker_and_workers_that_are_turned_away(lucius: Lucius) -> None:
    job_id = lucius.submit("SLOW")
    assert "no worker of slow has been seen yet" in said(lucius.why(job_id))

    status, answer = lucius.pull("slwo", lucius.worker_key)
    assert (status, answer["code"]) == (404, "SERVICE_NOT_FOUND")
    assert "did you mean slow?" in answer["detail"]
    misnamed = eventually(lambda: lucius.why(job_id), lambda each: each["severity"] == "PROBLEM")
    assert misnamed["cause"] == "WORKERS_MISNAMED"
    assert "'slwo'" in misnamed["summary"]
    impact = misnamed["impact"]
    assert (impact["jobs"], impact["tenants"], impact["more"]) == (1, ["acme"], False)
    assert impact["oldest_at"] is not None
    assert lucius.remedy(misnamed).exit_code == 0

    revoked = str(lucius.worker_key).split("_")[1]
    lucius.json("keys", "revoke", revoked, "--data", str(lucius.folder / "data"))
    assert lucius.pull("slow", lucius.worker_key)[0] == 401
    refused = lucius.why(job_id)
    assert refused["cause"] == "WORKERS_REFUSED"
    assert f"the key {revoked} was answered 401" in said(refused)
    assert lucius.causes()["WORKERS_REFUSED"]["impact"]["jobs"] == 1

    made = lucius.remedy({"command": refused["command"] + " --json"}, NAME="another")
    assert made.exit_code == 0, made.output
    # The command is for the machine of the server: here its data directory has to be named.
    key = lucius.new_key("one more", "service")
    (directive,) = lucius.take("slow", key)
    lucius.reply(directive, "result", {"status": "SUCCEEDED", "output_ref": {"uri": "s3://b/x"}})
    assert lucius.why(job_id)["cause"] == "SUCCEEDED"


def test_a_tenant_at_its_limit_is_told_so_and_when_to_come_again(lucius: Lucius) -> None:
    for _ in range(2):
        lucius.submit("SLOW", "small", key=str(datetime.now(UTC)))
    refused = lucius.run(
        *("submit", "--type", "SLOW", "--tenant", "small"),
        *("--input", "s3://b/i", "--output", "s3://b/o", "--key", "third"),
    )
    assert "small has 2 live jobs, and may have 2" in refused.output
    found = lucius.causes()["TENANT_AT_LIMIT"]
    assert re.match(r"small has 2 of 2 live jobs; [1-9]\d* request", found["summary"])
    assert found["impact"]["tenants"] == ["small"]
    listed = lucius.remedy(found)
    assert listed.output.count("small") == 2

    body = {"tenant_id": "small", "request_type": "SLOW", "payload": {}, "schema_version": "v1"}
    body |= {"input_ref": "s3://b/i", "output_ref": "s3://b/o"}
    headers = {**JSON, "authorization": f"Bearer {lucius.key}"}
    with pytest.raises(HTTPError) as caught:
        urlopen(Request(f"{lucius.url}/v1/orchestrate", json.dumps(body).encode(), headers))
    assert 1 <= int(caught.value.headers["retry-after"]) <= 60
    caught.value.close()


def test_what_a_dead_worker_has_in_hand_is_taken_back_by_an_order(lucius: Lucius) -> None:
    job_id = lucius.submit("SLOW")
    eventually(lambda: lucius.take("slow", lucius.worker_key), bool)
    at_work = lucius.why(job_id)
    assert at_work["cause"] == "AT_WORK"
    unknown = lucius.run("worker", "drop", "nobody")
    assert (unknown.exit_code, "no worker 'nobody'" in unknown.output) == (1, True)
    dropped = lucius.run("worker", "drop", "w1", "--reason", "its machine is gone")
    assert "w1 is dropped: 1 job is tried again" in dropped.output
    events = lucius.json("job", "events", job_id)["events"]
    (taken_back,) = [each for each in events if each["event_type"] == "lease_returned"]
    assert taken_back["payload"]["reason"] == "its machine is gone"
    assert taken_back["payload"]["by"].startswith("boss")
    assert "w1" not in lucius.run("services", "--workers").output, "nobody has seen it since"
    (again,) = eventually(lambda: lucius.take("slow", lucius.worker_key), bool)
    assert again["jobId"] == job_id


def test_an_invalid_protocol_file_is_named_with_the_line_and_the_fault(lucius: Lucius) -> None:
    (lucius.folder / "p.yaml").write_text(PROTOCOLS.replace("steps: [SLOW]", "steps: [FAST]"))
    found = eventually(lucius.causes, lambda each: "CONFIGURATION_INVALID" in each)
    fault = found["CONFIGURATION_INVALID"]
    assert "p.yaml:6: /protocols/0/steps/0: there is no step type FAST" in said(fault)
    assert fault["command"] == "lucius protocols check p.yaml"
    checked = lucius.run("protocols", "check", str(lucius.folder / "p.yaml"))
    assert (checked.exit_code, "p.yaml:6:" in checked.output) == (1, True)


def test_a_protocol_that_is_gone_after_a_restart_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(WITH_LATE)
    options = ("--data", "data", "--no-services")
    with running(Up(tmp_path, *options, LUCIUS_PROTOCOLS="p.yaml")) as server:
        job_id = Lucius(tmp_path, server.url).submit("LATE")
        server.stop()
    (tmp_path / "p.yaml").write_text(PROTOCOLS)
    with running(Up(tmp_path, *options, LUCIUS_PROTOCOLS="p.yaml")) as server:
        lucius = Lucius(tmp_path, server.url)
        assert lucius.why(job_id)["cause"] == "PROTOCOL_GONE"
        found = lucius.causes()["PROTOCOL_GONE"]
        assert found["impact"]["jobs"] == 1
        assert "SLOW" in lucius.remedy(found).output
        (tmp_path / "p.yaml").write_text(WITH_LATE)
        eventually(lambda: lucius.why(job_id)["cause"], lambda cause: cause != "PROTOCOL_GONE")


def test_a_clock_that_is_behind_what_is_stored_is_wrong(tmp_path: Path) -> None:
    options = ("--data", "data", "--no-services")
    with running(Up(tmp_path, *options)) as server:
        job_id = Lucius(tmp_path, server.url).submit("OCR", input="in.pdf", output="out")
        server.stop()
    behind = "lambda: __import__('datetime').datetime.now(__import__('datetime').UTC) - timedelta(hours=1)"
    with running(Changed({"runtime.utc_now": behind}, tmp_path, *options)) as server:
        lucius = Lucius(tmp_path, server.url)
        found = lucius.causes()["CLOCK_OFF"]
        assert "behind the newest job that is stored" in said(found)
        assert lucius.why(job_id)["cause"] == "CLOCK_OFF"
        assert found["command"] == "timedatectl"


# -- services of the server itself -----------------------------------------------------------

SERVICES = '''
import os, signal
from pathlib import Path
from lucius.platform import FatalError, Output, RetryableError, Service, Task

class Reader(Service):
    """Fails as its payload says."""
    name, step_types = "reader", ("READ",)
    async def execute(self, task: Task) -> Output:
        payload = task.payload or {}
        if payload.get("locked"):
            raise FatalError("the PDF is locked", code="PDF_LOCKED")
        if payload.get("busy") and task.attempt_no <= payload["busy"]:
            raise RetryableError("429 from upstream", code="UPSTREAM_BUSY")
        if payload.get("die") and Path(payload["die"]).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        await task.stage("output.txt", b"read")
        return Output()
'''
READS = """
step_types:
  READ: {service: reader, execution_backoff_seconds: [2, 2]}
protocols:
  - {protocol_id: read_v1, request_type: READ, steps: [READ]}
"""


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Lucius]:
    (tmp_path / "service.py").write_text(SERVICES)
    (tmp_path / "p.yaml").write_text(READS)
    (tmp_path / "in.pdf").write_bytes(b"a document")
    options = ("--data", "data", "--service", "service:Reader")
    env = {"LUCIUS_PROTOCOLS": "p.yaml", "PYTHONPATH": str(tmp_path)}
    with running(Up(tmp_path, *options, **env)) as server:
        yield Lucius(tmp_path, server.url)


def read(lucius: Lucius, tenant: str = "acme", payload: Any = None, **more: str) -> str:
    places = {"input": str(lucius.folder / "in.pdf"), "output": str(lucius.folder / "{jobId}.txt")}
    return lucius.submit("READ", tenant, **{**places, "payload": json.dumps(payload or {}), **more})


def ended(lucius: Lucius, job_id: str) -> Any:
    return eventually(
        lambda: lucius.json("job", "show", job_id), lambda job: job["completed_at"] is not None
    )


def test_one_tenants_documents_stop_nobody_else_and_failed_jobs_wait(reading: Lucius) -> None:
    jobs = [read(reading, "acme", {"locked": True}, key=str(n)) for n in range(6)]
    for job_id in jobs:
        ended(reading, job_id)
    found = reading.causes()
    assert list(found) == ["TENANT_FAILS_ALIKE", "JOBS_FAILED"]
    alike = found["TENANT_FAILS_ALIKE"]
    assert "every job of acme fails in reader alike with PDF_LOCKED" in alike["summary"]
    assert "nothing: what failed is final" in alike["next"]["what"]
    assert (alike["impact"]["jobs"], alike["impact"]["tenants"]) == (6, ["acme"])
    assert reading.remedy(alike).output.count("PDF_LOCKED") == 6

    waiting = found["JOBS_FAILED"]
    assert waiting["summary"] == "6 failed jobs wait for a decision"
    assert (waiting["impact"]["jobs"], waiting["impact"]["tenants"]) == (6, ["acme"])
    assert "PDF_LOCKED" in reading.remedy(waiting).output
    assert reading.run("dlq", "dismiss", *jobs).exit_code == 0
    assert "JOBS_FAILED" not in reading.causes()


def test_a_service_whose_attempts_are_told_to_wait_is_degraded(reading: Lucius) -> None:
    jobs = [read(reading, f"t{n % 2}", {"busy": 2}, key=str(n)) for n in range(4)]
    found = eventually(reading.causes, lambda each: "SERVICE_DEGRADED" in each)
    degraded = found["SERVICE_DEGRADED"]
    assert re.search(r"\d+% of the attempts of reader fail with UPSTREAM_BUSY", degraded["summary"])
    assert "each costs its job an attempt" in said(degraded)
    assert degraded["since"] is not None
    assert "UPSTREAM_BUSY" in reading.remedy(degraded).output
    for job_id in jobs:
        assert ended(reading, job_id)["state"] == "SUCCEEDED"


def test_an_output_that_cannot_be_written_is_final_and_gets_another_place(
    reading: Lucius,
) -> None:
    """Nobody may write below what is a file, whoever they are."""
    (reading.folder / "file").write_text("")
    job_id = read(reading, output=str(reading.folder / "file" / "out.txt"))
    assert ended(reading, job_id)["attempts_total"] == 1
    found = reading.why(job_id)
    assert found["cause"] == "OUTPUT_NOT_WRITABLE"
    assert list(reading.causes()) == ["JOBS_FAILED"], "the service is not at fault"
    other = reading.folder / "other.txt"
    redriven = reading.remedy(found, REF=str(other))
    assert redriven.exit_code == 0, redriven.output
    assert soon(other.exists)
    assert reading.why(job_id)["cause"] == "REDRIVEN"


def test_places_outside_of_the_roots_are_refused_with_the_roots(reading: Lucius) -> None:
    words = ("submit", "--type", "READ", "--input", "/etc/hostname", "--output", "x.txt")
    refused = reading.run(*words)
    assert (refused.exit_code, "REFERENCE_NOT_ALLOWED" in refused.output) == (1, True)
    assert "jobs may not read /etc: add it to LUCIUS_INPUT_ROOTS" in refused.output
    assert str(reading.folder) in refused.output


def test_a_webhook_that_nobody_takes_is_listed_counted_and_sent_again(reading: Lucius) -> None:
    job_id = read(reading, **{"callback-url": "https://hooks.nowhere.invalid/secret"})
    assert ended(reading, job_id)["state"] == "SUCCEEDED"
    found = eventually(lambda: reading.why(job_id), lambda each: each["cause"] != "SUCCEEDED")
    assert found["cause"] == "WEBHOOK_FAILS"
    assert "cannot be resolved" in said(found)
    assert found["next"]["at"] is not None
    assert "secret" not in json.dumps(found)
    (webhook,) = reading.json("webhooks")["webhooks"]
    assert (webhook["jobId"], webhook["host"]) == (job_id, "hooks.nowhere.invalid")
    assert reading.causes()["WEBHOOK_FAILS"]["impact"]["jobs"] == 1
    (owed,) = reading.json("job", "show", job_id)["webhooks"]
    assert "cannot be resolved" in owed["error"]
    assert "webhook hooks.nowhere.invalid" in reading.run("job", "show", job_id).output
    before = tries(reading)
    assert before >= 1
    assert reading.remedy(found).exit_code == 0
    eventually(lambda: tries(reading), lambda count: count > before)
    events = reading.json("job", "events", job_id)["events"]
    assert [each["event_type"] for each in events].count("resend") == 1


def tries(lucius: Lucius) -> float:
    with urlopen(f"{lucius.url}/metrics") as answer:
        text = answer.read().decode()
    (count,) = re.findall(r'^lucius_webhook_tries_total\{outcome="failed"\} (\S+)', text, re.M)
    return float(count)


def test_services_that_died_are_the_cause_also_for_a_job(reading: Lucius) -> None:
    trap = reading.folder / "trap"
    trap.write_text("")
    jobs = [read(reading, payload={"die": str(trap)}, key=str(n)) for n in range(3)]
    found = eventually(
        lambda: [reading.why(job_id) for job_id in jobs],
        lambda each: any(one["cause"] == "SERVICES_DOWN" for one in each),
    )
    down = next(each for each in found if each["cause"] == "SERVICES_DOWN")
    assert "SIGKILL" in said(down)
    trap.unlink()
    assert reading.remedy(down).exit_code == 0
    for job_id in jobs:
        assert ended(reading, job_id)["state"] in ("SUCCEEDED", "FAILED_FINAL")


def test_packaged_services_that_run_are_not_shown_as_never_seen(reading: Lucius) -> None:
    listed = reading.run("services").output
    assert "runs here" in listed
    assert "never seen" not in listed


def test_metrics_of_the_services_are_those_of_the_server(reading: Lucius) -> None:
    """They run in a process of their own, which nobody scrapes."""
    ended(reading, read(reading))

    def scraped() -> str:
        with urlopen(f"{reading.url}/metrics") as answer:
            return str(answer.read().decode())

    attempts = 'lucius_service_attempts_total{code="",service="reader",status="SUCCEEDED"} 1.0'
    text = eventually(scraped, lambda text: attempts in text)
    assert 'lucius_service_attempt_seconds_count{service="reader"} 1.0' in text
    assert re.search(r'lucius_service_slots\{service="reader",state="free"\} [1-9]', text)
