"""Exactly-once effects: one commit record for each effect, and a promotion that anyone may finish.

Executions may happen twice; an effect does not. Creating the record, if it is absent, is the one
moment that decides whose staged output counts. What stands at a place is replaced only by the effect
of a later job of the same origin, and what LUCIUS did not write only if the client said so.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields as dataclass_fields
from hashlib import sha256
from typing import Any, Final, NoReturn, Self

import orjson

from lucius.core.errors import WorkspaceError
from lucius.core.limits import json_faults
from lucius.core.record import record
from lucius.core.wire import MAX_REF, bounded_ref, plain_ref
from lucius.platform.errors import (
    CommittedOutputLostError,
    FatalError,
    InvalidOutputError,
    OutputExistsError,
    OutputMissingError,
    OutputNotWritableError,
    SupersededError,
)
from lucius.platform.messages import Directive, uri_of
from lucius.platform.service import Output
from lucius.platform.task import Staged
from lucius.ports import workspace as ports
from lucius.ports.workspace import Digest, Workspace

# What `execute()` gave back, checked before anything is committed or reported.


def check_output(output: object) -> Output:
    """An `Output` whose `ref` everyone can carry: JSON, and short. A RESULT that is not is lost."""
    if not isinstance(output, Output):
        kind = type(output).__name__
        raise InvalidOutputError(f"execute() gave back a {kind}: give back an Output, or None")
    if output.ref is None or plain_ref(output.ref):
        return output
    for at, reason in json_faults(output.ref):
        raise InvalidOutputError(f"Output.ref{at} {reason}")
    try:
        json.dumps(output.ref)
    except (TypeError, ValueError) as error:
        raise InvalidOutputError(f"Output.ref is not JSON: {error}") from error
    if bounded_ref(output.ref) is not output.ref:
        raise InvalidOutputError(
            f"Output.ref is longer than {MAX_REF} characters: stage the content and refer to it"
        )
    return output


def main_output(output: Output, staged: Sequence[Staged]) -> Staged | None:
    """The staged object that is the step's output; None where it lives elsewhere (`Output.ref`)."""
    if output.name is None:
        if not staged and output.ref is None:
            raise OutputMissingError(
                "execute() staged nothing and named no Output.ref: a service without outputs has"
                " commit = False"
            )
        return staged[0] if staged else None
    for item in staged:
        if item.name == output.name:
            return item
    raise FatalError(f"the output {output.name!r} was not staged", code="OUTPUT_NOT_STAGED")


def uncommitted(output: object, staged: Collection[str]) -> Any:
    """The reference that a service without a commit reports. None says that there is no output."""
    checked = check_output(output)
    if checked.name is not None or (staged and checked.ref is None):
        raise InvalidOutputError(
            "execute() staged an output, and the service has commit = False: nobody would commit it"
        )
    return checked.ref


COMMITS: Final = f"{ports.COMMITS}/"
REDRIVES: Final = f"{ports.REDRIVES}/"
RACES: Final = 10
"""How often a target that others change meanwhile is looked at again."""


@record
class Promotion:
    """A staged object, by its content, and the places where it must appear: the workspace's first."""

    staged: str
    sha256: str
    size: int
    targets: tuple[str, ...]
    content: bytes | None = None
    """Of a small object, which is nowhere else before it is promoted."""

    @property
    def digest(self) -> Digest:
        return Digest(self.sha256, self.size)

    def fields(self) -> dict[str, Any]:
        fields = {
            "staged": self.staged,
            "sha256": self.sha256,
            "size": self.size,
            "targets": self.targets,
        }
        if self.content is not None:
            fields["content"] = b64encode(self.content).decode()
        return fields

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Promotion":
        content = fields.get("content")
        return cls(
            fields["staged"],
            fields["sha256"],
            fields["size"],
            tuple(fields["targets"]),
            None if content is None else b64decode(content, validate=True),
        )


@record
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
        fields = {
            "effect_key": self.effect_key,
            "job_id": self.job_id,
            "step_id": self.step_id,
            "attempt_no": self.attempt_no,
            "lease_id": self.lease_id,
            "worker_id": self.worker_id,
            "output_ref": self.output_ref,
            "promotions": [each.fields() for each in self.promotions],
        }
        return orjson.dumps(fields)

    @classmethod
    def decoded(cls, data: bytes) -> "CommitRecord":
        fields = json.loads(data, parse_constant=_refuse)
        known = {each.name: fields[each.name] for each in dataclass_fields(cls)}
        return cls(**known | {"promotions": tuple(map(Promotion.of, fields["promotions"]))})

    def places(self) -> list[tuple[Promotion, str]]:
        """Where everything must appear: in the workspace first, where nobody else writes."""
        own = [(each, each.targets[0]) for each in self.promotions]
        wanted = [(each, target) for each in self.promotions for target in each.targets[1:]]
        return own + wanted


def record_uri(directive: Directive) -> str:
    name = sha256(directive.effect_key.encode()).hexdigest()[:32]
    return f"{directive.origin}{COMMITS}{name}.json"


def folders(directive: Directive) -> tuple[str, ...]:
    """The workspaces that a job may touch: its own, and the one where its effect began."""
    own, began = directive.workspace, directive.origin
    return (own,) if began == own else (own, began)


Propose = Callable[[], Awaitable[tuple[CommitRecord, int]]]
"""Executes, and commits what came of it: answers as `Commits.commit` does."""


class Commits:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def over(self, workspace: Workspace) -> Self:
        """The same, over a view of the workspace in which only one job's objects can be reached."""
        return self.__class__(workspace)

    async def once(
        self, directive: Directive, propose: Propose, stands: Callable[[], bool]
    ) -> CommitRecord:
        """The effect, in all of its places: that of an earlier attempt, or else the proposed one.

        `stands`: whether the lease does; who has lost it puts nothing anywhere.

        On a first attempt nobody looks for a record before the work, because there is hardly ever one: that
        of a worker which died before its RESULT went out. The proposal meets it; a failure looks for it.
        """
        found, filled = None if directive.first else await self.find(directive), 0
        if found is None:
            try:
                found, filled = await propose()
            except Exception:
                found = await self.find(directive) if directive.first and stands() else None
                if found is None:
                    raise
        await self.promote(directive, found, filled)
        return found

    async def find(self, directive: Directive) -> CommitRecord | None:
        data = await self._workspace.read(record_uri(directive))
        if data is None:
            return None
        await self._workspace.create(record_uri(directive), data)  # what is relied on must last
        try:
            return CommitRecord.decoded(data)
        except (ValueError, KeyError, TypeError) as error:
            raise FatalError(
                f"{record_uri(directive)} cannot be read: {error}", code="COMMIT_RECORD_CORRUPT"
            ) from error

    async def commit(
        self, directive: Directive, worker_id: str, output: Output, staged: Mapping[str, Staged]
    ) -> tuple[CommitRecord, int]:
        """Propose this attempt as the winner: the winner's record, and how many of its places are filled.

        What could not be promoted or reported afterwards is refused here, before it is committed.
        Small outputs of the winner go to their places in the same request as the record, after it.
        """
        proposed = self._proposal(
            directive, worker_id, check_output(output), tuple(staged.values())
        )
        await self._mark(directive)
        for promotion in proposed.promotions:
            for target in promotion.targets[1:]:
                await self._replaceable(directive, promotion, target)
        objects = [(record_uri(directive), proposed.encoded()), *_small(proposed)]
        later = self._later_mark(directive)
        created = await self._workspace.create_all(objects, unless=later)
        if created is None:
            raise _superseded(directive)
        if created:
            return proposed, created - 1
        found = await self.find(directive)
        if found is None:
            raise WorkspaceError(f"{record_uri(directive)} is there and cannot be found")
        return found, 0

    def _proposal(
        self, directive: Directive, worker_id: str, output: Output, staged: Sequence[Staged]
    ) -> CommitRecord:
        main = main_output(output, staged)
        elsewhere = output.ref is not None
        promotions = tuple(
            Promotion(
                item.uri,
                item.sha256,
                item.size,
                self._targets(directive, item, main=item is main, elsewhere=elsewhere),
                item.content,
            )
            for item in staged
        )
        reference = output.ref
        if main is not None and reference is None:
            chosen = promotions[staged.index(main)]
            reference = {"uri": chosen.targets[-1], "sha256": chosen.sha256, "size": chosen.size}
        return CommitRecord(directive.effect_key, *directive.key, worker_id, reference, promotions)

    def _targets(
        self, directive: Directive, item: Staged, *, main: bool, elsewhere: bool
    ) -> tuple[str, ...]:
        """Its place in the workspace; for the last step's output also where the client wants it."""
        promoted = f"{directive.workspace}{directive.folder}{item.name}"
        wanted = uri_of(directive.body.get("output_ref"))
        if not main or not directive.body.get("final_step") or wanted is None:
            return (promoted,)
        wanted += item.name if wanted.endswith("/") else ""
        if self._workspace.writable(wanted):
            return promoted, wanted
        if elsewhere:  # the service has put its output where it could, and says so
            return (promoted,)
        raise OutputNotWritableError(
            f"the output cannot be written to {wanted}: let output_ref name a place that the services"
            " can write to (below LUCIUS_OUTPUT_ROOTS)"
        )

    # -- promotion ---------------------------------------------------------------------------

    async def promote(self, directive: Directive, record: CommitRecord, filled: int = 0) -> None:
        """Put every output in its places. Idempotent: whoever meets the record does it again.

        `filled`: the first places in which the outputs already are.
        """
        places = record.places()[filled:]
        if not places:
            return
        await self._check_current(directive)
        await self._mark(directive)
        for promotion, target in places:
            await self._put(directive, promotion, target)

    async def _put(self, directive: Directive, promotion: Promotion, target: str) -> None:
        """Only what was looked at is replaced: whoever came in between is looked at again."""
        content = await self._content(promotion)
        for _ in range(RACES):
            if content is not None and await self._workspace.create(target, content):
                return
            existing = await self._replaceable(directive, promotion, target)
            if existing == promotion.digest:
                return
            if content is None:
                raise CommittedOutputLostError(f"{promotion.staged} is not what was committed")
            if existing is not None:
                await self._check_current(directive)
                if await self._workspace.replace(target, content, existing):
                    return
        raise WorkspaceError(f"{target} is being changed by others all the time")

    async def _replaceable(
        self, directive: Directive, promotion: Promotion, target: str
    ) -> Digest | None:
        """What stands at a target, if this effect may take its place.

        Inside of the workspaces everything is an effect of these jobs. Elsewhere a job replaces what
        jobs of its own origin have written, and nothing else unless its client said so.
        """
        existing = await self._workspace.digest(target)
        if existing is None or existing == promotion.digest or directive.overwrite:
            return existing
        if target.startswith(folders(directive)) or await self._wrote(directive, target, existing):
            return existing
        raise OutputExistsError(
            f"{target} is there already, and this job did not write it: remove it, name another"
            ' output_ref, or submit the command with "overwrite": true (lucius submit --overwrite)'
        )

    async def _wrote(self, directive: Directive, target: str, existing: Digest) -> bool:
        """Whether what stands there is what a job of the same origin has committed to that place."""
        for uri in await self._workspace.list(directive.origin + COMMITS):
            data = await self._workspace.read(uri)
            with suppress(ValueError, KeyError, TypeError):
                for each in CommitRecord.decoded(data or b"").promotions:
                    if target in each.targets and each.digest == existing:
                        return True
        return False

    async def _content(self, promotion: Promotion) -> bytes | None:
        """What was committed, unless it is lost."""
        content = promotion.content
        if content is None:
            content = await self._workspace.read(promotion.staged)
        if content is None or sha256(content).hexdigest() != promotion.sha256:
            return None
        return content

    # -- redrives ----------------------------------------------------------------------------

    async def _mark(self, directive: Directive) -> None:
        """From here on no earlier job of the same origin puts anything in the places of this step.

        Marks are created, never changed: that of a redrive, and of all before it, so that an earlier
        job finds the mark that follows its own. A job that is no redrive has none.
        """
        if not directive.redrive_no:
            return
        mark = json.dumps({"job_id": directive.job_id, "effect_key": directive.effect_key}).encode()
        for number in range(1, directive.redrive_no + 1):
            await self._workspace.create(_mark_uri(directive, number), mark)

    async def _check_current(self, directive: Directive) -> None:
        if await self._workspace.read(self._later_mark(directive)) is not None:
            raise _superseded(directive)

    def _later_mark(self, directive: Directive) -> str:
        """What the next redrive leaves where it takes the step over."""
        return _mark_uri(directive, directive.redrive_no + 1)


def _superseded(directive: Directive) -> SupersededError:
    return SupersededError(
        f"{directive.job_id} has ended, and a redrive of it has taken {directive.step_id} over"
    )


def _small(record: CommitRecord) -> list[tuple[str, bytes]]:
    """The first places of a record, as far as it has their contents itself."""
    filled: list[tuple[str, bytes]] = []
    for promotion, target in record.places():
        if promotion.content is None:
            break
        filled.append((target, promotion.content))
    return filled


def _mark_uri(directive: Directive, redrive_no: int) -> str:
    return f"{directive.origin}{REDRIVES}{directive.step_id}/{redrive_no}.json"


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
