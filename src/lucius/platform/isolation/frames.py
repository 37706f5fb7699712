"""Frames between a server and its child processes: a JSON header, and the bytes that belong to it."""

import asyncio
import json
import socket
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

from lucius.core.errors import LuciusError, WorkspaceError, WorkspaceRefusedError
from lucius.platform.errors import FatalError, ObjectMissingError, RetryableError, StepError

Header = Mapping[str, Any]
PipeFrame = tuple[dict[str, Any], bytes]
LENGTHS: Final = Struct("!QQ")
PIECE: Final = 1 << 20
"""So much is read from a socket at once."""


class FrameError(LuciusError):
    """What came is no frame, or is larger than the other side may send."""


def frame(header: Header, body: bytes = b"") -> tuple[bytes, bytes]:
    """The two parts to send, one after the other: the body may be large and is not copied."""
    head = json.dumps(header).encode()
    return LENGTHS.pack(len(head), len(body)) + head, body


def parsed(head: bytes) -> dict[str, Any]:
    try:
        header = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise FrameError("the header is not an object")
    return header


async def read_frame(reader: asyncio.StreamReader, limit: int) -> PipeFrame:
    """`limit` is for what may come in all. IncompleteReadError: the other side has gone."""
    head, body = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
    if head + body > limit:
        raise FrameError(f"{head + body} bytes where {limit} are allowed")
    header = parsed(await reader.readexactly(head))
    return header, await reader.readexactly(body)


def receive_frame(connection: socket.socket) -> PipeFrame | None:
    """The next frame, waited for; None once the other side has gone."""
    lengths = _exactly(connection, LENGTHS.size)
    if lengths is None:
        return None
    head, body = LENGTHS.unpack(lengths)
    header, content = _exactly(connection, head), _exactly(connection, body)
    return None if header is None or content is None else (parsed(header), content)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    content = bytearray()
    while len(content) < size:
        piece = connection.recv(min(PIECE, size - len(content)))
        if not piece:
            return None
        content += piece
    return bytes(content)


# -- errors that cross ------------------------------------------------------------------------

_STEP_ERRORS: Final = (ObjectMissingError, FatalError, RetryableError)
_OTHERS: Final = (WorkspaceRefusedError, WorkspaceError, LuciusError)
_KINDS: Final[Mapping[str, type[Exception]]] = {
    kind.__name__: kind for kind in (*_STEP_ERRORS, *_OTHERS)
}


def told(error: Exception) -> dict[str, Any]:
    """An error as data, under the nearest name that the other side knows."""
    names = (kind.__name__ for kind in type(error).__mro__)
    kind = next((name for name in names if name in _KINDS), None)
    message = str(error) if kind else f"{type(error).__name__}: {error}"
    return {"kind": kind, "message": message, "code": getattr(error, "code", None)}


def raised(fields: Header) -> Exception:
    kind = _KINDS.get(str(fields.get("kind")), LuciusError)
    if issubclass(kind, StepError | WorkspaceError):
        return kind(str(fields.get("message")), code=fields.get("code"))
    return kind(str(fields.get("message")))
