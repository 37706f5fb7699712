"""For unit tests of a service: `executed` runs `execute()` on a document, without server, bus or files."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from lucius.platform.bodies import InAThread, OnTheLoop
from lucius.platform.commit import check_output, main_output
from lucius.platform.messages import parse_directive
from lucius.platform.service import Output, Service
from lucius.platform.task import Task
from lucius.ports.workspace import Workspace

_ROOT: Final = "test://job"
_INPUT: Final = f"{_ROOT}/input"


@dataclass(frozen=True, slots=True)
class Executed:
    """`output`: the bytes of the staged object that is the step's output, or None. `staged`: all, by name."""

    given: Output
    output: bytes | None
    staged: Mapping[str, bytes]


class Objects:
    """As much of a workspace as a task needs."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self.objects = dict(objects)

    async def read(self, uri: str) -> bytes | None:
        return self.objects.get(uri)

    async def size(self, uri: str) -> int | None:
        found = self.objects.get(uri)
        return None if found is None else len(found)

    async def write(self, uri: str, data: bytes) -> None:
        self.objects[uri] = data


def executed(
    service: Service,
    *,
    input: bytes | str | None = b"",
    payload: Any = None,
    previous: Mapping[str, bytes | str] | None = None,
    **fields: Any,
) -> Executed:
    """Run one step and return what it staged. It raises what `execute()` raises.

    `input` None: the document is missing. `previous`: outputs of earlier steps, by step id. Other
    `fields` go into the directive. Limits of time, memory and processes are not in force.
    """
    earlier = {f"{_ROOT}/{name}": _bytes(data) for name, data in (previous or {}).items()}
    objects = Objects(earlier | ({} if input is None else {_INPUT: _bytes(input)}))
    step_type = service.step_types[0]
    body = {
        "jobId": "job_test",
        "stepId": step_type.lower(),
        "tenant_id": "test",
        "step_type": step_type,
        "lease_id": "lease",
        "attempt_no": 1,
        "reply_topic": "replies",
        "workspace_ref": {"uri": f"{_ROOT}/"},
        "input_ref": {"uri": _INPUT},
        "previous": {name: {"uri": f"{_ROOT}/{name}"} for name in previous or {}},
        **fields,
    }
    given = {} if payload is None else payload
    task = Task(
        parse_directive(body), given, cast(Workspace, objects), input_limit=service.input_limit
    )
    run = InAThread(service) if service.blocking else OnTheLoop(service)
    output = check_output(asyncio.run(_awaited(run, task)) or Output())
    staged = {
        name: objects.objects[each.uri] if each.content is None else each.content
        for name, each in task.staged.items()
    }
    found = tuple(task.staged.values())
    main = main_output(output, found) if service.commit else None
    return Executed(output, None if main is None else staged[main.name], staged)


async def _awaited(run: OnTheLoop, task: Task) -> Output | None:
    return await run(task)


def _bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data
