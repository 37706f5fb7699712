"""The same client for scripts and notebooks without `async`: each call returns when it is done."""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from lucius.client import models
from lucius.client.client import Client, Options

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    call: Callable[Concatenate[Client, P], Coroutine[Any, Any, R]],
) -> "Callable[Concatenate[BlockingClient, P], R]":
    @wraps(call)
    def blocking(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.run(call(self._client, *args, **kwargs))

    return blocking


class BlockingClient:
    """`BlockingClient().run(command)` submits and returns the ended job. Options as for `Client`."""

    def __init__(self, url: str | None = None, **options: Unpack[Options]) -> None:
        self._client = Client(url, **options)
        self._loop = _Loop()
        self._finalizer = weakref.finalize(self, _close, self._loop, self._client)

    run = _blocking(Client.run)
    submit = _blocking(Client.submit)
    job = _blocking(Client.job)
    wait = _blocking(Client.wait)
    steps = _blocking(Client.steps)
    executions = _blocking(Client.executions)
    jobs = _blocking(Client.jobs)
    protocols = _blocking(Client.protocols)
    settings = _blocking(Client.settings)
    failures = _blocking(Client.failures)
    start_redrive = _blocking(Client.start_redrive)
    redrives = _blocking(Client.redrives)
    redrive_plan = _blocking(Client.redrive_plan)
    stop_redrive = _blocking(Client.stop_redrive)
    why = _blocking(Client.why)
    why_job = _blocking(Client.why_job)
    services = _blocking(Client.services)
    pause_service = _blocking(Client.pause_service)
    resume_service = _blocking(Client.resume_service)
    events = _blocking(Client.events)
    cancel = _blocking(Client.cancel)
    pause = _blocking(Client.pause)
    resume = _blocking(Client.resume)
    retry = _blocking(Client.retry)
    redrive = _blocking(Client.redrive)
    webhooks = _blocking(Client.webhooks)
    resend_webhooks = _blocking(Client.resend_webhooks)
    drop_worker = _blocking(Client.drop_worker)
    dlq = _blocking(Client.dlq)
    dismiss = _blocking(Client.dismiss)
    order_many = _blocking(Client.order_many)
    retry_outbox = _blocking(Client.retry_outbox)
    pull = _blocking(Client.pull)
    reply = _blocking(Client.reply)

    def follow(self, job_id: str, *, after: int = 0) -> "Iterator[models.EventView]":
        """Events as they happen, until the job has ended."""
        events = self._client.follow(job_id, after=after)
        try:
            while (event := self._loop.run(_next(events))) is not None:
                yield event
        finally:
            self._loop.run(_end(events))

    def close(self) -> None:
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Loop:
    """An event loop in a thread of its own, so that it works where another loop runs (a notebook)."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="lucius-client", daemon=True
            )
            self._thread.start()
        return self._loop

    def stop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()


def _close(loop: _Loop, client: Client) -> None:
    loop.run(client.close())
    loop.stop()


async def _next(events: "AsyncIterator[models.EventView]") -> "models.EventView | None":
    return await anext(events, None)


async def _end(events: Any) -> None:
    await events.aclose()
