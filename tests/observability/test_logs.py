"""One line for each record, with the fields that find the job, at the right level, without secrets."""

import asyncio
import io
import json
import logging
from datetime import datetime
from typing import Any

import orjson
import pytest
from hypothesis import given

from lucius.core.errors import BusUnavailableError
from lucius.ports.bus import Message
from lucius.system.logs import FIELDS, JsonFormatter, TextFormatter, configure_logs
from tests.observability.world import Watched, logged, watched
from tests.security.hostile import CLEAR, assert_harmless, texts

TRACE = "0af7651916cd43dd8448eb211c80319c"


def parsed(lines: list[str]) -> list[dict[str, Any]]:
    assert not any("\n" in line for line in lines)
    return [json.loads(line) for line in lines]


# -- the format ------------------------------------------------------------------------------


def written(formatter: logging.Formatter, message: str, *args: object, **extra: object) -> str:
    record = logging.getLogger("t").makeRecord(
        "t", logging.INFO, "f.py", 1, message, args, None, extra=extra
    )
    return formatter.format(record)


def test_a_record_is_one_line_of_json_with_the_fields_that_are_known() -> None:
    fields = {"jobId": "job_1", "attempt_no": 2, "lease_id": None, "trace_id": TRACE}
    line = json.loads(written(JsonFormatter(), "a\n%s", "b\u2028", **fields))
    at = line.pop("ts")
    assert at.endswith("Z")
    assert datetime.fromisoformat(at).tzinfo is not None
    assert line == {
        "level": "INFO",
        "logger": "t",
        "message": "a\nb\u2028",
        "jobId": "job_1",
        "attempt_no": 2,
        "trace_id": TRACE,
    }


def test_an_error_brings_its_stack_on_the_same_line() -> None:
    with logged(JsonFormatter()) as lines:
        try:
            raise ValueError("password=hunter2")
        except ValueError:
            logging.getLogger("t").exception("broken")
    (line,) = parsed(lines)
    assert (line["level"], line["message"]) == ("ERROR", "broken")
    assert "ValueError" in line["stack"]
    assert "hunter2" not in lines[0]


def test_a_line_break_cannot_pretend_to_be_another_record_in_text() -> None:
    line = written(TextFormatter(), "a\n2026-01-01 ERROR forged", jobId="job_1")
    assert "\n" not in line
    assert line.endswith("INFO t a\\n2026-01-01 ERROR forged jobId=job_1")


@given(text=texts)
def test_no_text_in_a_record_steers_a_terminal(text: str) -> None:
    for formatter in (TextFormatter(), JsonFormatter()):
        line = written(formatter, "%s", text, **dict.fromkeys(FIELDS, text))
        assert "\n" not in line
        assert_harmless(line)


def test_no_line_of_a_stack_pretends_to_be_another_record() -> None:
    with logged(TextFormatter()) as lines:
        try:
            raise ValueError(CLEAR)
        except ValueError:
            logging.getLogger("t").exception("broken")
    first, *stack = lines[0].split("\n")
    assert first.endswith("ERROR t broken")
    assert stack
    assert all(line.startswith("  ") for line in stack)
    assert_harmless(lines[0])


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_the_ids_of_a_record_bring_no_secret(formatter: logging.Formatter) -> None:
    for name in FIELDS:
        assert "hunter2" not in written(formatter, "x", **{name: "a;password=hunter2"})


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()], ids=["json", "text"])
def test_what_a_reply_names_an_id_cannot_keep_a_record_from_being_written(
    formatter: logging.Formatter,
) -> None:
    deep = orjson.loads("[" * 1000 + "]" * 1000)
    record = logging.makeLogRecord({"msg": "said", "jobId": deep, "attempt_no": 2})
    line = formatter.format(record)
    assert "said" in line
    assert "(list)" in line


def test_libraries_log_neither_requests_with_their_addresses_nor_their_workings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, stream = logging.getLogger(), io.StringIO()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    level = root.level
    configure_logs("DEBUG", "json", stream)
    logging.getLogger("httpx").info("HTTP Request: POST https://hooks.example/T0/xyz")
    logging.getLogger("uvicorn.error").info("Started server process [1]")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    logging.getLogger("lucius").debug("shown")
    root.setLevel(level)
    logging.captureWarnings(False)
    assert [line["message"] for line in parsed(stream.getvalue().splitlines())] == ["shown"]


# -- what is said ----------------------------------------------------------------------------


@watched
async def test_an_outage_is_said_when_it_begins_and_when_it_ends(world: Watched) -> None:
    def down(message: Message) -> bool:
        raise BusUnavailableError("no route to the broker")

    world.bus.refuse = down
    with logged(JsonFormatter(), logging.INFO) as lines:
        await world.submit()
        await asyncio.sleep(10)
        world.bus.refuse = lambda message: False
        await asyncio.sleep(10)
    said = [(line["level"], line["message"]) for line in parsed(lines) if "outage" in str(line)]
    assert said == [
        ("WARNING", "outage of the bus: dispatch pauses: no route to the broker"),
        ("INFO", "the outage of the bus is over"),
    ]
