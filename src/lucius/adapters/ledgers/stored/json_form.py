"""The primitives of the stored form: JSON bytes, and instants as whole microseconds since 1970."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson

from lucius.core.errors import LedgerCorruptError
from lucius.core.record import Packed

Doc = dict[str, Any]
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
MEMO_SIZE: Final = 50_000


class _Micros(dict[datetime, int]):
    """Instants repeat from save to save: each is converted once. Emptied when it has grown large."""

    def __missing__(self, moment: datetime) -> int:
        if len(self) >= MEMO_SIZE:
            self.clear()
        value = self[moment] = (moment - EPOCH) // MICROSECOND
        return value


_memo: Final = _Micros()
micros: Final[Callable[[datetime], int]] = _memo.__getitem__


class _Instants(dict[int, datetime]):
    """The same the other way."""

    def __missing__(self, value: int) -> datetime:
        if len(self) >= MEMO_SIZE:
            self.clear()
        moment = self[value] = EPOCH + timedelta(microseconds=value)
        return moment


_instants: Final = _Instants()
instant: Final[Callable[[int], datetime]] = _instants.__getitem__


def dumps(value: Any) -> bytes:
    """JSON; a leading space marks what only the standard library can carry (huge integers)."""
    try:
        return orjson.dumps(value, default=_embedded)
    except orjson.JSONEncodeError:
        return b" " + json.dumps(value, separators=(",", ":"), default=_opened).encode()


def pack(value: Mapping[str, Any]) -> Packed:
    return Packed(dumps(value))


def _embedded(value: Any) -> orjson.Fragment:
    """What is packed goes in as it is, unless only the standard library can carry it."""
    if isinstance(value, Packed) and value.text[:1] == b"{":
        return orjson.Fragment(value.text)
    raise TypeError


def _opened(value: Any) -> Any:
    if isinstance(value, Packed):
        return value.opened()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def loads(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw[:1] == b" " else orjson.loads(raw)
    except ValueError as error:
        raise LedgerCorruptError(f"a stored document is not JSON: {error}") from error


def maybe_micros(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def extra_of(doc: Doc, known: frozenset[str]) -> Mapping[str, Any] | None:
    """What a newer version has written beside what is known here."""
    if doc.keys() <= known:
        return None
    return {name: value for name, value in doc.items() if name not in known}
