"""HTTP on the wire: uvicorn's protocol, with a bound on the head of a request, which has none of its own.

What never becomes a request is answered with a problem document too.
"""

from http import HTTPStatus
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lucius.api.problems import Problem, problem_response

MAX_HEAD_BYTES: Final = 32 * 1024
"""Request line and headers together."""
MAX_HEADERS: Final = 100


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


def refusal(code: str) -> bytes:
    answer = problem_response(Problem(code))
    status = HTTPStatus(answer.status_code)
    lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode()), b"connection: close"]
    lines += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])
