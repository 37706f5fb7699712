"""HTTP on the wire: uvicorn's protocol, with bounds on the head of a request, which has none of its own.

What never becomes a request is answered with a problem document too. It also says what a client
still owes, for whoever watches the clock.
"""

from enum import Enum, auto
from http import HTTPStatus
from typing import Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lucius.api.problems import Problem, problem_response

MAX_HEAD_BYTES: Final = 32 * 1024
"""Request line and headers together."""
MAX_HEADERS: Final = 100


class Owed(Enum):
    """What the client has to send before anyone can go on."""

    REQUEST = auto()
    """Anything that begins one: the connection is new and silent, or brings what is no request."""
    HEAD = auto()
    BODY = auto()


class HeadTooLargeError(Exception):
    """Raised inside the parser, which then gives up the connection."""


class BoundedProtocol(HttpToolsProtocol):
    """Answers 431 and hangs up as soon as a head is too large, however slowly it comes."""

    _in_head = False
    _head = 0
    _too_large = False

    def data_received(self, data: bytes) -> None:
        began_in_head = self._in_head
        super().data_received(data)
        if began_in_head and self._in_head:
            self._head += len(data)
            if self._head > MAX_HEAD_BYTES and not self._too_large:
                self._refuse()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
            self._too_large = True
            raise HeadTooLargeError
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self._too_large:
            self._refuse()
        else:
            self.transport.write(refusal("INVALID_HTTP"))
            self.transport.close()

    def _refuse(self) -> None:
        self._too_large = True
        self.transport.write(refusal("HEADERS_TOO_LARGE"))
        self.transport.close()

    def owed(self) -> Owed | None:
        """None: it is the server's turn, or the connection rests between two requests."""
        cycle = cast(RequestResponseCycle | None, self.cycle)
        if self.transport.is_closing():
            return None
        if cycle is not None and not cycle.response_complete:
            ours = self._in_head or self.pipeline or self.flow.read_paused
            ours = ours or cycle.waiting_for_100_continue or not cycle.more_body
            return None if ours else Owed.BODY
        if self._in_head:
            return Owed.HEAD
        return Owed.REQUEST if self.timeout_keep_alive_task is None else None

    def give_up(self, owed: Owed) -> None:
        """Hang up, with an answer where one is due: a request has begun, and none has been given."""
        if owed is Owed.HEAD or (owed is Owed.BODY and not self.cycle.response_started):
            self.transport.write(refusal("REQUEST_TIMEOUT"))
        self.transport.close()


def refusal(code: str) -> bytes:
    answer = problem_response(Problem(code))
    status = HTTPStatus(answer.status_code)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), b"connection: close"]
    lines += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])
