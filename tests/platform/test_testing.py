"""What teams test their services with: one step, without a server."""

import pytest

from lucius.platform import Output, Service, SyncTask, Task
from lucius.platform.errors import ObjectMissingError, OutputMissingError
from lucius.platform.testing import executed


class Joining(Service):
    name, step_types = "join", ("JOIN",)

    async def execute(self, task: Task) -> Output:
        for step_id in task.earlier:
            await task.stage(f"{step_id}.txt", await task.previous(step_id))
        await task.stage("all.txt", await task.input())
        return Output(name="all.txt")


class Plain(Service):
    name, step_types, commit = "plain", ("PLAIN",), False

    def execute(self, task: SyncTask) -> Output:
        return Output(ref=f"{task.tenant_id} {task.input().decode()}")


class Idle(Service):
    name, step_types = "idle", ("IDLE",)

    async def execute(self, task: Task) -> None: ...


def test_a_step_reads_what_it_is_given_and_shows_what_it_staged() -> None:
    done = executed(Joining(), input="in", previous={"ocr": "text"})
    assert (done.output, dict(done.staged)) == (b"in", {"ocr.txt": b"text", "all.txt": b"in"})


def test_a_large_output_is_shown_too() -> None:
    text = "long " * 200_000
    assert executed(Joining(), input=text).output == text.encode()


def test_a_plain_function_without_outputs_gives_its_reference() -> None:
    done = executed(Plain(), input="in", tenant_id="acme")
    assert (done.given.ref, done.output) == ("acme in", None)


def test_a_missing_document_and_a_missing_output_fail_as_they_would() -> None:
    with pytest.raises(ObjectMissingError):
        executed(Joining(), input=None)
    with pytest.raises(OutputMissingError):
        executed(Idle())
