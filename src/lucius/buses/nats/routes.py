"""The subscriptions of an installation: rows of a key-value bucket, one for each name.

Every process reads them when it connects and is told of each change. From them the publisher knows
which subscriptions get a copy of a message.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from nats.aio.msg import Msg
from nats.js.errors import KeyWrongLastSequenceError, NotFoundError
from nats.js.kv import KeyValue

from lucius.buses.filters import Filters, accepts, compiled
from lucius.buses.nats.names import Names, token, untoken
from lucius.buses.nats.session import Session
from lucius.core.errors import BusError
from lucius.ports.bus import Property, Subscription

Row = Mapping[str, Subscription]
"""The subscriptions of one name, by topic."""


class Routes:
    def __init__(self, session: Session, names: Names) -> None:
        self._session = session
        self._names = names
        self._rows: dict[str, Row] = {}
        self._takers: dict[str, list[tuple[str, Filters]]] = {}
        self._catch_alls: dict[str, list[str]] = {}

    async def open(self) -> None:
        """Listen for changes first, then read, so that no change is missed."""
        bucket = self._names.bucket
        await self._session.listen(f"$KV.{bucket}.>", self._heard)
        kv = await self._bucket()
        stream = f"KV_{bucket}"
        info = await self._session.asked(
            self._session.js.stream_info(stream, subjects_filter=f"$KV.{bucket}.>")
        )
        for subject in info.state.subjects or ():
            key = subject.rpartition(".")[2]
            row, _ = await self._read(kv, key)
            if row:
                self._put(untoken(key), row)

    async def _bucket(self) -> KeyValue:
        return await self._session.asked(
            self._session.js.create_key_value(bucket=self._names.bucket, history=1)
        )

    async def _read(self, kv: KeyValue, key: str) -> tuple[Row, int]:
        """A row and its revision; an empty row if there is none."""
        try:
            entry = await self._session.asked(kv.get(key), but=NotFoundError)
        except NotFoundError as error:
            deleted = getattr(error, "entry", None)
            return {}, (deleted.revision or 0) if deleted is not None else 0
        return parsed(untoken(key), entry.value or b"{}"), entry.revision or 0

    async def define(self, name: str, subscriptions: Sequence[Subscription]) -> None:
        """Add these subscriptions to the row of a name. Try again if another process changed it meanwhile."""
        kv, key = await self._bucket(), token(name)
        while True:
            row, revision = await self._read(kv, key)
            check_alike(name, [*row.values(), *subscriptions])
            wanted = {**row, **{each.topic: each for each in subscriptions}}
            if wanted != row:
                try:
                    saving = kv.update(key, written(wanted), last=revision)
                    await self._session.asked(saving, but=KeyWrongLastSequenceError)
                except KeyWrongLastSequenceError:
                    continue
            self._put(name, wanted)
            return

    def _heard(self, message: Msg) -> None:
        name = untoken(message.subject.rpartition(".")[2])
        if (message.headers or {}).get("KV-Operation"):
            self._rows.pop(name, None)
            self._index()
        else:
            self._put(name, parsed(name, message.data))

    def _put(self, name: str, row: Row) -> None:
        self._rows[name] = row
        self._index()

    def _index(self) -> None:
        self._takers, self._catch_alls = {}, {}
        for name, row in self._rows.items():
            for topic, spec in row.items():
                if spec.catch_all:
                    self._catch_alls.setdefault(topic, []).append(name)
                else:
                    taker = (name, compiled(spec.filters))
                    self._takers.setdefault(topic, []).append(taker)

    @property
    def names(self) -> Iterable[str]:
        return self._rows

    def row(self, name: str) -> Row:
        return self._rows.get(name, {})

    def takers(self, topic: str, properties: Mapping[str, Property]) -> Iterable[str]:
        """The names of the subscriptions that get a copy of the message."""
        found = [n for n, filters in self._takers.get(topic, ()) if accepts(filters, properties)]
        return found or self._catch_alls.get(topic, ())


def check_alike(name: str, subscriptions: Sequence[Subscription]) -> None:
    if len({each.by_topic for each in subscriptions}) > 1:
        raise BusError(
            f"the subscription {name} is received by topic in one place and as a whole in another;"
            " delete it from the bucket of subscriptions if it is left from another version"
        )


def written(row: Row) -> bytes:
    return json.dumps(
        {
            topic: {
                "filters": {name: list(values) for name, values in spec.filters.items()},
                "catch_all": spec.catch_all,
                "lock_seconds": spec.lock.total_seconds(),
                "max_deliveries": spec.max_deliveries,
                "by_topic": spec.by_topic,
            }
            for topic, spec in sorted(row.items())
        }
    ).encode()


def parsed(name: str, data: bytes) -> Row:
    def spec(topic: str, read: Mapping[str, Any]) -> Subscription:
        return Subscription(
            topic,
            name,
            {key: tuple(values) for key, values in read["filters"].items()},
            catch_all=read["catch_all"],
            lock=timedelta(seconds=read["lock_seconds"]),
            max_deliveries=read["max_deliveries"],
            by_topic=read["by_topic"],
        )

    return {topic: spec(topic, read) for topic, read in json.loads(data).items()}
