"""A worker in a process of its own that commits an output in a bucket: `ROOT ATTEMPT WORDS [die]`.

With `die` the process is killed as soon as the commit record is there.
"""

import asyncio
import os
import signal
import sys
from typing import Any
from unittest.mock import patch

from lucius.adapters.workspaces.objects import ObjectWorkspace
from lucius.app.adapters import open_workspace
from lucius.app.settings import load_settings
from lucius.core.wire import effect_key
from lucius.platform import CommitRecord, Commits, Output
from lucius.platform.commit import folders
from lucius.platform.messages import Directive, parse_directive
from lucius.platform.task import Task
from lucius.ports.workspace import Workspace


def directive(root: str, attempt_no: int) -> Directive:
    return parse_directive(
        {
            "jobId": "job_1",
            "stepId": "ocr",
            "step_type": "OCR",
            "tenant_id": "a",
            "lease_id": f"l{attempt_no}",
            "attempt_no": attempt_no,
            "lane": 4,
            "workspace_ref": f"{root}lucius/a/job_1/",
            "effect_key": effect_key("job_1", "ocr", "x", {}),
        }
    )


async def work(workspace: Workspace, given: Directive, content: bytes) -> tuple[CommitRecord, bool]:
    """What the kit does between ACK and RESULT, and whether anything was executed."""
    own, executed = workspace.within(*folders(given)), False
    commits = Commits(own)

    async def propose() -> tuple[CommitRecord, int]:
        nonlocal executed
        executed = True
        task = Task(given, {}, own)
        await task.stage("output.txt", content)
        return await commits.commit(given, f"worker {given.attempt_no}", Output(), task.staged)

    return await commits.once(given, propose, lambda: True), executed


async def _main(root: str, attempt_no: str, words: str, *die: str) -> None:
    create = ObjectWorkspace.create

    async def created(self: ObjectWorkspace, uri: str, data: bytes) -> bool:
        found = await create(self, uri, data)
        os.kill(os.getpid(), signal.SIGKILL)
        return found

    workspace = open_workspace(load_settings({**os.environ, "LUCIUS_WORKSPACE_URL": root}))
    given: Any = patch.object(ObjectWorkspace, "create", created if die else create)
    with given:
        record, _ = await work(workspace, directive(root, int(attempt_no)), words.encode())
    print(record.worker_id)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
    sys.stdout.flush()
    os._exit(
        0
    )  # as every process of LUCIUS ends: a thread of the library may still want the interpreter
