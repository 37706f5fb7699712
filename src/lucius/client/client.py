"""A typed async client of the API. Retries keep the idempotency key, so a lost answer costs nothing."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final, Self, cast
from urllib.parse import quote
from uuid import uuid4

import httpx

from lucius.api.shapes import (
    BulkShape,
    EventShape,
    EventsShape,
    ExecutionsShape,
    JobShape,
    JobsShape,
    ProtocolsShape,
    RedrivenShape,
    RetriedShape,
    StepsShape,
    SubmittedShape,
)

DEFAULT_URL: Final = "http://127.0.0.1:8700"
ENDED: Final = frozenset(("SUCCEEDED", "FAILED_FINAL", "CANCELLED"))
_RETRIED: Final = frozenset((408, 429, 502, 503, 504))
_UNTOUCHED: Final = frozenset((429,))
"""Answers that say that nothing was created."""
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_POLL_SECONDS: Final = 30.0
_BULK_SECONDS: Final = 300.0


class ClientError(Exception):
    """The root of what this client raises."""


class UnreachableError(ClientError):
    """The server could not be reached, or did not answer."""


class ProblemError(ClientError):
    """The server refused the request. `code` is stable and has a reference page."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(document.get("code", "UNKNOWN"))
        self.detail = str(document.get("detail", ""))
        self.errors: list[dict[str, str]] = list(document.get("errors", ()))
        super().__init__(f"{self.code}: {self.detail}")


class Client:
    """`async with Client() as client: await client.submit(envelope)`.

    Requests that may be repeated are, on connection errors and on 408, 429, 502, 503 and 504.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        retries: int = 5,
        backoff_seconds: float = 0.2,
        timeout_seconds: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if api_key and not _fits_header(api_key):
            raise ClientError(
                "the API key has characters other than printable ASCII: check --api-key, or LUCIUS_API_KEY"
            )
        if not url.lower().startswith(("http://", "https://")):
            raise ClientError(
                f"{url!r} is no address of a server: it must begin with http:// or https://"
                " (--url, or LUCIUS_URL)"
            )
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            self._http = httpx.AsyncClient(
                base_url=url, headers=headers, timeout=timeout_seconds, transport=transport
            )
        except httpx.InvalidURL as error:
            raise ClientError(f"{url} is not a URL: {error}") from error
        self._url = url
        self._retries = retries
        self._backoff = backoff_seconds

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
        await self._http.aclose()

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
        key = idempotency_key or envelope.get("idempotency_key")
        if not key and not by_body:
            key = uuid4().hex
        headers: dict[str, str] = {}
        if key and _fits_header(str(key)):
            headers["idempotency-key"] = str(key)
        elif key:
            envelope = {**envelope, "idempotency_key": key}
        answer = await self._request(
            "POST", "/v1/orchestrate", body=envelope, headers=headers, repeatable=bool(key)
        )
        return cast(SubmittedShape, answer)

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

    async def jobs(self, **filters: str | int | None) -> JobsShape:
        """A page of jobs. Filters as in the API; continue with `cursor=next_cursor`."""
        return cast(JobsShape, await self._request("GET", "/v1/jobs", query=_given(filters)))

    async def protocols(self) -> ProtocolsShape:
        return cast(ProtocolsShape, await self._request("GET", "/v1/protocols"))

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
            except httpx.TransportError as error:
                failures += 1
                if failures > self._retries:
                    raise self._unreachable(error) from error
            await asyncio.sleep(self._pause(failures))

    async def _stream(self, job_id: str, after: int) -> AsyncIterator[tuple[str, Any]]:
        headers = {"accept": "text/event-stream", "last-event-id": str(after)}
        path = f"/v1/jobs/{_segment(job_id)}/events"
        async with self._http.stream("GET", path, headers=headers) as answer:
            if answer.status_code == 204:
                yield "end", None
                return
            if answer.status_code != 200:
                await answer.aread()
                raise _problem(answer)
            fields: dict[str, str] = {}
            async for line in _lines(answer):
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    yield fields.get("event", ""), json.loads(fields["data"])
                    fields = {}

    # -- control -----------------------------------------------------------------------------

    async def cancel(self, job_id: str, *, immediate: bool = False) -> JobShape:
        return await self._order(job_id, "cancel", {"immediate": immediate})

    async def pause(self, job_id: str) -> JobShape:
        return await self._order(job_id, "pause", {})

    async def resume(self, job_id: str) -> JobShape:
        return await self._order(job_id, "resume", {})

    async def redrive(
        self, job_id: str, *, payload: Mapping[str, Any] | None = None
    ) -> RedrivenShape:
        body = {"payload": payload} if payload is not None else {}
        answer = await self._request("POST", f"/v1/jobs/{_segment(job_id)}:redrive", body=body)
        return cast(RedrivenShape, answer)

    async def dlq(self, **filters: str | int | None) -> JobsShape:
        return cast(JobsShape, await self._request("GET", "/v1/admin/dlq", query=_given(filters)))

    async def dismiss(self, job_id: str) -> JobShape:
        answer = await self._request("POST", f"/v1/admin/dlq/{_segment(job_id)}:dismiss", body={})
        return cast(JobShape, answer)

    async def order_many(
        self, verb: str, filters: Mapping[str, Any], *, dry_run: bool = False, **more: Any
    ) -> BulkShape:
        """`cancel`, `pause`, `resume`, `redrive` or `dismiss` all jobs that match; safe to repeat.

        While the answer says `more`, the same call again goes on.
        """
        body = {"filter": dict(filters), "dry_run": dry_run, **more}
        answer = await self._request("POST", f"/v1/jobs:{verb}", body=body, patience=_BULK_SECONDS)
        return cast(BulkShape, answer)

    async def retry_outbox(self) -> RetriedShape:
        """Publish what is pending now."""
        return cast(RetriedShape, await self._request("POST", "/v1/admin/outbox/retry", body={}))

    async def _order(self, job_id: str, verb: str, body: Mapping[str, Any]) -> JobShape:
        return cast(
            JobShape, await self._request("POST", f"/v1/jobs/{_segment(job_id)}:{verb}", body=body)
        )

    # -- the wire ----------------------------------------------------------------------------

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float = 0,
        repeatable: bool = True,
    ) -> Any:
        """Reads, orders and submits with a key may be repeated; others only if nothing can have happened."""
        request = self._http.build_request(method, path, params=query, json=body, headers=headers)
        if patience:
            request.extensions["timeout"]["read"] += patience
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            try:
                answer = await self._http.send(request)
            except httpx.TransportError as error:
                if last or not (repeatable or isinstance(error, _NEVER_SENT)):
                    raise self._unreachable(error) from error
                await asyncio.sleep(self._pause(attempt))
                continue
            if last or answer.status_code not in (_RETRIED if repeatable else _UNTOUCHED):
                break
            await asyncio.sleep(_asked_wait(answer) or self._pause(attempt))
        if not answer.is_success:
            raise _problem(answer)
        try:
            return answer.json()
        except ValueError as error:
            raise ClientError(f"{self._url} answers, but it is not LUCIUS") from error

    def _pause(self, attempt: int) -> float:
        return self._backoff * 2.0 ** min(attempt, 6) * random.uniform(0.5, 1.0)

    def _unreachable(self, error: Exception) -> UnreachableError:
        reason = str(error) or type(error).__name__
        return UnreachableError(f"no answer from {self._url}: {reason}")


async def _lines(answer: httpx.Response) -> AsyncIterator[str]:
    """Split at line feeds alone: text in an event may have separators that Unicode calls lines too."""
    rest = ""
    async for text in answer.aiter_text():
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            yield line.removesuffix("\r")


def _fits_header(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _segment(job_id: str) -> str:
    """A job's id as one part of a path, whatever it contains."""
    return quote(job_id, safe="")


def _given(filters: Mapping[str, str | int | None]) -> dict[str, str]:
    return {name: str(value) for name, value in filters.items() if value is not None}


def _asked_wait(answer: httpx.Response) -> float | None:
    text = answer.headers.get("retry-after", "")
    return min(float(text), 30.0) if text.isdigit() else None


def _problem(answer: httpx.Response) -> ProblemError:
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        document = {"code": f"HTTP_{answer.status_code}", "detail": answer.text[:500]}
    return ProblemError(answer.status_code, document)
