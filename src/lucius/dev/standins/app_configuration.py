"""A stand-in for Azure App Configuration that the real SDK talks to, over HTTP on loopback.

It checks the signature of every request, keeps key-values in memory and answers 501 to what it does
not know. `python -m lucius.dev.standins.app_configuration` runs one that holds the packaged protocols,
or those of the files and folders that it is given, as they change.
"""

import argparse
import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Protocol, Self

from aiohttp import web

from lucius.adapters.configs.catalogs import parse_document
from lucius.adapters.configs.files import PACKAGED, Signature, seen
from lucius.adapters.configs.key_values import SENTINEL, key_values
from lucius.core.errors import ProtocolError

# Protocol files that the stand-in for App Configuration holds, as they change.

FOLLOW: Final = 1.0
"""Seconds between two looks."""


class Holder(Protocol):
    """What holds the content of protocol files."""

    def hold(self, *bodies: Mapping[str, Any]) -> set[str]: ...

    def delete(self, key: str) -> object: ...


class Followed:
    """Protocol files and folders. What is in them is held, and again whenever it changes."""

    def __init__(self, holder: Holder, paths: Sequence[Path]) -> None:
        self._holder = holder
        self._paths = paths
        self._seen: Signature = ()
        self._keys: set[str] = set()

    def look(self) -> None:
        """Raises ProtocolError or OSError. What was held is held on then, until the files change again."""
        now, before = seen(self._paths), self._seen
        if now == before:
            return
        self._seen = now
        found = [parse_document(name, Path(name).read_text("utf-8")) for name, _, _ in now]
        for key in self._keys:
            self._holder.delete(key)
        self._keys = self._holder.hold(*(each.body for each in found))

    async def follow(self) -> NoReturn:
        while True:
            await asyncio.sleep(FOLLOW)
            try:
                self.look()
            except (ProtocolError, OSError) as error:
                print(f"the changed protocols are not held: {error}", file=sys.stderr)


HOST: Final = "127.0.0.1"
PAGE: Final = 100
"""As many entries as the service puts on a page."""
SKEW: Final = timedelta(minutes=15)
"""How old a signature may be."""
DATES: Final = ("x-ms-date", "date")
"""One of them must be signed; the first that is signed counts."""
CONTENT: Final = "x-ms-content-sha256"
PYTHON_DATE: Final = "%b, %d %Y %H:%M:%S.%f GMT"
"""How the SDK for Python writes `x-ms-date`. Others write it as an HTTP date."""
NO_LABEL: Final = "\0"


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    label: str
    value: str
    content_type: str
    etag: str
    changed_at: datetime
    tags: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "label": self.label or None,
            "value": self.value,
            "content_type": self.content_type,
            "etag": self.etag,
            "last_modified": self.changed_at.isoformat(),
            "locked": False,
            "tags": dict(self.tags),
        }


class StandIn:
    """`async with StandIn() as stand_in:` serves until left. What it holds outlives an outage."""

    def __init__(
        self,
        *,
        port: int = 0,
        secret: bytes = b"",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._port = port
        self._now = now
        self._secret = secret or secrets.token_bytes(32)
        self._runner: web.AppRunner | None = None
        self._versions = count(1)
        self.entries: dict[tuple[str, str], Entry] = {}
        self.requests: Counter[str] = Counter()
        """Answers by `METHOD path status`, without the query."""

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self._port}"

    @property
    def connection_string(self) -> str:
        secret = base64.b64encode(self._secret).decode()
        return f"Endpoint={self.endpoint};Id=stand-in;Secret={secret}"

    # -- what it holds -----------------------------------------------------------------------

    def put(
        self,
        key: str,
        value: str,
        label: str = "",
        content_type: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> Entry:
        etag = f"v{next(self._versions)}"
        entry = Entry(key, label, value, content_type, etag, self._now(), tags or {})
        self.entries[key, label] = entry
        return entry

    def delete(self, key: str, label: str = "") -> Entry | None:
        return self.entries.pop((key, label), None)

    def hold(self, *bodies: Mapping[str, Any], label: str = "") -> set[str]:
        """The content of protocol files, and the sentinel last. The keys that were put."""
        wanted = {key: value for body in bodies for key, value in key_values(body).items()}
        for key, value in wanted.items():
            self.put(key, value, label)
        self.put(SENTINEL, secrets.token_hex(4), label)
        return set(wanted)

    # -- serving -----------------------------------------------------------------------------

    async def start(self) -> None:
        app = web.Application(middlewares=[self._checked])
        app.router.add_get("/kv", self._list)
        app.router.add_route("*", "/kv/{key:.+}", self._one)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Nobody listens until `start`, which takes the same port again."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @web.middleware
    async def _checked(self, request: web.Request, handler: Any) -> web.StreamResponse:
        fault = self._signature_fault(request, await request.read())
        if fault is not None:
            answer = _problem(HTTPStatus.UNAUTHORIZED, fault)
        else:
            try:
                answer = await handler(request)
            except web.HTTPException:
                answer = _problem(HTTPStatus.NOT_IMPLEMENTED, "the stand-in does not know this")
        self.requests[f"{request.method} {request.path} {answer.status}"] += 1
        answer.headers["Sync-Token"] = f"stand-in=0;sn={sum(self.requests.values())}"
        return answer

    def _signature_fault(self, request: web.Request, body: bytes) -> str | None:
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        said = dict(part.partition("=")[::2] for part in text.split("&"))
        if scheme != "HMAC-SHA256" or said.get("Credential") != "stand-in":
            return "no such credential"
        names = said.get("SignedHeaders", "").lower().split(";")
        dated = next((name for name in DATES if name in names), None)
        if dated is None or not {"host", CONTENT} <= set(names):
            return f"the signed headers must include x-ms-date or date, host and {CONTENT}"
        values = {name: request.headers.get(name, "") for name in names}
        if values[CONTENT] != _base64(hashlib.sha256(body).digest()):
            return "the content is not what was signed"
        text = f"{request.method}\n{request.raw_path}\n{';'.join(values[name] for name in names)}"
        expected = hmac.new(self._secret, text.encode(), hashlib.sha256).digest()
        if not hmac.compare_digest(_base64(expected), said.get("Signature", "")):
            return "the signature is wrong"
        return self._date_fault(values[dated])

    def _date_fault(self, text: str) -> str | None:
        signed_at = _moment(text)
        if signed_at is None:
            return f"the date that was signed is not a date: {text}"
        return "the signature is out of date" if abs(self._now() - signed_at) > SKEW else None

    async def _list(self, request: web.Request) -> web.Response:
        found = list(self._matching(request.query.get("key", "*"), request.query.get("label", "*")))
        begin = int(request.query.get("after", "0"))
        chosen = next((v for k, v in request.query.items() if k.lower() == "$select"), "")
        items = [_chosen(each.document(), chosen) for each in found[begin : begin + PAGE]]
        body: dict[str, Any] = {"items": items}
        if begin + PAGE < len(found):
            # The last word of the query, where clients look for it.
            first = request.rel_url.without_query_params("after")
            following = first.update_query(after=str(begin + PAGE))
            body["@nextLink"] = str(following)
        return _json(body)

    def _matching(self, keys: str, labels: str) -> Iterator[Entry]:
        for (key, label), entry in sorted(self.entries.items()):
            if _matches(keys, key) and _matches(labels, label or NO_LABEL):
                yield entry

    async def _one(self, request: web.Request) -> web.Response:
        key, label = request.match_info["key"], request.query.get("label", "").strip(NO_LABEL)
        entry = self.entries.get((key, label))
        if request.method in ("PUT", "DELETE") and not _condition_holds(request, entry):
            return _problem(HTTPStatus.PRECONDITION_FAILED, "the entry is another one by now")
        if request.method == "PUT":
            given = await request.json()
            kind = given.get("content_type") or ""
            value, tags = given.get("value") or "", given.get("tags")
            return _json(self.put(key, value, label, kind, tags).document())
        if entry is None:
            missing = HTTPStatus.NO_CONTENT if request.method == "DELETE" else HTTPStatus.NOT_FOUND
            return web.Response(status=missing)
        if request.method == "DELETE":
            self.delete(key, label)
        elif request.headers.get("If-None-Match", "").strip('"') == entry.etag:
            return web.Response(status=HTTPStatus.NOT_MODIFIED)
        return _json(entry.document())


def _chosen(document: dict[str, Any], fields: str) -> dict[str, Any]:
    """The fields that `$select` names; without it, all."""
    names = fields.split(",") if fields else document
    return {name: value for name, value in document.items() if name in names}


def _condition_holds(request: web.Request, entry: Entry | None) -> bool:
    etag = entry.etag if entry is not None else None
    match, none_match = (
        request.headers.get(name, "").strip('"') for name in ("If-Match", "If-None-Match")
    )
    if none_match == "*" and etag is not None:
        return False
    return not match or (etag is not None if match == "*" else etag == match)


def _matches(filters: str, text: str) -> bool:
    """A list with commas; a star at the end stands for the rest; a backslash takes a sign literally."""
    for part in _split(filters):
        if part.endswith("*") and not part.endswith("\\*"):
            if text.startswith(_plain(part[:-1])):
                return True
        elif text == _plain(part):
            return True
    return False


def _split(filters: str) -> list[str]:
    parts, escaped = [""], False
    for sign in filters:
        if sign == "," and not escaped:
            parts.append("")
        else:
            parts[-1] += sign
        escaped = sign == "\\" and not escaped
    return parts


def _plain(part: str) -> str:
    kept, escaped = "", False
    for sign in part:
        escaped = sign == "\\" and not escaped
        kept += "" if escaped else sign
    return kept


def _moment(text: str) -> datetime | None:
    for read in (parsedate_to_datetime, lambda text: datetime.strptime(text, PYTHON_DATE)):
        with suppress(ValueError):
            found = read(text)
            return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _json(body: dict[str, Any]) -> web.Response:
    etag = {"ETag": f'"{body["etag"]}"'} if "etag" in body else {}
    return web.Response(
        text=json.dumps(body), content_type="application/json", charset="utf-8", headers=etag
    )


def _problem(status: HTTPStatus, detail: str) -> web.Response:
    text = json.dumps({"title": status.phrase, "detail": detail, "status": status.value})
    return web.Response(status=status, text=text, content_type="application/problem+json")


async def serve(port: int, secret: bytes, paths: Sequence[Path]) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with StandIn(port=port, secret=secret) as stand_in:
        followed = Followed(stand_in, paths)
        followed.look()
        following = asyncio.create_task(followed.follow())
        print(stand_in.connection_string, flush=True)
        await stopping.wait()
        following.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=f"A stand-in for App Configuration on {HOST}.")
    parser.add_argument("--port", type=int, default=0, help="0: one that is free; it is printed")
    parser.add_argument(
        "paths", nargs="*", type=Path, help="protocol files and folders that it holds"
    )
    parser.add_argument(
        "--secret-file", type=Path, help="what it signs with; else it makes a secret"
    )
    given = parser.parse_args()
    secret = given.secret_file.read_bytes() if given.secret_file else b""
    asyncio.run(serve(given.port, secret, given.paths or [PACKAGED]))


if __name__ == "__main__":
    main()
