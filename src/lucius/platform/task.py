"""What `execute()` is given: the directive's fields, the objects to read, and a place to write."""

import asyncio
from collections.abc import Coroutine, Mapping
from hashlib import sha256
from typing import Any, Final, Protocol, TypeVar

from lucius.core.record import record
from lucius.platform.errors import (
    FatalError,
    ObjectMissingError,
    ObjectTooLargeError,
    StepCancelledError,
)
from lucius.platform.messages import Directive, uri_of
from lucius.ports.workspace import RECORD_FOLDERS, Workspace

INLINE_BYTES: Final = 1024 * 1024
SMALL: Final = 64 * 1024
"""An output of at most so many bytes is not written before it is committed: the record holds it."""
SMALL_TOGETHER: Final = 256 * 1024
"""So many bytes of one attempt's outputs at most."""


@record
class Staged:
    """What an attempt has made and what is not yet the step's output."""

    name: str
    uri: str
    sha256: str
    size: int
    content: bytes | None = None
    """Of a small output. A larger one has been written to `uri`."""


class Task:
    """One attempt of one step. Staging may be repeated; nothing counts before it is committed."""

    def __init__(
        self,
        directive: Directive,
        payload: Any,
        workspace: Workspace,
        input_limit: int | None = None,
    ) -> None:
        self._directive = directive
        self._workspace = workspace
        self._input_limit = input_limit
        self._cancelled: asyncio.Event | None = None
        self.payload = payload
        self.cancel_requested = False
        self.progress: str | None = None
        self.staged: dict[str, Staged] = {}

    @property
    def job_id(self) -> str:
        return self._directive.job_id

    @property
    def step_id(self) -> str:
        return self._directive.step_id

    @property
    def step_type(self) -> str:
        return self._directive.step_type

    @property
    def tenant_id(self) -> str:
        return self._directive.tenant_id

    @property
    def attempt_no(self) -> int:
        return self._directive.attempt_no

    @property
    def lease_id(self) -> str:
        return self._directive.lease_id

    @property
    def effect_key(self) -> str:
        """The same for every attempt of this step: hand it to systems that deduplicate."""
        return self._directive.effect_key

    @property
    def directive(self) -> Mapping[str, Any]:
        """The whole message, with the fields that this version does not know."""
        return self._directive.body

    # -- reading -----------------------------------------------------------------------------

    async def read(self, reference: Any) -> bytes:
        uri = uri_of(reference)
        if uri is None:
            raise ObjectMissingError(f"{reference!r} is not a reference")
        for each in self.staged.values():
            if each.uri == uri and each.content is not None:
                return each.content
        if (
            self._input_limit is not None
        ):  # it is read whole, into this process: so it is looked at first
            self._check_size(uri, await self._workspace.size(uri))
        data = await self._workspace.read(uri)
        if data is None:
            raise ObjectMissingError(f"there is no object {uri}")
        self._check_size(uri, len(data))
        return data

    def _check_size(self, uri: str, size: int | None) -> None:
        limit = self._input_limit
        if limit is not None and size is not None and size > limit:
            raise ObjectTooLargeError(f"{uri} has {size} bytes; {limit} are read at most")

    async def input(self) -> bytes:
        """The document that the job is about."""
        return await self.read(self.directive.get("input_ref"))

    @property
    def earlier(self) -> Mapping[str, Any]:
        """References to the outputs of the stages before this one, by step id, in order."""
        previous = self.directive.get("previous")
        return previous if isinstance(previous, Mapping) else {}

    async def previous(self, step_id: str) -> bytes:
        """The output of an earlier step."""
        if step_id not in self.earlier:
            raise ObjectMissingError(f"no step {step_id} comes before {self.step_id}")
        return await self.read(self.earlier[step_id])

    async def latest(self) -> bytes:
        """The output of the last step before this one; for the first step, the input."""
        references = [uri for uri in map(uri_of, self.earlier.values()) if uri is not None]
        return await (self.read(references[-1]) if references else self.input())

    # -- writing -----------------------------------------------------------------------------

    async def stage(self, name: str, data: bytes | str) -> str:
        """Make an output under this attempt. It becomes the step's output when it is committed."""
        parts = name.split("/")
        if not all(parts) or {".", "..", *RECORD_FOLDERS} & set(parts) or parts[0].isdigit():
            raise FatalError(f"{name!r} cannot name an output", code="INVALID_OUTPUT_NAME")
        content = data.encode() if isinstance(data, str) else bytes(data)
        uri = self._directive.staging + name
        small = self._is_small(name, content)
        if not small:
            await self._workspace.write(uri, content)
        kept = content if small else None
        self.staged[name] = Staged(name, uri, await _sha256(content), len(content), kept)
        return uri

    def _is_small(self, name: str, content: bytes) -> bool:
        others = (each for each in self.staged.values() if each.name != name)
        kept = sum(each.size for each in others if each.content is not None)
        return len(content) <= SMALL and kept + len(content) <= SMALL_TOGETHER

    # -- telling -----------------------------------------------------------------------------

    def report(self, progress: str) -> None:
        """Say how far the work is: the next heartbeat carries it, and `lucius why` shows the last."""
        self.progress = str(progress).encode("utf-8", "replace").decode()

    # -- cancelling --------------------------------------------------------------------------

    def request_cancel(self) -> None:
        """For the kit: the orchestrator said that the job is being cancelled."""
        self.cancel_requested = True
        if self._cancelled is not None:
            self._cancelled.set()

    def check_cancelled(self) -> None:
        """Raise StepCancelledError if the job is being cancelled. Call it between pieces of work."""
        if self.cancel_requested:
            raise StepCancelledError("the job is being cancelled")

    async def until_cancelled(self) -> None:
        """Return when the job is being cancelled."""
        if self._cancelled is None:
            self._cancelled = asyncio.Event()
            if self.cancel_requested:
                self._cancelled.set()
        await self._cancelled.wait()


async def _sha256(content: bytes) -> str:
    """Much is hashed beside the loop, which has others to serve."""
    if len(content) <= INLINE_BYTES:
        return sha256(content).hexdigest()
    return await asyncio.to_thread(lambda: sha256(content).hexdigest())


# What a plain `def execute()` is given: the same as a Task, where reading and staging simply return.

T = TypeVar("T")


class WaitFor(Protocol):
    """Waits for a coroutine of the task, from a thread that is not the loop's."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


class SyncTask:
    """One attempt of one step, for code that runs beside the event loop."""

    def __init__(self, task: Task, wait: WaitFor) -> None:
        self._task = task
        self._wait = wait

    @property
    def payload(self) -> Any:
        return self._task.payload

    @property
    def job_id(self) -> str:
        return self._task.job_id

    @property
    def step_id(self) -> str:
        return self._task.step_id

    @property
    def step_type(self) -> str:
        return self._task.step_type

    @property
    def tenant_id(self) -> str:
        return self._task.tenant_id

    @property
    def attempt_no(self) -> int:
        return self._task.attempt_no

    @property
    def lease_id(self) -> str:
        return self._task.lease_id

    @property
    def effect_key(self) -> str:
        return self._task.effect_key

    @property
    def directive(self) -> Mapping[str, Any]:
        return self._task.directive

    @property
    def earlier(self) -> Mapping[str, Any]:
        return self._task.earlier

    @property
    def cancel_requested(self) -> bool:
        return self._task.cancel_requested

    def report(self, progress: str) -> None:
        """As `Task.report`."""
        self._task.report(progress)

    def check_cancelled(self) -> None:
        """Raise StepCancelledError if the job is being cancelled. Call it between pieces of work."""
        self._task.check_cancelled()

    def read(self, reference: Any) -> bytes:
        return self._wait(self._task.read(reference))

    def input(self) -> bytes:
        return self._wait(self._task.input())

    def previous(self, step_id: str) -> bytes:
        return self._wait(self._task.previous(step_id))

    def latest(self) -> bytes:
        return self._wait(self._task.latest())

    def stage(self, name: str, data: bytes | str) -> str:
        return self._wait(self._task.stage(name, data))
