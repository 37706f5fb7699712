"""What a check works with: directives to hand out, the effects that they leave, and fresh processes."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from lucius.core.wire import effect_key
from lucius.dev.certificate.exam import (
    HEARTBEAT,
    RESULT,
    BrokenError,
    Exam,
    ExamGateway,
    NotApplicableError,
    ReceivedReply,
    ReplyVerdict,
)
from lucius.dev.certificate.examinee import (
    POISON,
    TEXT,
    Examined,
    Examinee,
    Folders,
    Patience,
    Sample,
    Samples,
)

TENANT: Final = "certificate"
TRACE_ID: Final = "0af7651916cd43dd8448eb211c80319c"
PROBE_SECONDS: Final = 20.0
T = TypeVar("T")
EffectSeen = tuple[Any, ...]
"""What stands where the effect of an exam belongs; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Trial:
    """`slow` is the sample that takes long on this examinee; None if there is none.

    `fresh` starts another process of the service, with a gateway of its own.
    """

    examined: Examined
    samples: Samples
    folders: Folders
    pace: Patience
    gateway: ExamGateway
    examinee: Examinee
    slow: Sample | None
    fresh: Callable[[], AbstractAsyncContextManager["Trial"]]
    facts: dict[str, "asyncio.Task[Any]"]

    # -- handing out -------------------------------------------------------------------------

    def hand(
        self,
        sample: Sample | None = None,
        *,
        verdicts: Mapping[str, Sequence[ReplyVerdict]] | None = None,
        **changes: Any,
    ) -> Exam:
        """Hand out the directive of a new job."""
        exam = Exam(self._directive(sample or self.samples.works, changes), verdicts)
        self.gateway.hand(exam)
        return exam

    def hand_slow(self, **options: Any) -> Exam:
        """The same, with work that takes longer than its lease."""
        if self.slow is None:
            raise NotApplicableError(
                "needs work that takes long: give MODULE:NAME, or name some under `slow` in the samples"
            )
        return self.hand(self.slow, lease_seconds=self.pace.lease, **options)

    def hand_blocked(self) -> Exam:
        """A directive whose step cannot write: a file stands where its folder belongs."""
        directive = self._directive(self.samples.works, {})
        home = path_of(directive["workspace_ref"]["uri"])
        home.mkdir(parents=True)
        (home / directive["output_folder"]).write_text("in the way")
        exam = Exam(directive)
        self.gateway.hand(exam)
        return exam

    @property
    def poison(self) -> Sample:
        """A payload that the service should refuse."""
        return self.samples.poison or replace(self.samples.works, payload=POISON)

    def again(
        self,
        exam: Exam,
        verdicts: Mapping[str, Sequence[ReplyVerdict]] | None = None,
        **changes: Any,
    ) -> Exam:
        """Another attempt of the same step, under a lease of its own."""
        number = exam.directive["attempt_no"] + 1
        directive = {**exam.directive, "attempt_no": number, **_lease(), **changes}
        following = Exam(directive, verdicts)
        self.gateway.hand(following)
        return following

    def bare(self, directive: Mapping[str, Any]) -> Exam:
        """A directive as it is given, for a new job and lease."""
        job_id = _job_id()
        output = {"uri": (self.folders.output / job_id / "result").as_uri()}
        own = {"jobId": job_id, "workspace_ref": self._workspace(job_id), "output_ref": output}
        exam = Exam({**directive, **own, "effect_key": f"{job_id}:bare", **_lease()})
        self.gateway.hand(exam)
        return exam

    def redriven(self, exam: Exam) -> Exam:
        """The same step in a job that was redriven from it."""
        job_id = _job_id()
        return self.again(
            exam, jobId=job_id, attempt_no=1, redrive_no=1, workspace_ref=self._workspace(job_id)
        )

    def _workspace(self, job_id: str) -> dict[str, str]:
        return {"uri": f"{(self.folders.workspace / 'lucius' / TENANT / job_id).as_uri()}/"}

    def _directive(self, sample: Sample, changes: Mapping[str, Any]) -> dict[str, Any]:
        job_id, step_type = _job_id(), self.examined.step_type
        step_id = step_type.lower()
        source = self.folders.copied(sample.input, TEXT)
        body: dict[str, Any] = {
            "type": "DIRECTIVE",
            "jobId": job_id,
            "tenant_id": TENANT,
            "stepId": step_id,
            "protocol_id": "certificate_v1",
            "request_type": step_type,
            "step_type": step_type,
            "service": self.examined.service,
            "attempt_no": 1,
            "input_ref": {"uri": source},
            "workspace_ref": self._workspace(job_id),
            "output_folder": step_id,
            "output_ref": {"uri": (self.folders.output / job_id / "result").as_uri()},
            "payload": sample.payload,
            "previous": {
                k: {"uri": self.folders.copied(v, "")} for k, v in sample.previous.items()
            },
            "final_step": True,
            "redrive_no": 0,
            "effect_key": effect_key(job_id, step_id, source, sample.payload),
            "ack_timeout_seconds": 30.0,
            "lease_seconds": 900.0,
            "mode": "DEFAULT",
            "lane": 0,
            "routing_key_used": TENANT,
            "reply_topic": "global-bus-replies-p0",
            "schema_version": "v1",
            "doc_id": None,
            "correlation_id": f"order-{job_id}",
            "traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01",
            **_lease(),
            **changes,
        }
        return body

    # -- waiting -----------------------------------------------------------------------------

    async def result(self, exam: Exam, count: int = 1, more: float = 0) -> ReceivedReply:
        return await exam.wait_for_reply(RESULT, self.pace.result + more, count)

    async def success(self, exam: Exam, more: float = 0) -> ReceivedReply:
        found = await self.result(exam, more=more)
        if found.status != "SUCCEEDED":
            raise BrokenError(f"expected RESULT SUCCEEDED, and saw {found.told()}")
        return found

    async def beat(self, exam: Exam, within: float | None = None) -> None:
        """A heartbeat of slow work has come."""
        within = within or self.pace.lease
        await exam.handed()
        await exam.until(lambda: bool(exam.of(HEARTBEAT) or exam.of(RESULT)), within)
        if not exam.of(HEARTBEAT):
            self.expect_slow(exam, self.pace.slow)
        await exam.wait_for_reply(HEARTBEAT, within)

    def expect_slow(self, exam: Exam, seconds: float) -> None:
        """Work that ends sooner than it says proves nothing about heartbeats and leases."""
        for result in exam.of(RESULT)[:1]:
            if (took := result.at - exam.handed_at[0]) < seconds:
                raise NotApplicableError(
                    f"the work under `slow` in the samples ended after {took:.1f} s with {result.told()}:"
                    f" name some that takes {self.pace.slow:g} s"
                )

    async def quiet(self) -> None:
        """Another job comes and goes, and a little time more: what was to come has come."""
        await self.result(self.hand())
        await asyncio.sleep(self.pace.quiet)

    async def once(self, name: str, find: Callable[["Trial"], Awaitable[T]]) -> T:
        """Facts that several checks look at are found out once."""
        if name not in self.facts:
            self.facts[name] = asyncio.ensure_future(find(self))
        found: T = await asyncio.shield(self.facts[name])
        return found

    # -- effects -----------------------------------------------------------------------------

    async def effect(self, exam: Exam) -> EffectSeen:
        """What the exam has left, so that two looks can be compared."""
        if not self.examined.outputs:
            return await self._probed(exam)
        places = [*self.promoted(exam), *_files(self.wanted(exam).parent)]
        return tuple((str(path), path.stat().st_ino, path.stat().st_mtime_ns) for path in places)

    async def expect_no_effect(self, exam: Exam, when: str) -> None:
        if exam.succeeded:
            raise BrokenError(f"it reported SUCCEEDED {when}")
        if found := await self.effect(exam):
            raise BrokenError(f"there is an effect {when}: {_shown(found)}")

    def promoted(self, exam: Exam) -> list[Path]:
        """What stands in the step's folder, without what attempts have only staged."""
        folder = self.home(exam) / exam.directive["output_folder"]
        return [p for p in _files(folder) if not p.relative_to(folder).parts[0].isdigit()]

    def home(self, exam: Exam) -> Path:
        return path_of(exam.directive["workspace_ref"]["uri"])

    def wanted(self, exam: Exam) -> Path:
        return path_of(exam.directive["output_ref"]["uri"])

    def needs_outputs(self) -> None:
        if not self.examined.outputs:
            raise NotApplicableError("the service leaves no outputs in the workspace")

    async def _probed(self, exam: Exam) -> EffectSeen:
        if not self.samples.probe:
            raise NotApplicableError(
                "the service leaves no outputs: name a command under `probe` in the samples that prints"
                " how often the effect {effect_key} was applied"
            )
        names = ("effect_key", "jobId", "stepId")
        words = list(self.samples.probe)
        for name in names:
            words = [word.replace(f"{{{name}}}", str(exam.directive[name])) for word in words]
        count = await _number(words)
        return (count,) if count else ()


def _job_id() -> str:
    return f"job_{uuid4().hex}"


def _lease() -> dict[str, str]:
    return {"lease_id": str(uuid4()), "callback_token": f"k1.{uuid4().hex}.{uuid4().hex}"}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _shown(found: EffectSeen) -> str:
    return ", ".join(str(each[0] if isinstance(each, tuple) else each) for each in found[:3])


def path_of(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def output_of(result: ReceivedReply) -> tuple[Path, Any]:
    """The file that a result names, and what it says about it."""
    found = result.output[0] if isinstance(result.output, list) and result.output else result.output
    uri = found.get("uri") if isinstance(found, dict) else found
    if not isinstance(uri, str) or not uri.startswith("file:"):
        raise BrokenError(f"RESULT SUCCEEDED names no output: {result.output!r}")
    return path_of(uri), found


async def _number(words: Sequence[str]) -> int:
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            said, complaint = await process.communicate()
    except TimeoutError:
        process.kill()
        raise BrokenError(f"the probe did not end within {PROBE_SECONDS:g} s") from None
    text = said.decode(errors="replace").strip()
    if process.returncode != 0 or not text.isdecimal():
        more = json.dumps(complaint.decode(errors="replace")[-200:])
        raise BrokenError(f"the probe printed {text[:80]!r} instead of a number: {more}")
    return int(text)


# How a check is declared: what the contract says, what to do when it is broken, and how it is looked at.

Look = Callable[[Trial], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """`promise`: what the contract says. `remedy`: what to do. `slow`: needs work that takes long.

    `apart`: works on fresh processes and does not load the shared one.
    `look` raises BrokenError with what was seen, or NotApplicableError.
    """

    name: str
    group: str
    promise: str
    remedy: str
    slow: bool
    apart: bool
    look: Look


CHECKS: Final[list[Check]] = []


def check(
    name: str, *, promise: str, remedy: str, slow: bool = False, apart: bool = False
) -> Callable[[Look], Look]:
    def declared(look: Look) -> Look:
        group = look.__module__.rpartition(".")[2]
        CHECKS.append(Check(name, group, promise, remedy, slow, apart, look))
        return look

    return declared
