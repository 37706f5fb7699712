"""Exactly-once effects: one commit record for each effect, and a promotion that anyone may finish.

Executions may happen twice; an effect does not. Creating the record, if it is absent, is the one
moment that decides whose staged output counts.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Self

from lucius.core.errors import WorkspaceError
from lucius.platform.directive import Directive, uri_of
from lucius.platform.errors import CommittedOutputLostError, FatalError
from lucius.platform.service import Output
from lucius.platform.task import Staged
from lucius.ports.workspace import Workspace

COMMITS: Final = "_commits/"


@dataclass(frozen=True, slots=True)
class Promotion:
    """A staged object, by its content, and the places where it must appear."""

    staged: str
    sha256: str
    size: int
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The winner of an effect: which attempt, what it made, and the result that everyone reports."""

    effect_key: str
    job_id: str
    step_id: str
    attempt_no: int
    lease_id: str
    worker_id: str
    output_ref: Any
    promotions: tuple[Promotion, ...]

    def encoded(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["promotions"] = [
            {"staged": p.staged, "sha256": p.sha256, "size": p.size, "targets": p.targets}
            for p in self.promotions
        ]
        return json.dumps(fields).encode()

    @classmethod
    def decoded(cls, data: bytes) -> "CommitRecord":
        fields = json.loads(data)
        promotions = tuple(
            Promotion(p["staged"], p["sha256"], p["size"], tuple(p["targets"]))
            for p in fields["promotions"]
        )
        known = {name: fields[name] for name in cls.__slots__ if name != "promotions"}
        return cls(**known, promotions=promotions)


def origin(directive: Directive) -> str:
    """The workspace of the job where the effect began: a redriven job meets its record there."""
    root, workspace = directive.effect_key.partition(":")[0], directive.workspace
    own = f"/{directive.job_id}/"
    if root and root != directive.job_id and workspace.endswith(own):
        return f"{workspace[: -len(own)]}/{root}/"
    return workspace


def record_uri(directive: Directive) -> str:
    name = sha256(directive.effect_key.encode()).hexdigest()[:32]
    return f"{origin(directive)}{COMMITS}{name}.json"


def folders(directive: Directive) -> tuple[str, ...]:
    """The workspaces that a job may touch: its own, and the one where its effect began."""
    own, root = directive.workspace, origin(directive)
    return (own,) if root == own else (own, root)


class Commits:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def within(self, *folders: str) -> Self:
        """The same, where only these workspaces of jobs can be reached."""
        scoped = copy.copy(self)
        scoped._workspace = self._workspace.within(*folders)
        return scoped

    async def find(self, directive: Directive) -> CommitRecord | None:
        data = await self._workspace.read(record_uri(directive))
        if data is None:
            return None
        try:
            return CommitRecord.decoded(data)
        except (ValueError, KeyError, TypeError) as error:
            raise FatalError(
                f"{record_uri(directive)} cannot be read: {error}", code="COMMIT_RECORD_CORRUPT"
            ) from error

    async def commit(
        self, directive: Directive, worker_id: str, output: Output, staged: Mapping[str, Staged]
    ) -> CommitRecord:
        """Propose this attempt as the winner. The answer is the winner's record, whoever it is."""
        proposed = self._proposal(directive, worker_id, output, tuple(staged.values()))
        if await self._workspace.create(record_uri(directive), proposed.encoded()):
            return proposed
        found = await self.find(directive)
        if found is None:
            raise WorkspaceError(f"{record_uri(directive)} is there and cannot be found")
        return found

    def _proposal(
        self, directive: Directive, worker_id: str, output: Output, staged: Sequence[Staged]
    ) -> CommitRecord:
        main = _main(output, staged)
        promotions = tuple(
            Promotion(
                item.uri, item.sha256, item.size, self._targets(directive, item, item is main)
            )
            for item in staged
        )
        reference = output.ref
        if main is not None and reference is None:
            chosen = promotions[staged.index(main)]
            reference = {"uri": chosen.targets[-1], "sha256": chosen.sha256, "size": chosen.size}
        return CommitRecord(directive.effect_key, *directive.key, worker_id, reference, promotions)

    def _targets(self, directive: Directive, item: Staged, main: bool) -> tuple[str, ...]:
        """Its place in the workspace; for the last step's output also where the client wants it."""
        promoted = f"{directive.workspace}{directive.folder}{item.name}"
        wanted = uri_of(directive.body.get("output_ref"))
        if not main or not directive.body.get("final_step") or wanted is None:
            return (promoted,)
        wanted += item.name if wanted.endswith("/") else ""
        return (promoted, wanted) if self._workspace.writable(wanted) else (promoted,)

    async def promote(self, record: CommitRecord) -> None:
        """Put every output in its places. Idempotent: whoever meets the record does it again."""
        for promotion in record.promotions:
            content: bytes | None = None
            for target in promotion.targets:
                if _same(await self._workspace.read(target), promotion):
                    continue
                content = content or await self._staged(promotion)
                await self._workspace.write(target, content)

    async def _staged(self, promotion: Promotion) -> bytes:
        content = await self._workspace.read(promotion.staged)
        if content is None or not _same(content, promotion):
            raise CommittedOutputLostError(f"{promotion.staged} is not what was committed")
        return content


def _main(output: Output, staged: Sequence[Staged]) -> Staged | None:
    if output.name is None:
        return staged[0] if staged else None
    for item in staged:
        if item.name == output.name:
            return item
    raise FatalError(f"the output {output.name!r} was not staged", code="OUTPUT_NOT_STAGED")


def _same(content: bytes | None, promotion: Promotion) -> bool:
    if content is None or len(content) != promotion.size:
        return False
    return sha256(content).hexdigest() == promotion.sha256
