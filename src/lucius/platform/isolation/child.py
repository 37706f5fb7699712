"""A child process: executes one task after another, and asks the server for everything it needs."""

import asyncio
import dataclasses
import faulthandler
import logging
import os
import socket
import threading
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from lucius.platform.errors import (
    FatalError,
    MemoryLimitError,
    classify,
    step_failure,
)
from lucius.platform.isolation.frames import frame, raised, receive_frame, told
from lucius.platform.messages import Directive, parse_directive
from lucius.platform.service import Output, Service, parse_payload
from lucius.platform.task import SyncTask, Task

log = logging.getLogger("lucius.platform")
T = TypeVar("T")


class Channel:
    """The child's end of the socket. A thread listens, so that a cancellation is heard during work."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._asked: dict[int, Future[bytes]] = {}
        self._number = 0
        self.orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.task: RemoteTask | None = None
        self.cancelled = False

    def listen(self) -> None:
        """Until the server has gone: then this process ends too, whatever it does."""
        while (received := receive_frame(self._connection)) is not None:
            header, body = received
            match header["do"]:
                case "execute":
                    self.cancelled = False
                    self.orders.put(header)
                case "cancel":
                    self._cancel()
                case "answer":
                    self._answered(header, body)
        os._exit(0)

    def _cancel(self) -> None:
        """The task may not be there yet: who makes it looks whether it is cancelled already."""
        self.cancelled = True
        if self.task is not None:
            self.task.request_cancel()

    def _answered(self, header: dict[str, Any], body: bytes) -> None:
        asked = self._asked.pop(header["number"])
        if header.get("error") is not None:
            asked.set_exception(raised(header["error"]))
        else:
            asked.set_result(body)

    def say(self, header: dict[str, Any], body: bytes = b"") -> None:
        with self._sending:
            for part in frame(header, body):
                self._connection.sendall(part)

    def ask(self, header: dict[str, Any], body: bytes = b"") -> "Future[bytes]":
        answer: Future[bytes] = Future()
        with self._sending:
            self._number += 1
            number = self._number
        self._asked[number] = answer
        self.say({"say": "ask", "number": number, **header}, body)
        return answer


class Unreachable:
    """The workspace of a child: there is none, its task asks the server."""

    def __getattr__(self, name: str) -> Any:
        raise FatalError("a child process has no workspace of its own", code="REFERENCE_REFUSED")


class RemoteTask(Task):
    """Reads and stages through the server, which lets it reach what the job may touch."""

    def __init__(
        self,
        directive: Directive,
        payload: Any,
        channel: Channel,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(directive, payload, Unreachable())
        self._channel = channel
        self._loop = loop

    async def read(self, reference: Any) -> bytes:
        return await self._asked({"call": "read", "reference": reference})

    async def stage(self, name: str, data: bytes | str) -> str:
        content = data.encode() if isinstance(data, str) else bytes(data)
        return (await self._asked({"call": "stage", "name": name}, content)).decode()

    def report(self, progress: str) -> None:
        self._channel.say({"say": "report", "progress": progress})

    async def _asked(self, header: dict[str, Any], body: bytes = b"") -> bytes:
        return await asyncio.wrap_future(self._channel.ask(header, body))

    def request_cancel(self) -> None:
        """Called by the listening thread: the flag is set now, whoever waits is told by the loop."""
        self.cancel_requested = True
        self._loop.call_soon_threadsafe(super().request_cancel)


class ServerLog(logging.Handler):
    """What a service logs is logged by the server, beside what the server says of the same job."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = {"logger": record.name, "level": record.levelno, "message": record.getMessage()}
            if record.exc_info:
                line["stack"] = "".join(traceback.format_exception(*record.exc_info))
            self._channel.say({"say": "log", **line})
        except Exception:
            self.handleError(record)


class Worker:
    def __init__(self, service: Service, channel: Channel, runner: asyncio.Runner) -> None:
        self._service = service
        self._channel = channel
        self._runner = runner
        self._running = threading.Lock()

    def outcome(self, body: dict[str, Any]) -> dict[str, Any]:
        """What is said about one task, whatever it does."""
        try:
            output = self._executed(body)
            return {"say": "done", "output": output and dataclasses.asdict(output)}
        except MemoryError:
            failure = classify(MemoryLimitError("the memory of the process is used up"))
        except BaseException as error:
            failure = classify(step_failure(error), self._service.errors)
            if failure.code == "UNEXPECTED_ERROR":
                log.error("%s failed unexpectedly", self._service.name, exc_info=error)
        status, code, message = failure.status.value, failure.code, failure.message
        return {"say": "failed", "status": status, "code": code, "message": message}

    def _executed(self, body: dict[str, Any]) -> Output | None:
        service = self._service
        payload = parse_payload(service.payload_model, body.get("payload"))
        loop = self._runner.get_loop()
        task = RemoteTask(parse_directive(body), payload, self._channel, loop)
        self._channel.task = task
        if self._channel.cancelled:
            task.request_cancel()
        execute: Callable[[Any], Any] = service.execute
        if service.blocking:
            output: Output | None = execute(SyncTask(task, self._run))
        else:
            output = self._run(execute(task))
        return output

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """One at a time: a service may have threads of its own."""
        with self._running:
            return self._runner.run(work)


def run_child(connection: socket.socket, service: Service) -> None:
    """Never returns: it ends with the server, or is killed by it."""
    faulthandler.enable()
    channel = Channel(connection)
    logging.getLogger().handlers[:] = [ServerLog(channel)]
    threading.Thread(target=channel.listen, daemon=True).start()
    with asyncio.Runner() as runner:
        worker = Worker(service, channel, runner)
        while True:
            order = channel.orders.get()
            logging.getLogger().setLevel(order["level"])
            said = worker.outcome(order["directive"])
            channel.task = None
            try:
                channel.say(said)
            except (TypeError, ValueError) as error:
                unsendable = FatalError(f"the output is not JSON: {error}", code="INVALID_OUTPUT")
                channel.say({"say": "failed", "status": "FAILED_FINAL", **told(unsendable)})
