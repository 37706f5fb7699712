"""How many requests exactly-once takes on an object store: no more than the protocol needs."""

from collections import Counter
from dataclasses import replace
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from lucius.adapters.workspaces.azure_account import Account
from lucius.adapters.workspaces.azure_blob import blobs as blobs_of
from lucius.adapters.workspaces.objects import ObjectWorkspace
from lucius.core.wire import effect_key
from lucius.platform import CommitRecord, Commits, Output, WorkspaceRecords
from lucius.platform.commit import folders
from lucius.platform.messages import Directive, parse_directive
from lucius.platform.task import SMALL, Task


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Every call to the store, by its name: each is one request."""
    seen: Counter[str] = Counter()
    for name in ("get_async", "put_async", "head_async", "delete_async", "list"):
        real = getattr(obstore, name)

        def counted(*args: Any, _name: str = name, _real: Any = real, **options: Any) -> Any:
            seen[_name.removesuffix("_async")] += 1
            return _real(*args, **options)

        monkeypatch.setattr(obstore, name, counted)
    return seen


async def blobs(requests: Counter[str]) -> ObjectWorkspace:
    """Its containers are written to already: at first use, more is asked of a store."""
    store = MemoryStore()
    account = Account("name", "https://name.blob.core.windows.net", {"account_key": "a2V5"})
    stores = replace(blobs_of(account), open=lambda container: store)
    opened = ObjectWorkspace([stores], home="az://jobs", writable=["az://results"])
    for container in ("jobs", "results"):
        await opened.create(f"az://{container}/first", b"")
    requests.clear()
    return opened


def directive(attempt_no: int = 1, **fields: Any) -> Directive:
    return parse_directive(
        {
            "jobId": "job_1",
            "stepId": "ocr",
            "step_type": "OCR",
            "tenant_id": "a",
            "lease_id": f"l{attempt_no}",
            "attempt_no": attempt_no,
            "lane": 4,
            "workspace_ref": "az://jobs/lucius/a/job_1/",
            "effect_key": effect_key("job_1", "ocr", "x", {}),
            **fields,
        }
    )


async def served(blobs: ObjectWorkspace, given: Directive, content: bytes = b"small") -> None:
    """What the kit does between ACK and RESULT."""
    own = blobs.within(*folders(given))
    commits = Commits(own)

    async def propose() -> tuple[CommitRecord, int]:
        task = Task(given, {}, own)
        await task.stage("output.txt", content)
        return await commits.commit(given, "worker", Output(), task.staged)

    await commits.once(given, propose, lambda: True)


async def test_a_small_output_takes_three(requests: Counter[str]) -> None:
    await served(await blobs(requests), directive())
    assert requests == {"get": 1, "put": 2}, "a look for a redrive, the record, the output"


async def test_a_second_attempt_looks_for_the_record_of_the_first(requests: Counter[str]) -> None:
    await served(await blobs(requests), directive(2))
    assert requests == {"get": 2, "put": 2}


async def test_one_that_the_client_wants_elsewhere_takes_two_more(requests: Counter[str]) -> None:
    await served(await blobs(requests), directive(final_step=True, output_ref="az://results/a.txt"))
    assert requests == {"get": 2, "put": 3}


async def test_a_large_output_is_written_and_read_once_more(requests: Counter[str]) -> None:
    await served(await blobs(requests), directive(), bytes(SMALL + 1))
    assert requests == {"get": 3, "put": 3}, "staged, read again, and a second look for a redrive"


async def test_who_finds_the_record_looks_once_at_each_place(requests: Counter[str]) -> None:
    store = await blobs(requests)
    await served(store, directive())
    requests.clear()
    await served(store, directive(2))
    assert requests == {"get": 3, "put": 2}


async def test_the_records_of_an_attempt_take_two(requests: Counter[str]) -> None:
    records = WorkspaceRecords(await blobs(requests))
    assert (await records.begin(directive(), "worker")).mine
    await records.finish(directive(), {"status": "SUCCEEDED"})
    assert requests == {"put": 2}


async def test_at_first_use_a_container_is_asked_for_its_conditions(
    requests: Counter[str],
) -> None:
    objects = await blobs(requests)
    digest = await objects.digest("az://jobs/first")
    assert digest is not None
    requests.clear()
    assert await objects.replace("az://jobs/first", b"x", digest)
    assert requests == {"get": 1, "put": 2}
