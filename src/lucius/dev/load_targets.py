"""Jobs for a server: submitted, waited for, and cancelled or submitted twice where the plan says so."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from lucius.client import (
    ENDED,
    ClientError,
    Conflict,
    Invalid,
    ProblemError,
    Saturated,
    UnreachableError,
)
from lucius.client.plain import PlainClient
from lucius.dev.certificate.exam import RESULT, Exam
from lucius.dev.certificate.examinee import Sample
from lucius.dev.certificate.trial import Trial
from lucius.dev.load import SUCCEEDED, JobEnd

# Directives for one service: handed out by the gateway of a certificate, and answered by a real process.

PATIENCE: Final = 600.0
DIRECTIVE_FAILURES: Final = ("missing", "poison", "duplicate")
"""What a service alone can be asked for: nobody cancels a job where there is none."""


class ServiceTarget:
    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._kinds: dict[str, Callable[[str], Exam]] = {
            "missing": lambda tenant: self._hand(tenant, input_ref={"uri": self._nowhere()}),
            "poison": lambda tenant: self._hand(tenant, self._trial.poison),
            "duplicate": self._twice,
        }

    async def run(self, tenant: str, kind: str) -> JobEnd:
        exam = self._kinds.get(kind, self._hand)(tenant)
        if not await exam.until(lambda: bool(exam.of(RESULT)), PATIENCE):
            return JobEnd("NO_RESULT")
        result = exam.of(RESULT)[0]
        if result.status == SUCCEEDED:
            return JobEnd(SUCCEEDED)
        final = result.status == "FAILED_FINAL"
        return JobEnd(result.code or result.status, final and kind in ("missing", "poison"))

    def _hand(self, tenant: str, sample: Sample | None = None, **changes: Any) -> Exam:
        return self._trial.hand(sample, tenant_id=tenant, **changes)

    def _twice(self, tenant: str) -> Exam:
        exam = self._hand(tenant)
        self._trial.gateway.hand(exam)
        return exam

    def _nowhere(self) -> str:
        return (self._trial.folders.input / "nothing-is-here").as_uri()


WAIT_SECONDS: Final = 10.0
PAUSE: Final = 0.2
MEANT: Final = {"missing": "FAILED_FINAL", "poison": "FAILED_FINAL", "cancel": "CANCELLED"}
"""How jobs end that are meant not to succeed."""


class ServerTarget:
    """`envelope` is the command of every job. `poison` is the payload of those that are meant to fail."""

    def __init__(
        self, client: PlainClient, envelope: Mapping[str, Any], poison: Mapping[str, Any] | None
    ) -> None:
        self._client = client
        self._envelope = envelope
        self._poison = poison

    async def run(self, tenant: str, kind: str) -> JobEnd:
        try:
            return await self._run(self._command(tenant, kind), kind)
        except ProblemError as error:
            return JobEnd(error.code, kind == "poison" and isinstance(error, Invalid))
        except UnreachableError:
            await asyncio.sleep(
                PAUSE
            )  # whoever is refused at once must not ask a thousand times a second
            return JobEnd("UNREACHABLE")
        except ClientError:
            return JobEnd("CLIENT_ERROR")

    def _command(self, tenant: str, kind: str) -> dict[str, Any]:
        command = {**self._envelope, "tenant_id": tenant, "doc_id": uuid4().hex}
        if kind == "missing":
            command["input_ref"] = f"{command['input_ref']}.is-not-here-{uuid4().hex}"
        if kind == "poison":
            command["payload"] = self._poison
        return command

    async def _run(self, command: Mapping[str, Any], kind: str) -> JobEnd:
        key = uuid4().hex
        job_id = (await self._client.submit(command, idempotency_key=key))["jobId"]
        if kind == "duplicate":
            again = await self._client.submit(command, idempotency_key=key)
            if again["jobId"] != job_id:
                return JobEnd("SECOND_JOB")
        if kind == "cancel":
            await self._cancel(job_id)
        job = await self._end(job_id)
        return JobEnd(job["error_code"] or job["state"], job["state"] == MEANT.get(kind))

    async def _cancel(self, job_id: str) -> None:
        """It may have ended before the cancel came, which is no error."""
        with suppress(Conflict):
            await self._client.cancel(job_id)

    async def _end(self, job_id: str) -> Mapping[str, Any]:
        """Waits at the server; where it lets no more wait, asks again after a pause."""
        wait = WAIT_SECONDS
        while True:
            try:
                job = await self._client.job(job_id, wait_seconds=wait)
            except Saturated:
                wait = 0
                await asyncio.sleep(PAUSE)
                continue
            if job["state"] in ENDED:
                return job
            if not wait:
                await asyncio.sleep(PAUSE)
