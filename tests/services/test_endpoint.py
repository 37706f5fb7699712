"""An OpenAI-compatible endpoint writes the answers of SIS: what it is sent, and what may go wrong."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from lucius.app.adapters import UnsupportedError
from lucius.app.services import named_service, packaged_services
from lucius.app.settings import load_settings
from lucius.platform import FatalError, RetryableError, StepError
from lucius.services import Sis
from lucius.services import endpoint as endpoints
from lucius.services.endpoint import MAX_ANSWER, AnswerEndpoint, Prompt
from lucius.services.passages import Passage
from lucius.services.sis import ASKED_AT_ONCE, BestFit, Source
from tests.api.live import live
from tests.services.answering import AnswerApi, answer_api
from tests.services.hostile import Curious
from tests.services.stage import Stage, failure

KEY = "sk-never-to-be-seen-4711"
PASSAGES = [Passage(2, 1, "The Harbour Board pays 18,400 crowns a year.")]


@pytest.fixture
def api() -> Iterator[AnswerApi]:
    with answer_api() as api:
        yield api


@pytest.fixture
def endpoint(api: AnswerApi) -> AnswerEndpoint:
    return AnswerEndpoint(api.url, "small-model", KEY)


async def test_sis_has_the_endpoint_answer_from_the_passages_and_never_logs_its_key(
    tmp_path: Path, api: AnswerApi, caplog: pytest.LogCaptureFixture
) -> None:
    environ = {"ANSWER_URL": api.url, "ANSWER_MODEL": "small-model", "ANSWER_KEY": KEY}
    settings = load_settings({f"LUCIUS_{name}": text for name, text in environ.items()})
    caplog.set_level(logging.DEBUG)
    asked = {"prompt_set": ["How much does the Harbour Board pay a year?", "Who is the king?"]}
    async with Stage(tmp_path, [named_service("lucius.services:Sis", settings)]) as stage:
        result = json.loads(stage.output(await stage.step("SIS", payload=asked)))
        api.status = 401
        refused = await stage.step("SIS", jobId="job_2", payload=asked)
    answered, unknown = result["answers"]
    assert (answered["answer"], answered["page"]) == ("They pay 18,400 crowns [1, 2].", 1)
    assert answered["sources"][0]["page"] == 1
    assert unknown["answer"] == answered["answer"], "an endpoint is asked whatever fits"
    assert unknown["page"] == unknown["sources"][0]["page"]
    assert result["answered_by"] == "small-model"
    (first,) = [each for each in api.asked[:2] if asked["prompt_set"][0] in str(each["messages"])]
    assert (first["path"], first["model"], first["temperature"]) == (
        "/v1/chat/completions",
        "small-model",
        0,
    )
    given = first["messages"][1]["content"]
    assert "[1, 2] The lamp must be lit" in given
    assert "The Harbour Board pays 18,400 crowns a year" in given
    assert set(api.keys) == {f"Bearer {KEY}"}
    assert failure(refused) == ("FAILED_FINAL", "ANSWER_ENDPOINT_REFUSED")
    said = json.dumps([result, refused]) + caplog.text + repr(settings)
    assert KEY not in said
    assert caplog.text.count("Loading weights") == 1, "a process keeps its model"


async def test_several_prompts_are_asked_at_once_and_answered_in_their_order(
    tmp_path: Path, api: AnswerApi, endpoint: AnswerEndpoint
) -> None:
    api.together = Barrier(ASKED_AT_ONCE, timeout=60)
    prompts = [{"id": f"p{number}", "prompt": "How much?"} for number in range(2 * ASKED_AT_ONCE)]
    async with Stage(tmp_path, [Sis(endpoint)]) as stage:
        done = json.loads(stage.output(await stage.step("SIS", payload={"prompt_set": prompts})))
    assert [each["id"] for each in done["answers"]] == [each["id"] for each in prompts]


@pytest.mark.parametrize(
    ("cited", "expected"),
    [((1, 1), (1, 1)), ((9, 1), (1, 2)), (("one", None), (1, 2)), ((), (1, 2))],
)
def test_a_json_answer_cites_a_passage_that_the_endpoint_was_given(
    api: AnswerApi, endpoint: AnswerEndpoint, cited: tuple[Any, ...], expected: tuple[int, int]
) -> None:
    api.said = json.dumps({"text": "18,400"} | dict(zip(("page", "passage"), cited, strict=False)))
    sources = [Source(PASSAGES[0], 0.9), Source(Passage(1, 1, "Maintenance agreement"), 0.5)]
    answer = Sis(endpoint)._answer(Prompt("How much?", "1", "json"), BestFit(None, None, sources))
    said = answer["answer"]
    assert (said["text"], said["page"], said["passage"]) == ("18,400", *expected)


async def test_no_process_of_another_service_knows_the_key(
    tmp_path: Path, endpoint: AnswerEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"input_ref": (tmp_path / "in").as_uri(), "output_ref": (tmp_path / "out").as_uri()}
    async with live(tmp_path / ".lucius", services=[Sis(endpoint), Curious()]) as world:
        job_id = await world.accepted(request_type="OCR", **given)
        await world.client.get(f"/v1/jobs/{job_id}?wait_seconds=60")
    assert (tmp_path / "out").read_text() == "it knows nothing"


@pytest.mark.parametrize("form", ["%s", "```json\n%s\n```", "```\n%s```"])
def test_a_prompt_may_ask_for_json(api: AnswerApi, endpoint: AnswerEndpoint, form: str) -> None:
    api.said = form % '{"text": "18,400 crowns", "page": 1, "passage": 2, "amount": 18400}'
    answer = endpoint.answer(Prompt("How much?", "1", "json"), PASSAGES)
    assert answer["amount"] == 18400
    assert api.asked[0]["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (503, RetryableError, "ANSWER_ENDPOINT_UNAVAILABLE"),
        (429, RetryableError, "ANSWER_ENDPOINT_UNAVAILABLE"),
        (401, FatalError, "ANSWER_ENDPOINT_REFUSED"),
        (302, FatalError, "ANSWER_ENDPOINT_REFUSED"),
    ],
)
def test_a_status_decides_whether_it_is_tried_again(
    api: AnswerApi, endpoint: AnswerEndpoint, status: int, kind: type[StepError], code: str
) -> None:
    api.status, api.raw = status, KEY.encode()
    with pytest.raises(kind, match=str(status)) as refused:
        endpoint.answer(Prompt("How much?"), PASSAGES)
    assert (refused.value.code, KEY in str(refused.value)) == (code, False)


def test_an_endpoint_that_takes_too_long_is_tried_again(
    api: AnswerApi, endpoint: AnswerEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.together = Barrier(2, timeout=60)
    monkeypatch.setattr(endpoints, "SECONDS", 0.2)
    with pytest.raises(RetryableError, match="does not answer: ReadTimeout") as refused:
        endpoint.answer(Prompt("How much?"), PASSAGES)
    assert refused.value.code == "ANSWER_ENDPOINT_UNAVAILABLE"
    api.together.abort()  # the request that nobody waits for ends too


@pytest.mark.parametrize(
    "raw",
    [b"not JSON", b'{"choices": []}', b"[]", b'{"choices": [{"message": {"content": " "}}]}'],
)
def test_what_is_no_answer_is_tried_again(
    api: AnswerApi, endpoint: AnswerEndpoint, raw: bytes
) -> None:
    api.raw = raw
    assert unusable(endpoint, Prompt("How much?")) == "ANSWER_UNUSABLE"


@pytest.mark.parametrize("said", ["18,400 crowns", "[18400]"])
def test_text_where_json_is_asked_for_is_tried_again(
    api: AnswerApi, endpoint: AnswerEndpoint, said: str
) -> None:
    api.said = said
    assert unusable(endpoint, Prompt("How much?", answer="json")) == "ANSWER_UNUSABLE"


def test_an_answer_without_end_is_not_read_to_its_end(
    api: AnswerApi, endpoint: AnswerEndpoint
) -> None:
    api.said = "x" * (MAX_ANSWER + 1)
    assert unusable(endpoint, Prompt("How much?")) == "ANSWER_UNUSABLE"


def test_an_endpoint_that_is_not_there_is_tried_again() -> None:
    with answer_api() as api:
        gone = AnswerEndpoint(api.url, "small-model")
    assert unusable(gone, Prompt("How much?")) == "ANSWER_ENDPOINT_UNAVAILABLE"


def unusable(endpoint: AnswerEndpoint, prompt: Prompt) -> Any:
    with pytest.raises(RetryableError) as refused:
        endpoint.answer(prompt, PASSAGES)
    return refused.value.code


def test_an_endpoint_needs_a_model_and_its_key_is_not_shown() -> None:
    settings = load_settings({"LUCIUS_ANSWER_URL": "http://127.0.0.1:1/v1"})
    with pytest.raises(UnsupportedError, match="LUCIUS_ANSWER_MODEL"):
        packaged_services(settings)
    assert KEY not in repr(AnswerEndpoint("http://127.0.0.1:1/v1", "small-model", KEY))
    assert isinstance(named_service("lucius.services:Sis", load_settings({})), Sis)
