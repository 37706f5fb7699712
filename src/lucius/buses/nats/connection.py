"""The connection of a bus: opened when it is needed, and again when it was lost.

Each new connection creates the streams and this process's subscriptions where they are missing,
because the broker may have lost its storage, and reads the subscriptions of all others.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from nats.js import api
from nats.js.errors import NotFoundError

from lucius.buses.nats.names import Names, consumer_name
from lucius.buses.nats.routes import Routes, Row, check_alike
from lucius.buses.nats.session import Session
from lucius.core.errors import BusUnavailableError, OtherDeploymentError
from lucius.ports.bus import Subscription, others_mark

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
