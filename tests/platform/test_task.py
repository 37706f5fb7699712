"""What a task offers to `execute()`: the payload, the objects, the staging place."""

from dataclasses import dataclass
from typing import Any

import pytest

from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.platform import (
    FatalError,
    InvalidPayloadError,
    ObjectMissingError,
    Task,
)
from lucius.platform.commit import folders
from lucius.platform.messages import parse_directive
from lucius.platform.service import parse_payload
from lucius.platform.task import SMALL, SMALL_TOGETHER
from tests.platform.bench import Bench, Writer, on_the_bench


@dataclass(frozen=True)
class Options:
    prompts: list[str]
    pages: int | None = None
    ratio: float = 1.0
    exact: bool = False

    def validate(self) -> None:
        if not self.prompts:
            raise ValueError("/prompts: at least one")


def test_a_payload_becomes_the_teams_dataclass() -> None:
    parsed = parse_payload(Options, {"prompts": ["a"], "pages": 2, "ratio": 2, "new_field": 1})
    assert parsed == Options(["a"], 2, 2)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, "/prompts: field required"),
        ({"prompts": "a"}, "/prompts: input should be a valid array"),
        ({"prompts": ["a", 1]}, "/prompts/1: input should be a valid string"),
        ({"prompts": []}, "/prompts: at least one"),
        ({"prompts": ["a"], "pages": True}, "/pages: input should be a valid integer"),
        ({"prompts": ["a"], "exact": 1}, "/exact: input should be a valid boolean"),
        ([], "/: input should be an object"),
    ],
)
def test_a_wrong_payload_names_its_field_and_is_fatal(payload: Any, message: str) -> None:
    with pytest.raises(InvalidPayloadError, match=message) as caught:
        parse_payload(Options, payload)
    assert isinstance(caught.value, FatalError)


@on_the_bench
async def test_a_wrong_payload_fails_the_step_before_it_starts(bench: Bench) -> None:
    class Strict(Writer):
        payload_model = Options

    writer = Strict()
    await bench.runner(writer)
    await bench.send(1, payload={"prompts": 3})
    result = await bench.result()
    assert (result["status"], result["error"]["code"]) == ("FAILED_FINAL", "INVALID_PAYLOAD")
    assert writer.begun == []


async def test_an_object_beyond_the_limit_of_its_service_is_not_read() -> None:
    task, workspace = _task(input_limit=8)
    workspace.objects |= {"mem://fits": bytes(8), "mem://large": bytes(9)}
    assert await task.read("mem://fits") == bytes(8)
    with pytest.raises(FatalError, match="mem://large has 9 bytes; 8 are read") as refused:
        await task.read("mem://large")
    assert refused.value.code == "OBJECT_TOO_LARGE"


async def test_one_whose_size_nobody_tells_is_measured_once_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def untold(self: MemoryWorkspace, uri: str) -> None: ...

    monkeypatch.setattr(MemoryWorkspace, "size", untold)
    task, workspace = _task(input_limit=8)
    workspace.objects |= {"mem://fits": bytes(8), "mem://large": bytes(9)}
    assert await task.read("mem://fits") == bytes(8)
    with pytest.raises(FatalError, match="mem://large has 9 bytes; 8 are read"):
        await task.read("mem://large")


def _task(*, input_limit: int | None = None, **fields: Any) -> tuple[Task, MemoryWorkspace]:
    workspace = MemoryWorkspace()
    body = {
        "jobId": "job_1",
        "stepId": "sis",
        "tenant_id": "tenant_a",
        "step_type": "SIS",
        "attempt_no": 2,
        "lease_id": "l9",
        "lane": 4,
        "workspace_ref": {"uri": "mem://w/job_1"},
        "input_ref": "mem://in",
    }
    return Task(parse_directive(body | fields), {}, workspace, input_limit), workspace


@pytest.mark.parametrize(
    ("effect_key", "expected"),
    [
        ("job_1:sis:0", ("mem://w/job_1/",)),
        ("job_0:sis:0", ("mem://w/job_1/", "mem://w/job_0/")),
    ],
)
def test_a_job_may_touch_its_workspace_and_the_one_where_its_effect_began(
    effect_key: str, expected: tuple[str, ...]
) -> None:
    task, _ = _task(effect_key=effect_key)
    assert folders(task._directive) == expected


async def test_a_task_reads_its_input_and_earlier_outputs() -> None:
    previous = {"ocr": {"uri": "mem://ocr"}, "embedding": "mem://vectors"}
    task, workspace = _task(previous=previous)
    workspace.objects.update({"mem://in": b"in", "mem://ocr": b"text", "mem://vectors": b"[]"})
    assert await task.input() == b"in"
    assert await task.previous("ocr") == b"text"
    assert await task.latest() == b"[]"
    with pytest.raises(ObjectMissingError, match="no step other"):
        await task.previous("other")


async def test_a_reference_to_nothing_is_fatal() -> None:
    task, _ = _task()
    for reference in ("mem://nothing", None, {"path": "x"}):
        with pytest.raises(ObjectMissingError):
            await task.read(reference)


async def test_staged_output_lies_under_its_attempt_and_lease() -> None:
    task, workspace = _task()
    uri = await task.stage("parts/result.json", "x" * (SMALL + 1))
    assert uri == "mem://w/job_1/sis/2/l9/parts/result.json"
    assert set(workspace.objects) == {uri}


async def test_a_small_output_is_written_nowhere_before_it_is_committed() -> None:
    task, workspace = _task()
    uri = await task.stage("parts/result.json", "{}")
    assert workspace.objects == {}
    assert await task.read(uri) == b"{}", "the attempt itself can read it"


async def test_many_small_outputs_are_not_all_kept_in_memory() -> None:
    task, workspace = _task()
    for number in range(6):
        await task.stage(f"page{number}.bin", bytes(SMALL))
    assert sum(each.size for each in task.staged.values() if each.content) == SMALL_TOGETHER
    assert len(workspace.objects) == 2
    await task.stage("page0.bin", b"now empty")
    last = await task.stage("page6.bin", bytes(SMALL // 2))
    assert last not in workspace.objects, "there is room for it again"


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a//b", "a/../b", "1/l1/output.txt", "a/_commits/b"]
)
async def test_a_name_that_leaves_its_place_is_refused(name: str) -> None:
    task, _ = _task()
    with pytest.raises(FatalError, match="cannot name an output"):
        await task.stage(name, b"")


@pytest.mark.parametrize(
    ("said", "sent"), [("p. 3", "p. 3"), ("\udcff.pdf", "?.pdf"), (10**30, str(10**30))]
)
def test_progress_is_text_that_every_bus_can_carry(said: Any, sent: str) -> None:
    task, _ = _task()
    task.report(said)
    assert task.progress == sent
