"""The connection of a bus: opened when it is needed, and again when it was lost.

Each new connection creates the streams and this process's subscriptions where they are missing,
because the broker may have lost its storage, and reads the subscriptions of all others.
"""

import asyncio
import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.aio.msg import Msg
from nats.js import api
from nats.js.errors import KeyWrongLastSequenceError, NotFoundError
from nats.js.kv import KeyValue

from lucius.adapters.buses.nats.session import Names, Session, consumer_name, token, untoken
from lucius.adapters.buses.subscriptions import Filters, accepts, compiled
from lucius.core.errors import BusError, BusUnavailableError, OtherDeploymentError
from lucius.ports.bus import Property, Subscription, others_mark

# The subscriptions of an installation: rows of a key-value bucket, one for each name.
#
# Every process reads them when it connects and is told of each change. From them the publisher knows
# which subscriptions get a copy of a message.

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


# Credentials files of NATS (`.creds`): a token of a user and the seed of the key that proves it.
#
# The file is read for every connection, so that a new one is used without a restart. Nothing of it is kept.

_BLOCK: Final = r"-+BEGIN {0}-+\s+([A-Za-z0-9_\-=.]+)\s+-+END {0}-+"
TOKEN: Final = re.compile(_BLOCK.format("NATS USER JWT"))
SEED: Final = re.compile(_BLOCK.format("USER NKEY SEED"))
PREFIX, KEY, CHECKSUM = 2, 32, 2
"""Bytes of a seed: what kind of key it is, the key, and a checksum."""


def credentials(path: str) -> dict[str, Any]:
    """The options of the NATS client. Raises BusUnavailableError if the file cannot be used now."""

    def token() -> bytes:
        return _block(path, TOKEN, "NATS USER JWT").encode()

    def signed(nonce: str) -> bytes:
        return base64.b64encode(_key(path).sign(nonce.encode()))

    token(), _key(path)
    return {"user_jwt_cb": token, "signature_cb": signed}


def _key(path: str) -> Ed25519PrivateKey:
    text = _block(path, SEED, "USER NKEY SEED")
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        raw = b""
    if len(raw) != PREFIX + KEY + CHECKSUM:
        raise unusable(path, "its seed is not one of a user")
    return Ed25519PrivateKey.from_private_bytes(raw[PREFIX : PREFIX + KEY])


def _block(path: str, wanted: re.Pattern[str], name: str) -> str:
    try:
        found = wanted.search(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise unusable(path, str(error)) from error
    if found is None:
        raise unusable(path, f"it has no block {name}")
    return found[1]


def unusable(path: str, why: str) -> BusUnavailableError:
    return BusUnavailableError(
        f"LUCIUS_NATS_CREDENTIALS names {path}, which cannot be used: {why}. It takes a credentials file"
        " (.creds) of a NATS user, as `nsc generate creds` writes it, or a certificate in PEM form"
    )


KEPT_DEAD_LETTERS: Final = 10_000
"""Dead letters that are kept of each subscription and topic. The oldest are dropped."""
DUPLICATES: Final = 120.0
"""Seconds for which the broker drops a message whose id it has seen."""
REQUESTS: Final = 8192
"""Receivers that may wait on one subscription at the same time."""
RETRY: Final = 0.1
"""Seconds between two tries to connect."""


@dataclass(slots=True)
class Connected:
    session: Session
    routes: Routes
    largest: int
    """The largest message that the broker takes, in bytes."""


class Connection:
    """`patience` is how long an operation waits for a connection before it raises."""

    def __init__(
        self,
        servers: Sequence[str],
        names: Names,
        *,
        patience: timedelta,
        options: dict[str, Any],
    ) -> None:
        self._servers = servers
        self._names = names
        self._patience = patience.total_seconds()
        self._options = options
        self._connected: Connected | None = None
        self._connecting = asyncio.Lock()
        self._ensured: dict[str, dict[str, Subscription]] = {}
        """The subscriptions of this process, by name and topic."""

    @property
    def server(self) -> tuple[str | None, int | None] | None:
        """Host and port of the server of the open connection."""
        url = self._connected.session.client.connected_url if self._connected is not None else None
        return (url.hostname, url.port) if url is not None else None

    async def get(self) -> Connected:
        """The open connection, or a new one. Raises BusUnavailableError if none can be opened."""
        give_up_at = asyncio.get_running_loop().time() + self._patience
        while True:
            try:
                async with self._connecting:
                    if self._connected is None or self._connected.session.is_lost:
                        self._connected = await self._connect()
                    return self._connected
            except OtherDeploymentError:
                raise
            except BusUnavailableError:
                if asyncio.get_running_loop().time() >= give_up_at:
                    raise
                await asyncio.sleep(RETRY)

    async def _connect(self) -> Connected:
        session = await Session.open(self._servers, **self._options)
        try:
            connected = await self._prepared(session)
            for name, row in self._ensured.items():
                await self._define(connected, name, row)
        except BaseException:
            await session.close()
            raise
        return connected

    async def _prepared(self, session: Session) -> Connected:
        names = self._names
        bus = api.StreamConfig(
            name=names.stream,
            subjects=[names.all_subjects()],
            retention=api.RetentionPolicy.WORK_QUEUE,
            duplicate_window=DUPLICATES,
        )
        dead = api.StreamConfig(
            name=names.dead_stream,
            subjects=[names.all_dead_subjects()],
            max_msgs_per_subject=KEPT_DEAD_LETTERS,
            allow_direct=True,
        )
        config = await self._stream(session, bus)
        await self._stream(session, dead)
        routes = Routes(session, names)
        await routes.open()
        limits = (session.client.max_payload, config.max_msg_size or -1)
        return Connected(session, routes, min(limit for limit in limits if limit > 0))

    async def _stream(self, session: Session, wanted: api.StreamConfig) -> api.StreamConfig:
        """Create the stream if it is missing. An existing one stays: an operator may have changed it."""
        assert wanted.name is not None
        try:
            there = session.js.stream_info(wanted.name)
            return (await session.asked(there, but=NotFoundError)).config
        except NotFoundError:
            return (await session.asked(session.js.add_stream(wanted))).config

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        connected = await self.get()
        rows: dict[str, dict[str, Subscription]] = {}
        for spec in subscriptions:
            rows.setdefault(spec.name, {})[spec.topic] = spec
        for name, row in rows.items():
            await self._define(connected, name, row)
            self._ensured.setdefault(name, {}).update(row)

    async def _define(self, connected: Connected, name: str, row: Row) -> None:
        """Create the consumers, then write the row: whoever reads it may publish at once."""
        session, names, specs = connected.session, self._names, list(row.values())
        if (other := others_mark(specs[0], connected.routes.names)) is not None:
            raise OtherDeploymentError(
                f"the stream {names.stream} of this NATS server belongs to another deployment ({other}; this"
                f" one is {name}). Set LUCIUS_SYSTEM to a name of its own. If the other one is gone:"
                f" nats kv del {names.bucket} {other}"
            )
        check_alike(name, [*connected.routes.row(name).values(), *specs])
        if specs[0].by_topic:
            wanted = [
                (consumer_name(name, s.topic), names.subject(s.topic, name), s) for s in specs
            ]
        else:
            wanted = [(consumer_name(name), names.all_subjects(name), specs[0])]
        await session.asked(
            asyncio.gather(
                *(
                    session.js.add_consumer(names.stream, _consumer(called, subject, spec))
                    for called, subject, spec in wanted
                )
            )
        )
        await connected.routes.define(name, specs)

    @property
    def is_up(self) -> bool:
        return self._connected is not None and not self._connected.session.is_lost

    async def close(self) -> None:
        if self._connected is not None:
            await self._connected.session.close()


def _consumer(called: str, subject: str, spec: Subscription) -> api.ConsumerConfig:
    return api.ConsumerConfig(
        durable_name=called,
        filter_subject=subject,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=spec.lock.total_seconds(),
        max_ack_pending=-1,
        max_waiting=REQUESTS,
    )
