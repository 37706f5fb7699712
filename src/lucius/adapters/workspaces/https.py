"""Documents at `https://` addresses: they are read, and nothing else.

Only addresses below those that the operator has named are asked for, and only machines outside: a
name that leads inside the house is refused, and so is a redirect that leads elsewhere.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from http import HTTPStatus
from typing import Final, NoReturn
from urllib.parse import urlsplit

import httpx

from lucius.core.addresses import outside_fault, secret_in
from lucius.core.errors import WorkspaceError, WorkspaceRefusedError
from lucius.core.references import unsafe_path
from lucius.ports.workspace import Digest
from lucius.system.outside import AddressRefusedError, guarded_transport, read_alike

TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0, pool=None)
LONGEST: Final = 300.0
"""Seconds for a whole document, however slowly it comes."""
REDIRECTS: Final = 5
AS_IT_IS: Final = {"accept-encoding": "identity", "user-agent": "lucius"}
"""What is compressed could be larger than all bounds once it is not."""
GONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
DENIED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class HttpsDocuments:
    """Implements `lucius.ports.workspace.Workspace`, as far as it reads. `limit`: bytes of a document."""

    def __init__(
        self,
        roots: Sequence[str],
        *,
        limit: int,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._roots = tuple(_url(root) for root in roots)
        self._limit = limit
        self._client = httpx.AsyncClient(
            transport=transport or guarded_transport(),
            timeout=TIMEOUT,
            headers=AS_IT_IS,
            follow_redirects=False,
            trust_env=False,
        )

    def within(self, *folders: str) -> "HttpsDocuments":
        return self

    def writable(self, uri: str) -> bool:
        return False

    async def read(self, uri: str) -> bytes | None:
        try:
            secret = secret_in(urlsplit(uri))
        except ValueError:
            secret = "is not a URI"
        if secret is not None:
            raise WorkspaceRefusedError(f"the reference {secret}")
        try:
            async with asyncio.timeout(LONGEST), self._answer(uri) as answer:
                return await self._content(uri, answer)
        except AddressRefusedError as error:
            raise WorkspaceRefusedError(f"{uri}: {error}") from error
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise WorkspaceError(f"{uri} did not answer: {error!r}") from error

    @asynccontextmanager
    async def _answer(self, uri: str) -> AsyncIterator[httpx.Response]:
        """The last answer of a row of redirects, each of which is judged like the reference."""
        url = self._checked(uri)
        for _ in range(REDIRECTS + 1):
            async with self._client.stream("GET", url) as answer:
                if answer.next_request is None:
                    yield answer
                    return
                url = self._checked(str(answer.next_request.url))
        raise WorkspaceError(f"{uri} leads to more than {REDIRECTS} other addresses")

    async def _content(self, uri: str, answer: httpx.Response) -> bytes | None:
        status = answer.status_code
        if status in GONE:
            return None
        if status in DENIED:
            raise WorkspaceError(
                f"{uri} answers {status}, and LUCIUS sends no credentials to https addresses: let its host"
                " serve it to this machine, or put the document into an object store",
                code="STORAGE_ACCESS_DENIED",
            )
        if status != HTTPStatus.OK:
            raise WorkspaceError(f"{uri} answers {status}")
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise WorkspaceRefusedError(f"{uri} is sent compressed, though that was not asked for")
        content = bytearray()
        async for portion in answer.aiter_raw():
            content += portion
            if len(content) > self._limit:
                raise WorkspaceRefusedError(
                    f"{uri} has more than {self._limit} bytes which is the most that is read",
                    code="OBJECT_TOO_LARGE",
                )
        return bytes(content)

    def _checked(self, uri: str) -> httpx.URL:
        url = _url(uri)
        if not any(_below(url, root) for root in self._roots):
            raise WorkspaceRefusedError(
                f"{_shown(url)} is below no https address of LUCIUS_INPUT_ROOTS"
            )
        return url

    async def size(self, uri: str) -> int | None:
        """Not known before it is read."""
        self._checked(uri)
        return None

    async def digest(self, uri: str) -> Digest | None:
        content = await self.read(uri)
        return None if content is None else Digest(sha256(content).hexdigest(), len(content))

    async def close(self) -> None:
        await self._client.aclose()

    # -- what is not done here ---------------------------------------------------------------

    async def write(self, uri: str, data: bytes) -> None:
        _refuse(uri)

    async def create(self, uri: str, data: bytes) -> bool:
        _refuse(uri)

    async def create_all(
        self, objects: Sequence[tuple[str, bytes]], *, unless: str | None = None
    ) -> int | None:
        _refuse(objects[0][0])

    async def replace(self, uri: str, data: bytes, expected: Digest) -> bool:
        _refuse(uri)

    async def remove(self, uri: str) -> None:
        _refuse(uri)

    async def folders(self, uri: str) -> list[str]:
        _refuse(uri)

    async def list(self, prefix: str) -> "list[str]":
        _refuse(prefix)


def _refuse(uri: str) -> NoReturn:
    raise WorkspaceRefusedError(f"{uri} can be read, and nothing else")


def _url(uri: str) -> httpx.URL:
    """As the client reads it, if nobody can read it otherwise and it is not inside as it is written."""
    url = read_alike(uri)
    if url is None or url.scheme != "https" or url.userinfo or not url.raw_host:
        raise WorkspaceRefusedError(f"{uri!r} is not an https address that all read alike")
    fault = outside_fault(url.raw_host.decode(), url.port) or unsafe_path(urlsplit(uri).path)
    if fault is not None:
        raise WorkspaceRefusedError(f"{_shown(url)}: {fault}")
    return url


def _below(url: httpx.URL, root: httpx.URL) -> bool:
    """With escapes as they are: what stands behind one is for the server to read."""
    if (url.raw_host, url.port) != (root.raw_host, root.port):
        return False
    path, top = (each.raw_path.partition(b"?")[0].rstrip(b"/") + b"/" for each in (url, root))
    return path.startswith(top)


def _shown(url: httpx.URL) -> str:
    """Without its query, which may carry a signature where a redirect has brought it."""
    return str(url.copy_with(query=None, fragment=None))
