"""A typed async client of the API. Retries keep the idempotency key, so a lost answer costs nothing.

An answer is read once, from its bytes into its model. Models are named by functions, because a program that
reads plain JSON (`lucius.client.plain`) must not load them.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypedDict, TypeVar
from urllib.parse import quote

from lucius.client import models
from lucius.client.errors import ClientError, Invalid
from lucius.client.wire import CONNECTION_ERRORS, RawAnswer, SentEvent, Wire, problem, server_sent
from lucius.contract import DEFAULT_URL, ENDED

if TYPE_CHECKING:
    from pydantic import BaseModel

log = logging.getLogger("lucius.client")
AnyCommand: TypeAlias = "models.Command | Mapping[str, Any]"
"""The envelope, as a model or as a dict."""
Filter: TypeAlias = str | int | datetime | None
M = TypeVar("M", bound="BaseModel")
Accepted = TypeVar("Accepted", bound="models.SubmittedView")
_ENDED_AT_ONCE: Final = 200
"""The status of a submit that is answered with the job at its end; else it is 202."""
_POLL_SECONDS: Final = 30.0
_BULK_SECONDS: Final = 300.0


class Options(TypedDict, total=False):
    """What else `Client` takes."""

    api_key: str | None
    retries: int
    backoff_seconds: float
    timeout_seconds: float
    max_connections: int
    on_warning: Callable[[str], None]


class Client:
    """`async with Client() as client: await client.run(command)`.

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
        self._on_warning = on_warning

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._wire.close()

    async def _ask(
        self,
        model: "Callable[[], type[M]]",
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        patience: float = 0,
        repeatable: bool = True,
    ) -> M:
        answer = await self._wire.request(
            method, path, query=query, body=body, patience=patience, repeatable=repeatable
        )
        return self._read(model, answer.content)

    def _read(self, model: "Callable[[], type[M]]", content: bytes | str) -> M:
        try:
            return model().model_validate_json(content)
        except ValueError as error:
            raise self._wire.misread(error) from error

    # -- jobs --------------------------------------------------------------------------------

    async def submit(
        self,
        command: AnyCommand,
        *,
        idempotency_key: str | None = None,
        by_body: bool = False,
    ) -> "models.SubmittedView":
        """Submit once, however often it must be sent: every try carries the same key.

        Without a key the call makes one, so the same command in another call is another job. With
        `by_body` the body is the key instead, and the same command finds the same job, unless that
        has failed. Then a try whose answer is lost is not repeated: it might make a second job.
        """
        answer = await self._submitted(command, idempotency_key, by_body=by_body)
        return self._warned(self._read(lambda: models.SubmittedView, answer.content))

    async def _submitted(
        self,
        command: AnyCommand,
        idempotency_key: str | None = None,
        *,
        by_body: bool = False,
        wait_seconds: float = 0,
    ) -> RawAnswer:
        """The answer: that the command is accepted or, with `wait_seconds`, perhaps the job at its end."""
        envelope = _document(command)
        key = idempotency_key or envelope.get("idempotency_key")
        if not key and not by_body:
            key = os.urandom(16).hex()
        headers: dict[str, str] = {}
        if key and _fits_header(str(key)):
            headers["idempotency-key"] = str(key)
        elif key:
            envelope = {**envelope, "idempotency_key": key}
        return await self._wire.request(
            "POST",
            "/v1/orchestrate",
            query={"wait_seconds": f"{wait_seconds:g}"} if wait_seconds else {},
            body=envelope,
            headers=headers,
            patience=wait_seconds,
            repeatable=bool(key),
        )

    def _warned(self, answer: Accepted) -> Accepted:
        for each in answer.warnings:
            self._on_warning(f"{each.pointer or ''} {each.detail}")
        return answer

    async def run(
        self, command: AnyCommand, *, timeout_seconds: float | None = None
    ) -> "models.JobView":
        """Submit, and return the job once it has ended. TimeoutError if it has not by then: it goes on."""
        async with asyncio.timeout(timeout_seconds):
            try:
                answer = await self._submitted(command, wait_seconds=_POLL_SECONDS)
            except Invalid as error:
                if error.code != "UNKNOWN_PARAMETER":
                    raise
                answer = await self._submitted(command)  # an earlier server, which cannot wait
            if answer.status == _ENDED_AT_ONCE:
                return self._read(lambda: models.JobView, answer.content)
            accepted = self._read(lambda: models.SubmittedView, answer.content)
            return await self.wait(self._warned(accepted).jobId)

    async def job(self, job_id: str, *, wait_seconds: float = 0) -> "models.JobView":
        query = {"wait_seconds": f"{wait_seconds:g}"} if wait_seconds else {}
        path = f"/v1/jobs/{_segment(job_id)}"
        return await self._ask(
            lambda: models.JobView, "GET", path, query=query, patience=wait_seconds
        )

    async def wait(self, job_id: str, *, timeout_seconds: float | None = None) -> "models.JobView":
        """The job once it has ended. TimeoutError if it has not by then."""
        async with asyncio.timeout(timeout_seconds):
            while True:
                job = await self.job(job_id, wait_seconds=_POLL_SECONDS)
                if job.state in ENDED:
                    return job

    async def steps(self, job_id: str) -> "models.StepsView":
        return await self._ask(
            lambda: models.StepsView, "GET", f"/v1/jobs/{_segment(job_id)}/steps"
        )

    async def executions(self, job_id: str) -> "models.ExecutionsView":
        path = f"/v1/jobs/{_segment(job_id)}/executions"
        return await self._ask(lambda: models.ExecutionsView, "GET", path)

    async def jobs(self, /, **filters: Filter) -> "models.JobsView":
        """A page of jobs. Filters as in the API; continue with `cursor=page.next_cursor`."""
        return await self._ask(lambda: models.JobsView, "GET", "/v1/jobs", query=_given(filters))

    async def protocols(self) -> "models.ProtocolsView":
        return await self._ask(lambda: models.ProtocolsView, "GET", "/v1/protocols")

    async def settings(self) -> "models.SettingsView":
        """The settings of the server, each with its source. Secrets are masked."""
        return await self._ask(lambda: models.SettingsView, "GET", "/v1/admin/settings")

    async def why_job(self, job_id: str) -> "models.JobWhyView":
        """Why a job is where it is: one cause, with its evidence."""
        return await self._ask(lambda: models.JobWhyView, "GET", f"/v1/jobs/{_segment(job_id)}/why")

    async def why(self) -> "models.SystemWhyView":
        """What is wrong now, worst first."""
        return await self._ask(lambda: models.SystemWhyView, "GET", "/v1/why")

    # -- failures ----------------------------------------------------------------------------

    async def failures(self, /, **filters: Filter) -> "models.FailuresView":
        """Failed attempts in groups, the latest first."""
        query = _given(filters)
        return await self._ask(lambda: models.FailuresView, "GET", "/v1/failures", query=query)

    async def start_redrive(
        self,
        filters: Mapping[str, Any],
        *,
        canary: int = 5,
        rate: float = 10.0,
        stop_after: str | int = "10%",
        reason: str | None = None,
    ) -> "models.RedrivePlanView":
        """Redrive what matches by a plan. Not repeated by itself: it would be a second plan."""
        body = {"filter": dict(filters), "canary": canary, "rate": rate, "stop_after": stop_after}
        return await self._ask(
            lambda: models.RedrivePlanView,
            "POST",
            "/v1/redrives",
            body={**body, **_said(reason)},
            repeatable=False,
        )

    async def redrives(self) -> "models.RedrivePlansView":
        return await self._ask(lambda: models.RedrivePlansView, "GET", "/v1/redrives")

    async def redrive_plan(self, plan_id: str) -> "models.RedrivePlanView":
        """A plan and how far it is."""
        path = f"/v1/redrives/{_segment(plan_id)}"
        return await self._ask(lambda: models.RedrivePlanView, "GET", path)

    async def stop_redrive(self, plan_id: str) -> "models.RedrivePlanView":
        path = f"/v1/redrives/{_segment(plan_id)}:stop"
        return await self._ask(lambda: models.RedrivePlanView, "POST", path, body={})

    # -- services ----------------------------------------------------------------------------

    async def services(self) -> "models.ServicesView":
        """Services with their workers, what waits and runs, and how fast."""
        return await self._ask(lambda: models.ServicesView, "GET", "/v1/services")

    async def pause_service(
        self, service: str, *, reason: str | None = None
    ) -> "models.ServiceOrderView":
        """Nothing is released to it until it is resumed."""
        return await self._order_service(service, "pause", _said(reason))

    async def resume_service(self, service: str) -> "models.ServiceOrderView":
        return await self._order_service(service, "resume", {})

    async def _order_service(
        self, service: str, verb: str, body: Mapping[str, Any]
    ) -> "models.ServiceOrderView":
        path = f"/v1/services/{_segment(service)}:{verb}"
        return await self._ask(lambda: models.ServiceOrderView, "POST", path, body=body)

    # -- events ------------------------------------------------------------------------------

    async def events(
        self, job_id: str, *, after: int = 0, limit: int = 500
    ) -> "list[models.EventView]":
        return (await self._events(job_id, after, limit)).events

    async def _events(self, job_id: str, after: int, limit: int) -> "models.EventsView":
        query = {"after": str(after), "limit": str(limit)}
        path = f"/v1/jobs/{_segment(job_id)}/events"
        return await self._ask(lambda: models.EventsView, "GET", path, query=query)

    async def follow(self, job_id: str, *, after: int = 0) -> "AsyncIterator[models.EventView]":
        """Events as they happen, until the job has ended. A broken stream is resumed."""
        last_id, failures = str(after), 0
        while True:
            try:
                async for sent in self._stream(job_id, last_id):
                    if sent.kind == "end":
                        return
                    last_id, failures = sent.last_id or last_id, 0
                    yield self._read(lambda: models.EventView, sent.data)
            except CONNECTION_ERRORS as error:
                failures += 1
                if failures > self._wire.retries:
                    raise self._wire.unreachable(error) from error
            await asyncio.sleep(self._wire.pause(failures))

    async def _stream(self, job_id: str, last_id: str) -> AsyncIterator[SentEvent]:
        headers = {"accept": "text/event-stream", "last-event-id": last_id}
        path = f"/v1/jobs/{_segment(job_id)}/events"
        async with self._wire.exchange("GET", path, headers=headers) as answer:
            if answer.status == 204:
                yield SentEvent("end", "", last_id)
                return
            if answer.status != 200:
                raise problem(answer, await answer.read())
            async for sent in server_sent(answer.content):
                yield sent

    # -- control -----------------------------------------------------------------------------

    async def cancel(
        self, job_id: str, *, immediate: bool = False, reason: str | None = None
    ) -> "models.JobView":
        """As for every order, events show who gave it and the `reason`."""
        return await self._order(job_id, "cancel", {"immediate": immediate, **_said(reason)})

    async def pause(self, job_id: str, *, reason: str | None = None) -> "models.JobView":
        return await self._order(job_id, "pause", _said(reason))

    async def resume(self, job_id: str, *, reason: str | None = None) -> "models.JobView":
        return await self._order(job_id, "resume", _said(reason))

    async def retry(self, job_id: str, *, reason: str | None = None) -> "models.JobView":
        """Try again now what waits for its backoff."""
        return await self._order(job_id, "retry", _said(reason))

    async def redrive(
        self,
        job_id: str,
        *,
        payload: Mapping[str, Any] | None = None,
        output_ref: str | None = None,
        reason: str | None = None,
    ) -> "models.RedrivenView":
        """`payload` and `output_ref` replace those of the failed job, where they are given."""
        given = {"payload": payload, "output_ref": output_ref}
        body = {name: value for name, value in given.items() if value is not None}
        path = f"/v1/jobs/{_segment(job_id)}:redrive"
        return self._warned(
            await self._ask(lambda: models.RedrivenView, "POST", path, body=body | _said(reason))
        )

    async def webhooks(self) -> "models.WebhooksView":
        """Webhooks that are not delivered, the latest first."""
        return await self._ask(lambda: models.WebhooksView, "GET", "/v1/webhooks")

    async def resend_webhooks(self, job_id: str, *, reason: str | None = None) -> "models.JobView":
        """Send the webhooks of a job that has ended again, now."""
        path = f"/v1/jobs/{_segment(job_id)}/webhooks:resend"
        return await self._ask(lambda: models.JobView, "POST", path, body=_said(reason))

    async def drop_worker(
        self, worker_id: str, *, reason: str | None = None
    ) -> "models.DroppedWorkerView":
        """Take back what a worker that is gone has in hand."""
        body = {"worker_id": worker_id, **_said(reason)}
        path = "/v1/workers:drop"
        return await self._ask(lambda: models.DroppedWorkerView, "POST", path, body=body)

    async def dlq(self, /, **filters: Filter) -> "models.JobsView":
        query = _given(filters)
        return await self._ask(lambda: models.JobsView, "GET", "/v1/admin/dlq", query=query)

    async def dismiss(self, job_id: str, *, reason: str | None = None) -> "models.JobView":
        path = f"/v1/admin/dlq/{_segment(job_id)}:dismiss"
        return await self._ask(lambda: models.JobView, "POST", path, body=_said(reason))

    async def order_many(
        self, /, verb: str, filters: Mapping[str, Any], *, dry_run: bool = False, **more: Any
    ) -> "models.BulkView":
        """`cancel`, `pause`, `resume`, `retry`, `redrive` or `dismiss` all jobs that match; safe to repeat.

        While the answer says `more`, the same call again goes on.
        """
        body = {"filter": dict(filters), "dry_run": dry_run, **more}
        path = f"/v1/jobs:{verb}"
        return await self._ask(
            lambda: models.BulkView, "POST", path, body=body, patience=_BULK_SECONDS
        )

    async def retry_outbox(self) -> "models.RetriedView":
        """Publish what is pending now."""
        return await self._ask(
            lambda: models.RetriedView, "POST", "/v1/admin/outbox/retry", body={}
        )

    # -- for workers -------------------------------------------------------------------------

    async def pull(
        self,
        service: str,
        *,
        limit: int = 1,
        wait_seconds: float = 0,
        worker: Mapping[str, Any] | None = None,
    ) -> "models.DirectivesView":
        """Directives for a worker with so many free slots; waits if there is none.

        `worker` is what it says of itself, for `lucius services`: `worker_id`, `slots`, `version`.
        """
        path = f"/v1/services/{_segment(service)}/directives:pull"
        body = {"max": limit, "wait_seconds": wait_seconds, **(worker or {})}
        return await self._ask(
            lambda: models.DirectivesView, "POST", path, body=body, patience=wait_seconds
        )

    async def reply(
        self, service: str, replies: "Sequence[models.ReplyMessage | Mapping[str, Any]]"
    ) -> "models.RepliesView":
        """Many replies at once, each with its `type` and `callback_token`. Repeating them is harmless."""
        path = f"/v1/services/{_segment(service)}/replies"
        body = {"replies": [_document(each) for each in replies]}
        return await self._ask(lambda: models.RepliesView, "POST", path, body=body)

    async def _order(self, job_id: str, verb: str, body: Mapping[str, Any]) -> "models.JobView":
        path = f"/v1/jobs/{_segment(job_id)}:{verb}"
        return await self._ask(lambda: models.JobView, "POST", path, body=body)


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


def _given(filters: Mapping[str, Filter]) -> dict[str, str]:
    return {name: _word(value) for name, value in filters.items() if value is not None}


def _word(value: str | int | datetime) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _document(given: "BaseModel | Mapping[str, Any]") -> Mapping[str, Any]:
    """What the caller gave, as JSON; of a model only the fields that were set: defaults are the server's."""
    return (
        given if isinstance(given, Mapping) else given.model_dump(mode="json", exclude_unset=True)
    )
