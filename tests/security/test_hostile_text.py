"""Text from workers and clients reaches no terminal unescaped, whichever command shows which field."""

import io
import json
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from rich.console import Console

from lucius.cli.completing import job_ids
from lucius.cli.load import report
from lucius.cli.main import main
from lucius.cli.screen import progress
from lucius.cli.session import Session
from lucius.client.plain import PlainClient
from lucius.contract.models.base import ProblemView
from lucius.contract.models.commands import RedrivenView, SubmittedView
from lucius.contract.models.control import BulkView, RetriedView
from lucius.contract.models.insight import (
    FailuresView,
    JobWhyView,
    RedrivePlansView,
    RedrivePlanView,
    SystemWhyView,
)
from lucius.contract.models.jobs import EventView, ExecutionsView, JobsView, JobView
from lucius.contract.models.services import (
    ProtocolsView,
    ServiceOrderView,
    ServicesView,
    SettingsView,
)
from lucius.core.text import printable, printable_json, printable_lines
from lucius.dev.load import JobEnd, LoadTally
from tests.security.hostile import CLEAR, CONTROLS, assert_harmless, filled, texts

SUBMIT = ("submit", "--type", "OCR", "--input", "s3://b/in.pdf")
SHAPES: dict[tuple[str, ...], Any] = {
    SUBMIT: SubmittedView,
    ("job", "show", "j"): JobView,
    ("job", "cancel", "j"): JobView,
    ("job", "pause", "j"): JobView,
    ("job", "resume", "j"): JobView,
    ("job", "redrive", "j"): RedrivenView,
    ("jobs",): JobsView,
    ("jobs", "cancel", "--yes"): BulkView,
    ("dlq",): JobsView,
    ("dlq", "dismiss", "j"): JobView,
    ("dlq", "redrive", "j"): RedrivenView,
    ("outbox", "retry"): RetriedView,
    ("protocols",): ProtocolsView,
    ("why", "j"): JobWhyView,
    ("why",): SystemWhyView,
    ("services", "--workers"): ServicesView,
    ("failures",): FailuresView,
    ("redrives",): RedrivePlansView,
    ("redrives", "p"): RedrivePlanView,
    ("redrives", "p", "--stop"): RedrivePlanView,
    ("redrive", "--code", "C"): RedrivePlanView,
    ("job", "retry", "j"): JobView,
    ("service", "pause", "s"): ServiceOrderView,
    ("service", "resume", "s"): ServiceOrderView,
    ("settings", "--server"): SettingsView,
}


class Answers(ThreadingHTTPServer):
    """A server that answers every request with what it was last told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Give)
        self.answer = httpx.Response(204)
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


class Give(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Answers)
        self.rfile.read(int(self.headers.get("content-length", 0)))
        content = self.server.answer.content
        self.send_response(self.server.answer.status_code)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None: ...


@cache
def server() -> Answers:
    return Answers()


def run(answer: httpx.Response, *words: str) -> Result:
    """One command, against a server that answers everything with this."""
    server().answer = answer
    url = f"http://127.0.0.1:{server().server_port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "connect", lambda self: PlainClient(url, retries=0))
        return CliRunner().invoke(main, list(words))


def document(shape: Any, text: str) -> httpx.Response:
    answer = filled(shape, text)
    if shape is BulkView:
        answer["more"] = False
    if shape is JobView:  # a job is shown with its executions
        answer |= filled(ExecutionsView, text)
    return httpx.Response(200, json=answer)


@pytest.mark.parametrize("words", SHAPES, ids=" ".join)
@given(text=texts)
@settings(max_examples=25, deadline=None)
def test_no_field_of_an_answer_steers_the_terminal(words: tuple[str, ...], text: str) -> None:
    for more in ((), ("--json",)):
        shown = run(document(SHAPES[words], text), *words, *more)
        assert isinstance(shown.exception, SystemExit | None), repr(shown.exception)
        assert_harmless(shown.stdout + shown.stderr)


@pytest.mark.parametrize("words", SHAPES, ids=" ".join)
def test_what_is_escaped_is_still_there_to_be_read(words: tuple[str, ...]) -> None:
    assert json.loads(run(document(SHAPES[words], CLEAR), *words, "--json").stdout)
    if words not in (("outbox", "retry"),):
        shown = run(document(SHAPES[words], CLEAR), *words)
        assert r"\x1b[2J" in shown.stdout + shown.stderr


@given(text=texts)
@settings(max_examples=25, deadline=None)
def test_no_refusal_steers_the_terminal(text: str) -> None:
    problem = httpx.Response(422, json=filled(ProblemView, text))
    plain = httpx.Response(500, text=text)
    for answer in (problem, plain):
        for more in ((), ("--json",)):
            shown = run(answer, "job", "show", "j", *more)
            assert shown.exit_code == 1
            assert_harmless(shown.stdout + shown.stderr)


@given(text=texts)
@settings(max_examples=25, deadline=None)
def test_no_event_steers_the_terminal(text: str) -> None:
    event = {**filled(EventView, text), "payload": {text: text}, "moves": [f"step {text}"]}
    data = json.dumps(event, ensure_ascii=False)
    stream = f"event: x\ndata: {data}\n\nevent: end\ndata: {{}}\n\n"
    followed = run(httpx.Response(200, text=stream), "job", "events", "j", "--follow")
    assert followed.exit_code == 0, repr(followed.exception)
    assert_harmless(followed.stdout + followed.stderr)


@given(text=texts)
@settings(max_examples=25, deadline=None)
def test_live_progress_shows_no_control_character(text: str) -> None:
    out = io.StringIO()
    Console(file=out, width=1000).print(progress(filled(JobView, text)))
    assert_harmless(out.getvalue())


@given(text=texts)
def test_the_report_of_a_load_shows_no_control_character_of_a_code(text: str) -> None:
    tally = LoadTally()
    tally.start()
    tally.end(JobEnd(f"E{text}"), 1.0)
    assert_harmless("\n".join(report(tally, 1.0)))


def test_what_could_steer_the_terminal_is_not_offered_for_completion() -> None:
    jobs = httpx.Response(200, json={"jobs": [{"jobId": "job_1"}, {"jobId": f"job_{CLEAR}"}]})
    server().answer = jobs
    context = click.Context(main)
    context.params["url"] = f"http://127.0.0.1:{server().server_port}"
    offered = job_ids(context, click.Argument(["job_id"]), "job_")
    assert [each.value for each in offered] == ["job_1"]


@pytest.mark.parametrize(
    "words", [("job", CLEAR), (CLEAR,), (f"--{CLEAR}",), ("jobs", "--url", f"http://{CLEAR}")]
)
def test_no_mistake_that_is_repeated_steers_the_terminal(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(main, list(words))
    assert shown.exit_code in (1, 2)
    assert_harmless(shown.stderr)


# -- the functions ---------------------------------------------------------------------------


@given(text=texts)
def test_printable_text_is_one_harmless_line(text: str) -> None:
    assert "\n" not in printable(text)
    assert_harmless(printable(text))
    assert printable(printable(text)) == printable(text)
    assert printable_lines(text).count("\n") == text.count("\n")
    assert_harmless(printable_lines(text))


@given(text=texts)
def test_printable_json_says_the_same(text: str) -> None:
    encoded = json.dumps({text: [text]}, indent=1, ensure_ascii=False)
    assert_harmless(printable_json(encoded))
    assert json.loads(printable_json(encoded)) == {text: [text]}


@pytest.mark.parametrize(
    "text", ["naïve café", "漢字 かな", "שלום", "👩‍💻", "a b", "நன்றி", "نمی‌خواهم"]
)
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert printable(text) == text
    assert printable_json(text) == text


def test_every_control_character_is_shown_by_its_number() -> None:
    assert (
        printable("\x1b\x9b\u202e\x00\t\ud800\U000e0041") == r"\x1b\x9b\u202e\x00\t\ud800\U000e0041"
    )
    assert all(printable(character).startswith("\\") for character in CONTROLS)
