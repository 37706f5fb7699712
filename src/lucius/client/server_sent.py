"""Server-sent events, read line by line. By hand: no maintained library reads them from aiohttp."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import NamedTuple


class SentEvent(NamedTuple):
    """`last_id` is what a stream that breaks after this event is resumed with."""

    kind: str
    data: str
    last_id: str


async def server_sent(lines: AsyncIterable[bytes]) -> AsyncIterator[SentEvent]:
    """Each event. Comments and events without data are passed over."""
    kind, data, last_id = "", list[str](), ""
    async for line in lines:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            last_id = value
        elif not name and not value:
            if data:
                yield SentEvent(kind, "\n".join(data), last_id)
            kind, data = "", []
