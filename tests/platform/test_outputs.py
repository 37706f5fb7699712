"""What a service gives back and where it goes: nothing is claimed that is not there, or replaced unasked."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.platform import Output, Service, Task
from lucius.platform.commit import COMMITS, REDRIVES
from lucius.platform.messages import parse_directive
from tests.platform.bench import Bench, Writer, on_the_bench

WORKSPACE = "mem://lucius/tenant_a/job_1/"
WANTED = "mem://client/out.txt"
LAST = {"final_step": True, "output_ref": {"uri": WANTED}}


class Gives(Service):
    """Gives back what it is told, after it has staged what it is told."""

    name = "ocr"
    step_types = ("OCR",)

    def __init__(self, given: Any, staged: str | None = None, *, commit: bool = True) -> None:
        self.commit = commit
        self._given, self._staged = given, staged

    async def execute(self, task: Task) -> Output | None:
        if self._staged is not None:
            await task.stage("output.txt", self._staged)
        given: Output | None = self._given
        return given


async def failed(bench: Bench, service: Service, **fields: Any) -> str:
    """The code that a step fails with, for good and before anything is committed."""
    await bench.runner(service)
    await bench.send(1, **fields)
    result = await bench.result()
    assert result["status"] == "FAILED_FINAL"
    assert not [uri for uri in bench.workspace.objects if COMMITS in uri]
    code: str = result["error"]["code"]
    return code


# -- is there an output? -----------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, Output()])
def test_nothing_staged_and_nothing_named_is_no_success(given: Output | None) -> None:
    @on_the_bench
    async def story(bench: Bench) -> None:
        assert await failed(bench, Gives(given), **LAST) == "OUTPUT_MISSING"

    story()


@on_the_bench
async def test_a_service_without_outputs_says_that_there_is_none(bench: Bench) -> None:
    await bench.runner(Gives(None, commit=False))
    await bench.send(1, **LAST)
    result = await bench.result()
    assert (result["status"], result["output_ref"]) == ("SUCCEEDED", None)


@on_the_bench
async def test_what_is_staged_and_never_committed_is_no_success(bench: Bench) -> None:
    assert await failed(bench, Gives(None, "text", commit=False)) == "INVALID_OUTPUT"


@on_the_bench
async def test_an_output_reference_that_nobody_can_write_to_fails_the_step(bench: Bench) -> None:
    fields = {"final_step": True, "output_ref": "s3://bucket/out.txt"}
    assert await failed(bench, Writer(), **fields) == "OUTPUT_NOT_WRITABLE"


@on_the_bench
async def test_a_service_may_put_its_output_elsewhere_and_say_so(bench: Bench) -> None:
    await bench.runner(Gives(Output("s3://bucket/out.txt"), "a draft"))
    await bench.send(1, final_step=True, output_ref="s3://bucket/out.txt")
    assert (await bench.result())["output_ref"] == "s3://bucket/out.txt"


# -- can it be reported? -----------------------------------------------------------------------


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


NOT_JSON: Mapping[str, Any] = {
    "not a number": Output({"score": math.nan}),
    "infinite": Output([math.inf]),
    "bytes": Output(b"s3://bucket/x"),
    "an object": Output(object()),
    "a mapping that JSON does not know": Output(MappingProxyType({"uri": "s3://b/x"})),
    "a lone surrogate": Output({"uri": "\ud800"}),
    "a name that is no text": Output({1: "x"}),
    "a huge integer": Output(2**70),
    "too deep": Output(nested(40)),
    "too long": Output("s3://bucket/" + "x" * 3000),
    "too large": Output(["x" * 100] * 100),
    "not an output": {"uri": "s3://bucket/x"},
    "a string": "s3://bucket/x",
}


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("given", NOT_JSON.values(), ids=NOT_JSON)
def test_what_cannot_be_reported_fails_the_step_and_poisons_nothing(
    given: Any, commit: bool
) -> None:
    @on_the_bench
    async def story(bench: Bench) -> None:
        assert await failed(bench, Gives(given, commit=commit)) == "INVALID_OUTPUT"

    story()


@on_the_bench
async def test_a_record_that_was_poisoned_before_is_named(bench: Bench) -> None:
    await bench.runner(Writer())
    body = await bench.send(1)
    await bench.result(1)
    (record,) = [uri for uri in bench.workspace.objects if COMMITS in uri]
    text = bench.workspace.objects[record].decode()
    assert parse_directive(body).effect_key in text
    bench.workspace.objects[record] = text.replace('"attempt_no":1', '"attempt_no":NaN').encode()
    await bench.send(2)
    assert (await bench.result(2))["error"]["code"] == "COMMIT_RECORD_CORRUPT"


# -- what stands where it should go ------------------------------------------------------------


@on_the_bench
async def test_a_file_that_lucius_did_not_write_is_never_replaced(bench: Bench) -> None:
    bench.workspace.objects[WANTED] = b"alias ls='ls -l'"
    assert await failed(bench, Writer(), **LAST) == "OUTPUT_EXISTS"
    assert bench.workspace.objects[WANTED] == b"alias ls='ls -l'"


@on_the_bench
async def test_it_is_replaced_where_the_command_says_so(bench: Bench) -> None:
    bench.workspace.objects[WANTED] = b"an earlier result"
    await bench.runner(Writer())
    await bench.send(1, **LAST, overwrite=True)
    assert (await bench.result())["output_ref"]["uri"] == WANTED
    assert bench.workspace.objects[WANTED] == b"by attempt 1"


@on_the_bench
async def test_a_job_may_write_its_own_output_again(bench: Bench) -> None:
    await bench.runner(Writer())
    await bench.send(1, **LAST)
    await bench.result(1)
    await bench.send(2, **LAST, redrive_no=1, effect_key="job_1:ocr:corrected")
    assert (await bench.result(2))["status"] == "SUCCEEDED"
    assert bench.workspace.objects[WANTED] == b"by attempt 2"


@on_the_bench
async def test_another_job_may_not(bench: Bench) -> None:
    await bench.runner(Writer())
    await bench.send(1, **LAST)
    await bench.result(1)
    await bench.send(2, jobId="job_2", **LAST)
    assert (await bench.result(2))["error"]["code"] == "OUTPUT_EXISTS"
    assert bench.workspace.objects[WANTED] == b"by attempt 1"


@on_the_bench
async def test_what_its_user_changed_since_is_not_replaced(bench: Bench) -> None:
    await bench.runner(Writer())
    await bench.send(1, **LAST)
    await bench.result(1)
    bench.workspace.objects[WANTED] = b"with notes in the margin"
    await bench.send(2, **LAST)
    assert (await bench.result(2))["error"]["code"] == "OUTPUT_EXISTS"
    assert bench.workspace.objects[WANTED] == b"with notes in the margin"


class Intruded(MemoryWorkspace):
    """Someone else's file appears at the last moment before ours."""

    async def create(self, uri: str, data: bytes) -> bool:
        if uri == WANTED:
            self.objects.setdefault(uri, b"someone else's")
        return await super().create(uri, data)


@on_the_bench
async def test_a_file_that_appears_after_the_commit_is_not_replaced_either(bench: Bench) -> None:
    workspace = Intruded()
    await bench.runner(Writer(), workspace=workspace)
    await bench.send(1, **LAST)
    assert (await bench.result())["error"]["code"] == "OUTPUT_EXISTS"
    assert workspace.objects[WANTED] == b"someone else's"


# -- places and redrives --------------------------------------------------------------------------


@on_the_bench
async def test_each_step_has_the_folder_that_its_directive_names(bench: Bench) -> None:
    await bench.runner(Writer())
    await bench.send(1, stepId="front", output_folder="front", effect_key="job_1:front:1")
    await bench.send(1, stepId="back", output_folder="back", effect_key="job_1:back:1")
    results = await bench.replies("RESULT", 2)
    places = {result["stepId"]: result["output_ref"]["uri"] for result in results}
    assert places == {name: f"{WORKSPACE}{name}/output.txt" for name in ("front", "back")}


@pytest.mark.parametrize("folder", ["../../job_2", "", "..", 7, None])
def test_a_folder_that_leads_out_is_no_directive(folder: Any) -> None:
    @on_the_bench
    async def story(bench: Bench) -> None:
        await bench.runner(Writer())
        await bench.send(1, output_folder=folder)
        await bench.send(2)
        results = await bench.replies("RESULT", 2)
        assert sorted(each["status"] for each in results) == ["FAILED_FINAL", "SUCCEEDED"]
        assert [reason for _, reason in await bench.dead()] == ["INVALID_DIRECTIVE"]

    story()


@on_the_bench
async def test_an_earlier_job_commits_nothing_once_a_redrive_is_there(bench: Bench) -> None:
    await bench.runner(Writer())
    await bench.send(1, **LAST, redrive_no=2, effect_key="job_1:ocr:corrected")
    await bench.result(1)
    marks = [uri for uri in bench.workspace.objects if REDRIVES in uri]
    assert marks == [f"{WORKSPACE}{REDRIVES}ocr/{n}.json" for n in (1, 2)]
    before = dict(bench.workspace.objects)
    for attempt_no, redrive_no in ((2, 0), (3, 1)):
        await bench.send(attempt_no, **LAST, redrive_no=redrive_no)
        assert (await bench.result(attempt_no))["error"]["code"] == "SUPERSEDED"
    staged = {uri for uri in bench.workspace.objects if "/lease_" in uri}
    assert {u: c for u, c in bench.workspace.objects.items() if u in before} == before
    assert set(bench.workspace.objects) == set(before) | staged
