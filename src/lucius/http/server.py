"""HTTP on the wire: uvicorn's protocol, with bounds on the head and the trailers of a request.

What never becomes a request is answered with a problem document too. It also says what a client
still owes, for whoever watches the clock.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Any, Final, NamedTuple, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lucius.http.limits import ANSWER_UNREAD, RESERVE_CODE, Connections, network_of
from lucius.http.problems import Problem, problem_response

# The way to a client: it knows how much the client has taken, and hangs up without losing an answer.
#
# A socket that is closed while its client still sends resets the connection, and the answer is lost. So a
# connection whose request has not arrived whole is closed in two steps: the answer and an end, then what
# still comes is dropped until the client hangs up. The protocol bounds how much, the sweep how long.


class ClientTransport(asyncio.Transport):
    """`expects_more`: whether the client may still be sending what the answer is about."""

    def __init__(self, inner: asyncio.Transport, expects_more: Callable[[], bool]) -> None:
        super().__init__()
        self._inner = inner
        self._expects_more = expects_more
        self._loop = asyncio.get_running_loop()
        self._held: list[bytes] = []
        """What was written in this turn of the loop: head and body of an answer go out together."""
        self._written = 0
        self.lingering = False

    @property
    def untaken(self) -> int:
        """Bytes that wait here, because the client's side takes no more."""
        return self._inner.get_write_buffer_size() + sum(map(len, self._held))

    @property
    def taken(self) -> int:
        return self._written - self.untaken

    def write(self, data: Any) -> None:
        """What comes after the end is dropped: an answer to one of several requests may come late."""
        if self.is_closing():
            return
        self._written += len(data)
        if not self._held:
            self._loop.call_soon(self._send)
        self._held.append(bytes(data))

    def _send(self) -> None:
        held, self._held = self._held, []
        if held and not self._inner.is_closing():
            self._inner.write(held[0] if len(held) == 1 else b"".join(held))

    def close(self) -> None:
        self._send()
        if self.is_closing() or not self._expects_more():
            self._inner.close()
            return
        self.lingering = True
        self._inner.resume_reading()
        self._inner.write_eof()

    def hang_up(self) -> None:
        """Now, with what was written if the client takes it."""
        self._send()
        self._inner.close()

    def abort(self) -> None:
        """Now, whatever has been written."""
        self._held = []
        self._inner.abort()

    def is_closing(self) -> bool:
        return self.lingering or self._inner.is_closing()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)


MAX_HEAD_BYTES: Final = 32 * 1024
"""Request line and headers together; as much again for trailers, which are dropped."""
MAX_HEADERS: Final = 100
MAX_DROPPED_BYTES: Final = 64 * 1024 * 1024
"""So much of a request that was answered early is read and dropped, so that the answer arrives."""
ALWAYS: Final = (("x-content-type-options", "nosniff"),)
"""Headers of every answer."""


class ClientPhase(Enum):
    """What the client has to do before anyone can go on."""

    REQUEST = auto()
    """Send anything that begins one: the connection is new and silent, or brings what is no request."""
    HEAD = auto()
    BODY = auto()
    END = auto()
    """Hang up: it has its answer, and what it still sends is dropped."""
    TAKING = auto()
    """Take some of what was written to it."""


class WaitingOn(NamedTuple):
    """`progress` changes when the client has done something about it."""

    phase: ClientPhase
    progress: int


class RefusedError(Exception):
    """Raised inside the parser, which then gives up the connection."""


class BoundedProtocol(HttpToolsProtocol):
    """Answers 431 and hangs up as soon as a head or trailers are too large, however slowly they come."""

    transport: ClientTransport
    _in_head = False
    _size = 0
    """Bytes of the head, or of the trailers, that came so far."""
    _trailers = 0
    _chunk = 0
    """The number of the chunk whose content has not begun; 0 if there is none. The last has no content."""
    _chunks = 0
    _requests = 0
    _dropped = 0
    _refusal: str | None = None
    _ending = False

    def __init__(self, connections: Connections, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._connections = connections
        self._place: str | None = None

    # -- the connection --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(ClientTransport(transport, self._expects_more))
        address = network_of(self.client[0]) if self.client is not None else ""
        self._place = self._connections.enter(self, address)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server ends: from now on nobody is waited for until they have read their answer."""
        self._ending = True
        if self.transport.lingering:
            self.transport.hang_up()
        else:
            super().shutdown()

    def has_asked(self) -> bool:
        return self.cycle is not None

    def cut_off(self) -> None:
        self.transport.abort()

    def _expects_more(self) -> bool:
        cycle = cast(RequestResponseCycle | None, self.cycle)
        unfinished = cycle is not None and cycle.more_body
        return not self._ending and (self._refusal is not None or unfinished)

    # -- what comes ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.transport.lingering:
            self._drop(data)
            return
        began = (self._requests, self._in_head, self._chunk)
        super().data_received(data)
        open_ended = self._in_head or self._chunk
        if open_ended and began == (self._requests, self._in_head, self._chunk):
            self._size += len(data)
            if self._size > MAX_HEAD_BYTES and self._refusal is None:
                self._refuse("HEADERS_TOO_LARGE")

    def _drop(self, data: bytes) -> None:
        self._dropped += len(data)
        if self._dropped > MAX_DROPPED_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._requests += 1
        self._in_head, self._size, self._trailers, self._chunk = True, 0, 0, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """A trailer is counted and dropped: it comes too late to say anything about its request."""
        if self._in_head:
            super().on_header(name, value)
            return
        self._trailers += 1
        self._size += len(name) + len(value)
        if self._size > MAX_HEAD_BYTES or self._trailers > MAX_HEADERS:
            self._give_up_parsing("HEADERS_TOO_LARGE")

    def on_headers_complete(self) -> None:
        fault = self._fault()
        if fault is not None:
            self._give_up_parsing(fault)
        self._in_head, self._size = False, 0
        if self._place is not None:
            cast(dict[str, Any], self.scope)[RESERVE_CODE] = self._place
        super().on_headers_complete()
        if self._place is not None:
            self.cycle.keep_alive = False

    def on_chunk_header(self) -> None:
        self._chunks += 1
        self._chunk = self._chunks

    def on_body(self, body: bytes) -> None:
        self._chunk = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._chunk = 0
        super().on_message_complete()

    def _fault(self) -> str | None:
        """What is wrong with the head; one pass over the headers."""
        size, hosts = len(self.url), 0
        for name, value in self.headers:
            size += len(name) + len(value)
            hosts += name == b"host"
        if size > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
            return "HEADERS_TOO_LARGE"
        if not self.url.startswith(b"/"):
            return "INVALID_TARGET"
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            return "INVALID_HOST"
        return None

    # -- refusals --------------------------------------------------------------------------------

    def _give_up_parsing(self, code: str) -> None:
        self._refusal = code
        raise RefusedError(code)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or "INVALID_HTTP")

    def _refuse(self, code: str) -> None:
        """Answer and hang up, once what came before is answered; without a word if this answer has begun."""
        self._refusal = code
        cycle = cast(RequestResponseCycle | None, self.cycle)
        if cycle is None or cycle.response_complete:
            self.transport.write(refusal(code))
        elif self._in_head or self.pipeline:
            self.flow.pause_reading()
            return
        else:
            if not cycle.response_started:
                self.transport.write(refusal(code))
            cycle.disconnected = True
            cycle.message_event.set()
        self._connections.refused(code)
        self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._refusal is not None and not self.transport.is_closing():
            self._refuse(self._refusal)

    # -- what the client owes --------------------------------------------------------------------

    def waiting_on(self) -> WaitingOn | None:
        """None: it is the server's turn, or the connection rests between two requests."""
        if self.transport.untaken:
            return WaitingOn(ClientPhase.TAKING, self.transport.taken)
        if self.transport.lingering:
            return WaitingOn(ClientPhase.END, 0)
        phase = None if self.transport.is_closing() else self._phase()
        return WaitingOn(phase, self._requests) if phase is not None else None

    def _phase(self) -> ClientPhase | None:
        cycle = cast(RequestResponseCycle | None, self.cycle)
        if cycle is not None and not cycle.response_complete:
            ours = self._in_head or self.pipeline or self.flow.read_paused
            ours = ours or cycle.waiting_for_100_continue or not cycle.more_body
            return None if ours else ClientPhase.BODY
        if self._in_head:
            return ClientPhase.HEAD
        return ClientPhase.REQUEST if self.timeout_keep_alive_task is None else None

    def give_up(self, phase: ClientPhase) -> None:
        """Hang up, with an answer where one is due: a request has begun, and none has been given."""
        if phase in (ClientPhase.TAKING, ClientPhase.END):
            self._connections.refused(ANSWER_UNREAD)
            self.transport.abort()
            return
        self._connections.refused("REQUEST_TIMEOUT")
        if phase is ClientPhase.HEAD or (
            phase is ClientPhase.BODY and not self.cycle.response_started
        ):
            self.transport.write(refusal("REQUEST_TIMEOUT"))
        self.transport.hang_up()


def bounded(connections: Connections) -> type[asyncio.Protocol]:
    """What uvicorn makes for each connection."""
    return cast(type[asyncio.Protocol], partial(BoundedProtocol, connections))


def refusal(code: str) -> bytes:
    answer = problem_response(Problem(code))
    status = HTTPStatus(answer.status_code)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in (*ALWAYS, *answer.headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + bytes(answer.body)


# Hangs up on clients that hold a connection and neither finish what they send nor take what they are sent.
#
# Connections are looked at once a second. So a request pays nothing for it, and one that is cut off has
# had its time and up to two seconds more.


class Mark(NamedTuple):
    """What a client owed when it was first seen to owe it."""

    waiting_on: WaitingOn
    since: float


class SlowClients:
    """`head` and `body`: the time to send them. `unread`: the time in which some of an answer is taken."""

    def __init__(
        self,
        head: timedelta,
        body: timedelta,
        unread: timedelta,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._patience = {
            ClientPhase.REQUEST: head.total_seconds(),
            ClientPhase.HEAD: head.total_seconds(),
            ClientPhase.BODY: body.total_seconds(),
            ClientPhase.END: body.total_seconds(),
            ClientPhase.TAKING: unread.total_seconds(),
        }
        self._clock = clock
        self._marks: dict[BoundedProtocol, Mark] = {}

    def sweep(self, connections: Iterable[object]) -> None:
        now, marks = self._clock(), dict[BoundedProtocol, Mark]()
        for connection in [each for each in connections if isinstance(each, BoundedProtocol)]:
            waiting_on = connection.waiting_on()
            if waiting_on is None:
                continue
            mark = self._marks.get(connection)
            if mark is None or mark.waiting_on != waiting_on:
                mark = Mark(waiting_on, now)
            if now - mark.since >= self._patience[waiting_on.phase]:
                connection.give_up(waiting_on.phase)
            else:
                marks[connection] = mark
        self._marks = marks


class SweptServer(uvicorn.Server):
    """Looks for slow clients as long as it runs. Signals are for whoever runs it."""

    ticks_a_look = 10
    """Ten ticks are a second."""

    def __init__(self, config: uvicorn.Config, slow: SlowClients) -> None:
        super().__init__(config)
        self._slow = slow

    async def on_tick(self, counter: int) -> bool:
        if counter % self.ticks_a_look == 0:
            self._slow.sweep(self.server_state.connections)
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
