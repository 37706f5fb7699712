"""Jobs for a server: submitted, waited for, and cancelled or submitted twice where the plan says so."""

import asyncio
from collections.abc import Mapping
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
from lucius.load.tally import JobEnd

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
