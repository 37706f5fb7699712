"""A typed async client of the API. Retries keep the idempotency key, so a lost answer costs nothing."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast
from urllib.parse import quote
from uuid import uuid4

import orjson

from lucius.client.errors import ClientError, ProblemError
from lucius.client.server_sent import server_sent
from lucius.client.wire import CONNECTION_ERRORS, Wire, problem
from lucius.contract import DEFAULT_URL, ENDED
from lucius.contract.shapes import (
    BulkShape,
    DirectivesShape,
    EventShape,
    EventsShape,
    ExecutionsShape,
    FailuresShape,
    JobShape,
    JobsShape,
    JobWhyShape,
    ProtocolsShape,
    RedrivenShape,
    RedrivePlanShape,
    RedrivePlansShape,
    RepliesShape,
    RetriedShape,
    ServiceOrderShape,
    ServicesShape,
    SettingsShape,
    StepsShape,
    SubmittedShape,
    SystemWhyShape,
)

log = logging.getLogger("lucius.client")
Accepted = TypeVar("Accepted", SubmittedShape, RedrivenShape)
_POLL_SECONDS: Final = 30.0
_BULK_SECONDS: Final = 300.0


class Client:
    """`async with Client() as client: await client.submit(envelope)`.

    `unix:PATH` names the socket of a server on this machine. Requests that may be repeated are, on
    connection errors and on 408, 429, 502, 503 and 504.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        retries: int = 5,
        backoff_seconds: float = 0.2,
        timeout_seconds: float = 30.0,
        max_connections: int = 256,
        on_warning: Callable[[str], None] = log.warning,
    ) -> None:
        """Without `url` and `api_key`, LUCIUS_URL and LUCIUS_API_KEY or LUCIUS_API_KEY_FILE count.

        `on_warning` is told what an accepted command may not mean as it stands: see `warnings` of the answer.
        """
        api_key = api_key or os.environ.get("LUCIUS_API_KEY") or _key_of_environment()
        if api_key and not _fits_header(api_key):
            raise ClientError(
                "the API key has characters other than printable ASCII: check LUCIUS_API_KEY or"
                " LUCIUS_API_KEY_FILE, --api-key or --api-key-file"
            )
        self._wire = Wire(
            url or os.environ.get("LUCIUS_URL") or DEFAULT_URL,
            api_key=api_key,
            retries=retries,
            backoff_seconds=backoff_seconds,
            timeout_seconds=timeout_seconds,
            max_connections=max_connections,
        )
        self._request = self._wire.request
        self._on_warning = on_warning

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._wire.close()

    # -- jobs --------------------------------------------------------------------------------

    async def submit(
        self,
        envelope: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        by_body: bool = False,
    ) -> SubmittedShape:
        """Submit once, however often it must be sent: every try carries the same key.

        Without a key the call makes one, so the same command in another call is another job. With
        `by_body` the body is the key instead, and the same command finds the same job, unless that
        has failed. Then a try whose answer is lost is not repeated: it might make a second job.
        """
        answer = await self._submitted(envelope, idempotency_key, by_body=by_body)
        return self._warned(cast(SubmittedShape, answer))

    async def _submitted(
        self,
        envelope: Mapping[str, Any],
        idempotency_key: str | None = None,
        *,
        by_body: bool = False,
        wait_seconds: float = 0,
    ) -> Any:
        """The answer: that the command is accepted or, with `wait_seconds`, perhaps the job at its end."""
        key = idempotency_key or envelope.get("idempotency_key")
        if not key and not by_body:
            key = uuid4().hex
        headers: dict[str, str] = {}
        if key and _fits_header(str(key)):
            headers["idempotency-key"] = str(key)
        elif key:
            envelope = {**envelope, "idempotency_key": key}
        return await self._request(
            "POST",
            "/v1/orchestrate",
            query={"wait_seconds": f"{wait_seconds:g}"} if wait_seconds else {},
            body=envelope,
            headers=headers,
            patience=wait_seconds,
            repeatable=bool(key),
        )

    def _warned(self, answer: Accepted) -> Accepted:
        for each in answer.get("warnings", ()):
            self._on_warning(f"{each.get('pointer', '')} {each['detail']}")
        return answer

    async def run(
        self, envelope: Mapping[str, Any], *, timeout_seconds: float | None = None
    ) -> JobShape:
        """Submit, and return the job once it has ended. TimeoutError if it has not by then: it goes on."""
        async with asyncio.timeout(timeout_seconds):
            try:
                answer = await self._submitted(envelope, wait_seconds=_POLL_SECONDS)
            except ProblemError as error:
                if error.code != "UNKNOWN_PARAMETER":
                    raise
                answer = await self._submitted(envelope)  # an earlier server, which cannot wait
            if "duplicate" not in answer:
                return cast(JobShape, answer)
            return await self.wait(self._warned(cast(SubmittedShape, answer))["jobId"])

    async def job(self, job_id: str, *, wait_seconds: float = 0) -> JobShape:
        query = {"wait_seconds": f"{wait_seconds:g}"} if wait_seconds else {}
        answer = await self._request(
            "GET", f"/v1/jobs/{_segment(job_id)}", query=query, patience=wait_seconds
        )
        return cast(JobShape, answer)

    async def wait(self, job_id: str, *, timeout_seconds: float | None = None) -> JobShape:
        """The job once it has ended. TimeoutError if it has not by then."""
        async with asyncio.timeout(timeout_seconds):
            while True:
                job = await self.job(job_id, wait_seconds=_POLL_SECONDS)
                if job["state"] in ENDED:
                    return job

    async def steps(self, job_id: str) -> StepsShape:
        return cast(StepsShape, await self._request("GET", f"/v1/jobs/{_segment(job_id)}/steps"))

    async def executions(self, job_id: str) -> ExecutionsShape:
        return cast(
            ExecutionsShape, await self._request("GET", f"/v1/jobs/{_segment(job_id)}/executions")
        )

    async def jobs(self, /, **filters: str | int | None) -> JobsShape:
        """A page of jobs. Filters as in the API; continue with `cursor=next_cursor`."""
        return cast(JobsShape, await self._request("GET", "/v1/jobs", query=_given(filters)))

    async def protocols(self) -> ProtocolsShape:
        return cast(ProtocolsShape, await self._request("GET", "/v1/protocols"))

    async def settings(self) -> SettingsShape:
        """The settings of the server, each with its source. Secrets are masked."""
        return cast(SettingsShape, await self._request("GET", "/v1/admin/settings"))

    async def why_job(self, job_id: str) -> JobWhyShape:
        """Why a job is where it is: one cause, with its evidence."""
        answer = await self._request("GET", f"/v1/jobs/{_segment(job_id)}/why")
        return cast(JobWhyShape, answer)

    async def why(self) -> SystemWhyShape:
        """What is wrong now, worst first."""
        return cast(SystemWhyShape, await self._request("GET", "/v1/why"))

    # -- failures ----------------------------------------------------------------------------

    async def failures(self, /, **filters: str | int | None) -> FailuresShape:
        """Failed attempts in groups, the latest first."""
        return cast(
            FailuresShape, await self._request("GET", "/v1/failures", query=_given(filters))
        )

    async def start_redrive(
        self,
        filters: Mapping[str, Any],
        *,
        canary: int = 5,
        rate: float = 10.0,
        stop_after: str | int = "10%",
        reason: str | None = None,
    ) -> RedrivePlanShape:
        """Redrive what matches by a plan. Not repeated by itself: it would be a second plan."""
        body = {"filter": dict(filters), "canary": canary, "rate": rate, "stop_after": stop_after}
        answer = await self._request(
            "POST", "/v1/redrives", body={**body, **_said(reason)}, repeatable=False
        )
        return cast(RedrivePlanShape, answer)

    async def redrives(self) -> RedrivePlansShape:
        return cast(RedrivePlansShape, await self._request("GET", "/v1/redrives"))

    async def redrive_plan(self, plan_id: str) -> RedrivePlanShape:
        """A plan and how far it is."""
        path = f"/v1/redrives/{_segment(plan_id)}"
        return cast(RedrivePlanShape, await self._request("GET", path))

    async def stop_redrive(self, plan_id: str) -> RedrivePlanShape:
        path = f"/v1/redrives/{_segment(plan_id)}:stop"
        return cast(RedrivePlanShape, await self._request("POST", path, body={}))

    # -- services ----------------------------------------------------------------------------

    async def services(self) -> ServicesShape:
        """Services with their workers, what waits and runs, and how fast."""
        return cast(ServicesShape, await self._request("GET", "/v1/services"))

    async def pause_service(self, service: str, *, reason: str | None = None) -> ServiceOrderShape:
        """Nothing is released to it until it is resumed."""
        return await self._order_service(service, "pause", _said(reason))

    async def resume_service(self, service: str) -> ServiceOrderShape:
        return await self._order_service(service, "resume", {})

    async def _order_service(
        self, service: str, verb: str, body: Mapping[str, Any]
    ) -> ServiceOrderShape:
        path = f"/v1/services/{_segment(service)}:{verb}"
        return cast(ServiceOrderShape, await self._request("POST", path, body=body))

    # -- events ------------------------------------------------------------------------------

    async def events(self, job_id: str, *, after: int = 0, limit: int = 500) -> list[EventShape]:
        query = {"after": str(after), "limit": str(limit)}
        answer = await self._request("GET", f"/v1/jobs/{_segment(job_id)}/events", query=query)
        return cast(EventsShape, answer)["events"]

    async def follow(self, job_id: str, *, after: int = 0) -> AsyncIterator[EventShape]:
        """Events as they happen, until the job has ended. A broken stream is resumed."""
        failures = 0
        while True:
            try:
                async for kind, data in self._stream(job_id, after):
                    if kind == "end":
                        return
                    event = cast(EventShape, data)
                    after, failures = event["seq"], 0
                    yield event
            except CONNECTION_ERRORS as error:
                failures += 1
                if failures > self._wire.retries:
                    raise self._wire.unreachable(error) from error
            await asyncio.sleep(self._wire.pause(failures))

    async def _stream(self, job_id: str, after: int) -> AsyncIterator[tuple[str, Any]]:
        headers = {"accept": "text/event-stream", "last-event-id": str(after)}
        path = f"/v1/jobs/{_segment(job_id)}/events"
        async with self._wire.exchange("GET", path, headers=headers) as answer:
            if answer.status == 204:
                yield "end", None
                return
            if answer.status != 200:
                raise problem(answer, await answer.read())
            async for kind, data in server_sent(answer.content):
                yield kind, orjson.loads(data)

    # -- control -----------------------------------------------------------------------------

    async def cancel(
        self, job_id: str, *, immediate: bool = False, reason: str | None = None
    ) -> JobShape:
        """As for every order, events show who gave it and the `reason`."""
        return await self._order(job_id, "cancel", {"immediate": immediate, **_said(reason)})

    async def pause(self, job_id: str, *, reason: str | None = None) -> JobShape:
        return await self._order(job_id, "pause", _said(reason))

    async def resume(self, job_id: str, *, reason: str | None = None) -> JobShape:
        return await self._order(job_id, "resume", _said(reason))

    async def retry(self, job_id: str, *, reason: str | None = None) -> JobShape:
        """Try again now what waits for its backoff."""
        return await self._order(job_id, "retry", _said(reason))

    async def redrive(
        self,
        job_id: str,
        *,
        payload: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> RedrivenShape:
        body: dict[str, Any] = {"payload": payload} if payload is not None else {}
        body |= _said(reason)
        answer = await self._request("POST", f"/v1/jobs/{_segment(job_id)}:redrive", body=body)
        return self._warned(cast(RedrivenShape, answer))

    async def dlq(self, /, **filters: str | int | None) -> JobsShape:
        return cast(JobsShape, await self._request("GET", "/v1/admin/dlq", query=_given(filters)))

    async def dismiss(self, job_id: str, *, reason: str | None = None) -> JobShape:
        path = f"/v1/admin/dlq/{_segment(job_id)}:dismiss"
        answer = await self._request("POST", path, body=_said(reason))
        return cast(JobShape, answer)

    async def order_many(
        self, /, verb: str, filters: Mapping[str, Any], *, dry_run: bool = False, **more: Any
    ) -> BulkShape:
        """`cancel`, `pause`, `resume`, `retry`, `redrive` or `dismiss` all jobs that match; safe to repeat.

        While the answer says `more`, the same call again goes on.
        """
        body = {"filter": dict(filters), "dry_run": dry_run, **more}
        answer = await self._request("POST", f"/v1/jobs:{verb}", body=body, patience=_BULK_SECONDS)
        return cast(BulkShape, answer)

    async def retry_outbox(self) -> RetriedShape:
        """Publish what is pending now."""
        return cast(RetriedShape, await self._request("POST", "/v1/admin/outbox/retry", body={}))

    # -- for workers -------------------------------------------------------------------------

    async def pull(
        self,
        service: str,
        *,
        limit: int = 1,
        wait_seconds: float = 0,
        worker: Mapping[str, Any] | None = None,
    ) -> DirectivesShape:
        """Directives for a worker with so many free slots; waits if there is none.

        `worker` is what it says of itself, for `lucius services`: `worker_id`, `slots`, `version`.
        """
        path = f"/v1/services/{_segment(service)}/directives:pull"
        body = {"max": limit, "wait_seconds": wait_seconds, **(worker or {})}
        answer = await self._request("POST", path, body=body, patience=wait_seconds)
        return cast(DirectivesShape, answer)

    async def reply(self, service: str, replies: Sequence[Mapping[str, Any]]) -> RepliesShape:
        """Many replies at once, each with its `type` and `callback_token`. Repeating them is harmless."""
        path = f"/v1/services/{_segment(service)}/replies"
        answer = await self._request("POST", path, body={"replies": list(replies)})
        return cast(RepliesShape, answer)

    async def _order(self, job_id: str, verb: str, body: Mapping[str, Any]) -> JobShape:
        return cast(
            JobShape, await self._request("POST", f"/v1/jobs/{_segment(job_id)}:{verb}", body=body)
        )


def key_in(path: str) -> str:
    """The API key that a file holds; a line break at its end does not count. Raises ClientError."""
    try:
        text = Path(path).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ClientError(f"the file of the API key cannot be read: {path}: {why}") from error
    if not text:
        raise ClientError(f"the file of the API key is empty: {path}")
    return text


def _key_of_environment() -> str | None:
    path = os.environ.get("LUCIUS_API_KEY_FILE")
    return key_in(path) if path else None


def _fits_header(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _segment(job_id: str) -> str:
    """A job's id as one part of a path, whatever it contains."""
    return quote(job_id, safe="")


def _said(reason: str | None) -> dict[str, str]:
    return {"reason": reason} if reason else {}


def _given(filters: Mapping[str, str | int | None]) -> dict[str, str]:
    return {name: str(value) for name, value in filters.items() if value is not None}
