"""Reading request bodies strictly and cheaply: bounded before they are read, one meaning or none."""

import json
import re
from itertools import chain
from typing import Any, Final, NoReturn, TypeVar

import orjson
from starlette.requests import Request

from lucius.http.problems import Problem

T = TypeVar("T")

MAX_DEPTH: Final = 64
BEYOND: Final = 2**80
"""Stands for an integer of more digits than 64 bits have."""
_OWN_SITES: Final = (b"same-origin", b"none")
"""What browsers say of a page of ours, and of a user who typed the address. `same-site` is another port."""
_FORM: Final = b"application/x-www-form-urlencoded"
_EXACT_IN_ORJSON: Final = range(-(2**63), 2**64)


async def json_object(request: Request, limit: int) -> dict[str, Any]:
    """The body as one JSON object, or a problem that says what is wrong with it."""
    return object_in(await read(request, limit))


async def optional_object(request: Request, limit: int) -> dict[str, Any]:
    """As `json_object`, where no body at all means an empty object."""
    content = await read(request, limit)
    return object_in(content) if content.strip() else {}


def object_in(content: bytes) -> dict[str, Any]:
    body = parsed(content)
    if not isinstance(body, dict):
        raise Problem("INVALID_BODY", "the body must be a JSON object")
    return body


async def read(request: Request, limit: int, *, form: bool = False) -> bytes:
    """The raw body. A body that is too large is refused before it is read, or as soon as it shows.

    `form`: it is what a browser sends of a form, not JSON.
    """
    _check_headers(request, limit, form=form)
    size, chunks = 0, []
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            _too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def parsed(body: bytes) -> Any:
    """orjson refuses what is not JSON; a second, slower pass, where needed, finds keys named twice.

    It also finds integers that orjson has turned into floats. They are kept as they are, so that
    whoever stores or hashes the value refuses them by their place.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if "depth limit" in str(error):
            raise Problem("NESTING_TOO_DEEP") from None
        raise Problem("INVALID_JSON", f"the body is not valid JSON: {error}") from None
    few = body.count(b"{") + body.count(b"[") <= MAX_DEPTH
    if _needs_no_second_look(body, _keys(value) if few else _keys_by_level(value)):
        return value
    try:
        _DECODER.decode(body.decode())
    except LongIntegerError:
        return _EXACT.decode(body.decode())
    return value


def _needs_no_second_look(body: bytes, keys: int) -> bool:
    """Each key ends in `":`. If there are no more of those than keys, none is named twice.

    A string may contain `":` too: then they are more, and the second pass decides. Where something
    stands between quote and colon, or a float may have been an integer, it does so in any case.
    """
    return body.count(b'":') == keys and _LOOSE_KEY.search(body) is None


def _keys(value: Any) -> int:
    """How many there are; -1 where a float is as large as integers that orjson turns into floats."""
    keys, left = 0, [value]
    while left:
        item = left.pop()
        if type(item) is dict:
            keys += len(item)
            left.extend(item.values())
        elif type(item) is list:
            left.extend(item)
        elif type(item) is float and abs(item) >= _LARGE:
            return -1
    return keys


def _keys_by_level(value: Any) -> int:
    """The same, for many objects and lists: an item of a level that has one kind costs no look of its own.

    Raises where they are nested too deep; depth costs no recursion.
    """
    keys, level = 0, [value]
    for _ in range(MAX_DEPTH + 1):
        kinds = set(map(type, level))
        if float in kinds and any(type(item) is float and abs(item) >= _LARGE for item in level):
            keys = -BEYOND
        if dict not in kinds and list not in kinds:
            return max(keys, -1)
        objects = _of(dict, level, kinds)
        keys += sum(map(len, objects))
        inner = chain(_of(list, level, kinds), map(dict.values, objects))
        level = list(chain.from_iterable(inner))
    raise Problem("NESTING_TOO_DEEP")


def _of(kind: type[T], level: list[Any], kinds: set[type]) -> list[T]:
    if kind not in kinds:
        return []
    return level if len(kinds) == 1 else [item for item in level if type(item) is kind]


def _check_headers(request: Request, limit: int, *, form: bool) -> None:
    """One pass: this is on the path of every callback."""
    origin = host = site = b""
    for name, value in request.scope["headers"]:
        if name == b"content-length":
            if not value.isdigit() or len(value) > 12 or int(value) > limit:
                _too_large(limit)
        elif name == b"content-type":
            media = value.partition(b";")[0].strip().lower()
            json_body = media == b"application/json" or (
                media.startswith(b"application/") and media.endswith(b"+json")
            )
            if media != _FORM if form else not json_body:
                raise Problem("UNSUPPORTED_MEDIA_TYPE")
        elif name == b"origin":
            origin = value
        elif name == b"host":
            host = value
        elif name == b"sec-fetch-site":
            site = value
    if origin and origin.partition(b"://")[2] != host:
        raise Problem("CROSS_ORIGIN")
    if site and site not in _OWN_SITES:
        raise Problem("CROSS_ORIGIN")


def _too_large(limit: int) -> NoReturn:
    raise Problem(
        "BODY_TOO_LARGE",
        f"the body is larger than {limit} bytes",
        headers={"connection": "close"},
    )


class LongIntegerError(Exception):
    """Raised inside the second pass: orjson has read an integer as the float that is nearest."""


def _short(text: str) -> None:
    if len(text) > 18 and _integer(text) not in _EXACT_IN_ORJSON:
        raise LongIntegerError


def _integer(text: str) -> int:
    """A very long one is slow to convert, and any that is too long to store will do for it."""
    return int(text) if len(text) <= 20 else (-BEYOND if text.startswith("-") else BEYOND)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _unique(pairs)
    return dict(pairs)


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Problem("DUPLICATE_KEY", f"the key {key[:100]!r} is named twice")
            seen.add(key)


_LOOSE_KEY: Final = re.compile(rb'"\s+:')
_LARGE: Final = 2.0**62
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_short, parse_float=len)
"""`parse_float=len`: floats were checked already."""
_EXACT: Final = json.JSONDecoder(object_pairs_hook=_once, parse_int=_integer)
