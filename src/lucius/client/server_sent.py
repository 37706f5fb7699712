"""Server-sent events, read line by line. By hand: no maintained library reads them from aiohttp."""

from collections.abc import AsyncIterable, AsyncIterator


async def server_sent(lines: AsyncIterable[bytes]) -> AsyncIterator[tuple[str, str]]:
    """Kind and data of each event. Comments and events without data are passed over."""
    kind, data = "", list[str]()
    async for line in lines:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif not name and not value:
            if data:
                yield kind, "\n".join(data)
            kind, data = "", []
