"""The way to a client: it knows how much the client has taken, and hangs up without losing an answer.

A socket that is closed while its client still sends resets the connection, and the answer is lost. So a
connection whose request has not arrived whole is closed in two steps: the answer and an end, then what
still comes is dropped until the client hangs up. The protocol bounds how much, the sweep how long.
"""

import asyncio
from collections.abc import Callable
from typing import Any


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
