"""As little of an HTTP client as a load generator needs, so that it measures the server, not itself."""

import asyncio
from typing import Any, Self

import orjson


class Connection:
    """One keep-alive connection; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, path: str, body: Any, token: str | None = None) -> tuple[int, Any]:
        data = orjson.dumps(body)
        bearer = f"authorization: Bearer {token}\r\n" if token else ""
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"{bearer}content-length: {len(data)}\r\n\r\n"
        )
        return await self._exchange(head.encode() + data)

    async def get(self, path: str) -> tuple[int, Any]:
        return await self._exchange(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())

    async def _exchange(self, request: bytes) -> tuple[int, Any]:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await self._reader.readexactly(length)
        return int(head[9:12]), orjson.loads(body) if body else None

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()
