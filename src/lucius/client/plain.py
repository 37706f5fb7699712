"""The client for programs that show or hand on what came: answers are the JSON that the server sent.

Fields that this version does not know are in it, and no model is loaded: so the command line, the load driver
and workers that pull over HTTP start sooner and read faster.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, Unpack

import orjson

from lucius.client.client import Client, Options
from lucius.contract import ENDED
from lucius.contract.words import JsonObject

P = ParamSpec("P")


def _plain(
    call: Callable[Concatenate[Client, P], Awaitable[Any]],
) -> "Callable[Concatenate[PlainClient, P], Awaitable[JsonObject]]":
    @wraps(call)
    def plain(self: "PlainClient", /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[JsonObject]:
        return call(self._client, *args, **kwargs)

    return plain


class PlainClient:
    """Options as for `Client`. Warnings are for whoever shows the answer: they are in it."""

    def __init__(self, url: str | None = None, **options: Unpack[Options]) -> None:
        self._client = _AsItCame(url, **options)

    submit = _plain(Client.submit)
    job = _plain(Client.job)
    executions = _plain(Client.executions)
    jobs = _plain(Client.jobs)
    protocols = _plain(Client.protocols)
    settings = _plain(Client.settings)
    why_job = _plain(Client.why_job)
    why = _plain(Client.why)
    failures = _plain(Client.failures)
    start_redrive = _plain(Client.start_redrive)
    redrives = _plain(Client.redrives)
    redrive_plan = _plain(Client.redrive_plan)
    stop_redrive = _plain(Client.stop_redrive)
    services = _plain(Client.services)
    pause_service = _plain(Client.pause_service)
    resume_service = _plain(Client.resume_service)
    cancel = _plain(Client.cancel)
    pause = _plain(Client.pause)
    resume = _plain(Client.resume)
    retry = _plain(Client.retry)
    redrive = _plain(Client.redrive)
    webhooks = _plain(Client.webhooks)
    resend_webhooks = _plain(Client.resend_webhooks)
    drop_worker = _plain(Client.drop_worker)
    dlq = _plain(Client.dlq)
    dismiss = _plain(Client.dismiss)
    order_many = _plain(Client.order_many)
    retry_outbox = _plain(Client.retry_outbox)
    pull = _plain(Client.pull)
    reply = _plain(Client.reply)

    async def wait(self, job_id: str) -> JsonObject:
        """The job once it has ended."""
        while True:
            job = await self.job(job_id, wait_seconds=30)
            if job["state"] in ENDED:
                return job

    async def events(self, job_id: str, *, after: int = 0) -> list[JsonObject]:
        return await self._client.listed_events(job_id, after)

    def follow(self, job_id: str, *, after: int = 0) -> AsyncIterator[JsonObject]:
        """Events as they happen, until the job has ended."""
        events: AsyncIterator[Any] = self._client.follow(job_id, after=after)
        return events

    async def close(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class _AsItCame(Client):
    def _read(self, model: Callable[[], type[Any]], content: bytes | str) -> Any:
        try:
            return orjson.loads(content)
        except ValueError as error:
            raise self._wire.misread(error) from error

    async def listed_events(self, job_id: str, after: int) -> list[JsonObject]:
        answer: Any = await self._events(job_id, after, 500)
        return list(answer["events"])

    def _warned(self, answer: Any) -> Any:
        return answer
