"""The demo services on the sample document, through the kit and local files."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lucius.buses.memory import MemoryBus
from lucius.core.wire import directive_properties
from lucius.demo import SERVICES
from lucius.demo.text import Index, chunks, likeness, vector, words
from lucius.platform import Service, ServiceRunner
from lucius.platform.isolation.forks import ForkServer
from lucius.ports.bus import Message, Subscription
from lucius.workspaces.local import LocalWorkspace

EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLE = EXAMPLES / "sample.pdf"
REPLIES = "replies"


class Stage:
    """The three services, running, and a way to give them one step at a time."""

    def __init__(self, folder: Path, services: Sequence[type[Service]] = SERVICES) -> None:
        self.folder = folder
        self.services = services
        self.bus = MemoryBus()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Stage":
        await self.bus.ensure([Subscription(REPLIES, REPLIES)])
        folder = self.folder
        workspace = LocalWorkspace(folder / "jobs", readable=[EXAMPLES], writable=[folder])
        forks = ForkServer()
        self._stack.push_async_callback(forks.close)
        for kind in self.services:
            runner = ServiceRunner(kind(), self.bus, workspace, forks=forks)
            await runner.start()
            self._stack.push_async_callback(runner.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        await self.bus.close()

    async def step(self, step_type: str, **fields: Any) -> dict[str, Any]:
        body = {
            "jobId": "job_1",
            "stepId": step_type.lower(),
            "tenant_id": "tenant_a",
            "step_type": step_type,
            "service": step_type.lower(),
            "attempt_no": 1,
            "lease_id": "l1",
            "mode": "DEFAULT",
            "lane": 0,
            "routing_key_used": "tenant_a",
            "reply_topic": REPLIES,
            "input_ref": SAMPLE.as_uri(),
            "workspace_ref": self.folder.as_uri() + "/jobs/job_1/",
            "payload": {},
        } | fields
        message = Message(step_type, body, directive_properties(body))
        await self.bus.publish("global-bus-p0", [message])
        while True:
            for delivery in await self.bus.receive(REPLIES, [REPLIES], 1, timedelta(seconds=10)):
                await self.bus.complete(delivery)
                if delivery.message.body["type"] == "RESULT":
                    return dict(delivery.message.body)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


async def test_three_steps_answer_questions_about_the_sample(tmp_path: Path) -> None:
    asked = ["How much does the Harbour Board pay?", "How quickly must a failed light be restored?"]
    async with Stage(tmp_path) as stage:
        ocr = await stage.step("OCR", payload={"language": "en"})
        earlier = {"ocr": ocr["output_ref"]}
        embedding = await stage.step("EMBEDDING", previous=earlier, payload={"dimensions": 256})
        earlier["embedding"] = embedding["output_ref"]
        wanted = (tmp_path / "out" / "answers.json").as_uri()
        sis = await stage.step(
            "SIS",
            previous=earlier,
            payload={"prompt_set": asked},
            final_step=True,
            output_ref={"uri": wanted},
        )
        assert [r["status"] for r in (ocr, embedding, sis)] == ["SUCCEEDED"] * 3
        assert ocr["output_ref"]["uri"] == (tmp_path / "jobs/job_1/ocr/output.txt").as_uri()
        assert sis["output_ref"]["uri"] == wanted
        assert "18,400 crowns" in stage.text("jobs/job_1/ocr/output.txt")
        vectors = json.loads(stage.text("jobs/job_1/embedding/vectors.json"))
        assert len(vectors["chunks"][0]["vector"]) == vectors["dimensions"] == 256
        result = json.loads(stage.text("out/answers.json"))
        assert stage.text("jobs/job_1/sis/result.json") == stage.text("out/answers.json")
    first, second = (answer["answer"] for answer in result["answers"])
    assert first.startswith("The Harbour Board pays 18,400 crowns a year")
    assert "restore it within six hours" in second


async def test_each_service_also_works_alone_on_a_document(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        embedding = await stage.step("EMBEDDING")
        sis = await stage.step("SIS", payload={"prompt_set": ["When does the agreement begin?"]})
        assert embedding["status"] == sis["status"] == "SUCCEEDED"
        (answer,) = json.loads(stage.text("jobs/job_1/sis/result.json"))["answers"]
    assert "1 March 2026" in answer["answer"]


@pytest.mark.parametrize(
    ("step_type", "payload", "code"),
    [
        ("OCR", {"pages": 0}, "INVALID_PAYLOAD"),
        ("EMBEDDING", {"chunk_size": 15}, "INVALID_PAYLOAD"),
        ("EMBEDDING", {"dimensions": 5000}, "INVALID_PAYLOAD"),
        ("SIS", {}, "INVALID_PAYLOAD"),
        ("SIS", {"prompt_set": []}, "INVALID_PAYLOAD"),
    ],
)
async def test_a_bad_payload_is_final(
    tmp_path: Path, step_type: str, payload: dict[str, Any], code: str
) -> None:
    async with Stage(tmp_path) as stage:
        result = await stage.step(step_type, payload=payload)
    assert (result["status"], result["error"]["code"]) == ("FAILED_FINAL", code)


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("image.png", b"\x89PNG\r\n\x1a\n", "UNSUPPORTED_DOCUMENT"),
        ("bad.pdf", b"%PDF-1.4 and then nothing", "UNSUPPORTED_DOCUMENT"),
        ("empty.txt", b"  \n", "EMPTY_DOCUMENT"),
        ("missing.txt", None, "OBJECT_MISSING"),
        ("../outside.txt", None, "REFERENCE_REFUSED"),
    ],
)
async def test_a_document_that_cannot_be_read_is_final(
    tmp_path: Path, name: str, content: bytes | None, code: str
) -> None:
    if content is not None:
        await asyncio.to_thread((tmp_path / name).write_bytes, content)
    async with Stage(tmp_path) as stage:
        result = await stage.step("OCR", input_ref=f"{tmp_path.as_uri()}/{name}")
    assert (result["status"], result["error"]["code"]) == ("FAILED_FINAL", code)


def test_vectors_are_the_same_everywhere_and_of_length_one() -> None:
    made = vector("the lamp must be lit", 16)
    assert made == vector("The LAMP must be lit!", 16)
    assert likeness(made, made) == pytest.approx(1.0, abs=1e-4)
    assert words("The keepers restored it") == ["keeper", "restor"]


def test_chunks_lose_no_word_and_keep_their_size() -> None:
    text = "One two three. " * 20 + "word " * 200
    parts = chunks(text, 64)
    assert " ".join(parts).split() == text.split()
    assert max(map(len, parts)) <= 64


def test_an_index_survives_json() -> None:
    index = Index.of("A lamp. A lens. A horn.", 16, 8)
    assert Index.from_json(json.loads(json.dumps(index.to_json()))) == index
