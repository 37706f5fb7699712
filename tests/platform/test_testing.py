"""What teams test their services with: one step, without a server."""

import pytest

from lucius.platform import Output, Service, Task
from lucius.platform.errors import ObjectMissingError, OutputMissingError
from lucius.platform.testing import executed


class Joining(Service):
    name, step_types = "join", ("JOIN",)

    async def execute(self, task: Task) -> Output:
        for step_id in task.earlier:
            await task.stage(f"{step_id}.txt", await task.previous(step_id))
        await task.stage("all.txt", await task.input())
        return Output(name="all.txt")


class Idle(Service):
    name, step_types = "idle", ("IDLE",)

    async def execute(self, task: Task) -> None: ...


def test_a_step_reads_what_it_is_given_and_shows_what_it_staged() -> None:
    done = executed(Joining(), input="in", previous={"ocr": "text"})
    assert (done.output, dict(done.staged)) == (b"in", {"ocr.txt": b"text", "all.txt": b"in"})


def test_a_missing_document_and_a_missing_output_fail_as_they_would() -> None:
    with pytest.raises(ObjectMissingError):
        executed(Joining(), input=None)
    with pytest.raises(OutputMissingError):
        executed(Idle())
