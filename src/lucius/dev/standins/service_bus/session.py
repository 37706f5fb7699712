"""One session of a connection: its links, what they may reach, and how deliveries are settled."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from lucius.dev.standins.service_bus.broker import (
    LISTEN,
    SEND,
    UNAUTHORIZED,
    Broker,
    Grant,
    TopicState,
    path_of,
)
from lucius.dev.standins.service_bus.codec import (
    ACCEPTED,
    MODIFIED,
    REJECTED,
    RELEASED,
    Attach,
    Begin,
    Described,
    Detach,
    Disposition,
    Flow,
    Symbol,
    Transfer,
    UInt,
    ULong,
    UShort,
    error,
    outcome,
)
from lucius.dev.standins.service_bus.links import (
    LOCK_LOST,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    SESSION_LOST,
    SETTLED_BY_SENDER,
    WINDOW,
    Inlet,
    OutgoingLink,
    QueueOutlet,
    answer_of,
    token_answer,
)
from lucius.dev.standins.service_bus.messages import (
    MAX_MESSAGE,
    TOO_LARGE,
    parse,
    refusal,
    unpacked,
    value_of,
)
from lucius.dev.standins.service_bus.queue import DESCRIPTION, REASON, Queue, Waiting

# What a receiver says about sessions when it attaches, and how it is told which one it has.

SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
LOCKED_UNTIL: Final = Symbol("com.microsoft:locked-until-utc")
TIMEOUT: Final = Symbol("com.microsoft:timeout")
NOT_ALLOWED: Final = "amqp:not-allowed"
CANNOT_BE_LOCKED: Final = "com.microsoft:session-cannot-be-locked"
TIMED_OUT: Final = "com.microsoft:timeout"
PATIENCE: Final = 60.0
"""Seconds that a receiver waits for a session, unless it says otherwise."""
TICKS_IN_1970: Final = 621_355_968_000_000_000
"""Ticks of 100 ns since the year 1."""


class RefusedLinkError(Exception):
    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


class Wish(NamedTuple):
    """A receiver that wants a session: this one, or the next where `name` is None."""

    name: str | None
    patience: float


def wish_of(queue: Queue, said: Attach) -> Wish | None:
    """None: it wants no session. Refused where that does not fit the subscription."""
    filters = (said.source.value[7] if len(said.source.value) > 7 else None) or {}
    asks = SESSION_FILTER in filters
    if asks != queue.options.sessions:
        does = "requires" if queue.options.sessions else "does not require"
        raise RefusedLinkError(NOT_ALLOWED, f"The subscription {does} sessions.")
    if not asks:
        return None
    wanted = filters[SESSION_FILTER]
    wanted = wanted.value if isinstance(wanted, Described) else wanted
    patience = (said.properties or {}).get(TIMEOUT)
    return Wish(wanted, PATIENCE if patience is None else patience / 1000)


def granted(said: Attach, name: str, until: float) -> dict[str, Any]:
    """The parts of the answer that name the session and the end of its lock."""
    fields = list(said.source.value)
    fields[7] = {SESSION_FILTER: name}
    ticks = int(until * 10**7) + TICKS_IN_1970
    source = Described(said.source.descriptor, fields)
    return {"source": source, "properties": {LOCKED_UNTIL: ticks}}


# How a delivery is settled: what the client asks for, and what it is answered.

LOST: Final = "The lock supplied is invalid: it expired, or the message was settled."


def applied(queue: Queue, token: UUID, state: Described) -> Described:
    """The outcome that the client asked for, as it is answered: its own, or that the lock is lost."""
    code, fields = int(state.descriptor), state.value
    if code == ACCEPTED:
        done = queue.complete(token)
    elif code == RELEASED:
        done = queue.abandon(token, failed=False)
    elif code == MODIFIED:
        _, away, changes = (*fields, None, None, None)[:3]
        done = queue.defer(token, changes) if away else queue.abandon(token, changes=changes)
    elif code == REJECTED:
        done = queue.dead_letter(token, *_reasons(fields))
        state = outcome(REJECTED)
    else:
        return outcome(REJECTED, [error(NOT_IMPLEMENTED, f"outcome 0x{code:02x}")])
    condition = SESSION_LOST if queue.options.sessions else LOCK_LOST
    return state if done else outcome(REJECTED, [error(condition, LOST)])


def _reasons(fields: list[Any]) -> tuple[str, str, dict[str, Any]]:
    """Why a message is rejected, and further properties of it: in the information of the error."""
    said = fields[0].value if fields and isinstance(fields[0], Described) else []
    info = {str(k): v for k, v in ((said[2] if len(said) > 2 else None) or {}).items()}
    return str(info.pop(REASON, None) or ""), str(info.pop(DESCRIPTION, None) or ""), info


CBS: Final = "$cbs"
MANAGEMENT: Final = "/$management"


class Speaker(Protocol):
    """What a session needs of its connection."""

    broker: Broker
    max_frame_size: int
    answers: dict[str, OutgoingLink]
    grants: dict[str, Grant]

    def say(self, channel: int, said: Any, payload: bytes = b"") -> None: ...


class Session:
    def __init__(self, connection: Speaker, channel: int, said: Begin) -> None:
        self._connection = connection
        self._channel = channel
        self._deliveries = 0
        self._inlets: dict[int, Inlet] = {}
        self._outlets: dict[int, OutgoingLink] = {}
        self._queues: dict[int, Queue] = {}
        """What the outlets take from, by handle."""
        self._waiting: dict[int, tuple[Queue, Waiting]] = {}
        """Receivers that wait for a session, by handle."""
        self._unsettled: dict[int, tuple[Queue, UUID]] = {}
        self.say(Begin(UShort(channel), UInt(0), UInt(WINDOW), UInt(WINDOW), UInt(0xFFFFFFFF)))

    @property
    def largest_payload(self) -> int:
        return self._connection.max_frame_size - 512

    def say(self, said: Any, payload: bytes = b"") -> None:
        self._connection.say(self._channel, said, payload)

    def next_delivery(self) -> int:
        self._deliveries += 1
        return self._deliveries

    def remember(self, delivery_id: int, queue: Queue, token: UUID) -> None:
        self._unsettled[delivery_id] = (queue, token)

    def end(self) -> None:
        for handle in [*self._outlets, *self._waiting]:
            self._drop(handle)

    def _drop(self, handle: int) -> None:
        if (waiting := self._waiting.pop(handle, None)) is not None:
            waiting[0].sessions.leave(waiting[1])
        outlet, queue = self._outlets.pop(handle, None), self._queues.pop(handle, None)
        if isinstance(outlet, QueueOutlet) and queue is not None:
            if outlet in queue.outlets:
                queue.outlets.remove(outlet)
            queue.sessions.release(outlet)

    def detach(self, handle: int, problem: Any) -> None:
        """End a link of the client's. It confirms that, and is not answered again."""
        self._drop(handle)
        self.say(Detach(handle, True, problem))

    def take(self, said: Any, payload: bytes) -> None:
        match said:
            case Attach():
                self._attach(said)
            case Flow():
                self._flow(said)
            case Transfer():
                self._transfer(said, payload)
            case Disposition(is_receiver=True):
                self._settle(said)
            case Detach():
                self._detach(said)

    def _detach(self, said: Detach) -> None:
        """A link that is not known was refused: the client only confirms it."""
        known = said.handle in self._inlets or said.handle in self._outlets
        self._inlets.pop(said.handle, None)
        self._drop(said.handle)
        if known:
            self.say(Detach(said.handle, True))

    # -- links -------------------------------------------------------------------------------

    def _attach(self, said: Attach) -> None:
        """The client's receiver is our outlet, its sender our inlet."""
        try:
            if said.is_receiver:
                self._attach_outlet(said)
            else:
                self._attach_inlet(said)
        except RefusedLinkError as refused:
            self._refuse(said, refused.condition, refused.description)

    def _refuse(self, said: Attach, condition: str, description: str) -> None:
        own = said._replace(is_receiver=not said.is_receiver, initial_delivery_count=UInt(0))
        empty = {"source": None} if said.is_receiver else {"target": None}
        self.say(own._replace(**empty, properties=None))
        self.say(Detach(said.handle, True, error(condition, description)))

    def _accept(self, said: Attach, **others: Any) -> None:
        self.say(
            said._replace(
                is_receiver=not said.is_receiver,
                initial_delivery_count=UInt(0) if said.is_receiver else None,
                max_message_size=ULong(MAX_MESSAGE),
                desired=None,
                **others,
            )
        )

    def _attach_inlet(self, said: Attach) -> None:
        address = _address(said.target)
        inlet = Inlet(self, said.handle, self._taker(address))
        self._inlets[said.handle] = inlet
        self._accept(said)
        inlet.open()

    def _taker(self, address: str) -> Callable[[bytes, int], Any]:
        broker, answers = self._connection.broker, self._connection.answers
        if address == CBS:
            return lambda raw, _: answers[address].reply(self._admitted(raw))
        if address.lower().endswith(MANAGEMENT):
            entity = self._managed(address)
            queue = broker.queue(entity)
            return lambda raw, _: answers[address].reply(
                answer_of(queue, raw, broker.rules(entity))
            )
        self._require(SEND, address)
        topic = broker.topic(address)
        if topic is None:
            raise RefusedLinkError(NOT_FOUND, _missing(address))
        return lambda raw, form: _publish(topic, raw, form)

    def _admitted(self, raw: bytes) -> bytes:
        """The token must cover the entity that it is shown for."""
        grant = self._connection.broker.access.granted(str(value_of(raw)))
        good = grant is not None and grant.covers(path_of(str(parse(raw).application.get("name"))))
        if grant is not None and good:
            self._connection.grants[grant.path] = grant
        return token_answer(raw, good=good)

    def _managed(self, address: str) -> str:
        """The entity of a `$management` node, whose messages can be read and settled there too."""
        entity = address[: -len(MANAGEMENT)]
        self._require(SEND if self._connection.broker.topic(entity) else LISTEN, entity)
        return entity

    def _require(self, right: str, address: str) -> None:
        holds = self._connection.broker.access.holds
        known = [each for each in self._connection.grants.values() if each.covers(address)]
        if not any(right in grant.rights and holds(grant) for grant in known):
            said = (
                f"Unauthorized access. '{right}' claim(s) are required to perform this operation."
            )
            raise RefusedLinkError(UNAUTHORIZED, f"{said} Resource: '{address}'.")

    def _attach_outlet(self, said: Attach) -> None:
        address = _address(said.source)
        if managed := address.lower().endswith(MANAGEMENT):
            self._managed(address)
        if address == CBS or managed:
            self._outlets[said.handle] = node = OutgoingLink(self, said.handle)
            self._connection.answers[address] = node
            self._accept(said)
            return
        self._require(LISTEN, address)
        queue = self._connection.broker.queue(address)
        if queue is None:
            raise RefusedLinkError(NOT_FOUND, _missing(address))
        wish = wish_of(queue, said)
        if wish is None:
            self._open(said, queue, None)
        elif (free := queue.free_session(wish.name)) is not None:
            self._open(said, queue, free)
        elif wish.name is not None:
            raise RefusedLinkError(CANNOT_BE_LOCKED, f"Another receiver has {wish.name}.")
        else:
            served = partial(self._served, said, queue)
            self._waiting[said.handle] = (queue, queue.sessions.wait(wish.patience, served))

    def _served(self, said: Attach, queue: Queue, name: str | None) -> None:
        """The wait for a session is over."""
        del self._waiting[said.handle]
        if name is None:
            self._refuse(said, TIMED_OUT, "No session has a message.")
        else:
            self._open(said, queue, name)

    def _open(self, said: Attach, queue: Queue, session_id: str | None) -> None:
        settled = said.snd_settle_mode == SETTLED_BY_SENDER
        outlet = QueueOutlet(self, said.handle, settled=settled, session_id=session_id)
        self._outlets[said.handle] = outlet
        self._queues[said.handle] = queue
        others: dict[str, Any] = {}
        if session_id is not None:
            queue.sessions.lock(session_id, outlet)
            others = granted(said, session_id, queue.sessions.until(session_id))
        self._accept(said, **others)
        queue.outlets.append(outlet)

    def _flow(self, said: Flow) -> None:
        outlet = self._outlets.get(said.handle) if said.handle is not None else None
        if outlet is None:
            return
        outlet.flow(said)
        if (queue := self._queues.get(said.handle)) is not None:
            queue.pump()
        if said.drain:
            outlet.drained()

    # -- messages ----------------------------------------------------------------------------

    def _transfer(self, said: Transfer, payload: bytes) -> None:
        inlet = self._inlets.get(said.handle)
        if inlet is None:
            return
        taken = inlet.transfer(said, payload)
        if taken is not None and not said.settled:
            delivery_id, refused = taken
            state = outcome(ACCEPTED) if refused is None else outcome(REJECTED, [refused])
            self.say(Disposition(True, UInt(delivery_id), UInt(delivery_id), True, state))

    def _settle(self, said: Disposition) -> None:
        last = said.first if said.last is None else said.last
        for delivery_id in range(said.first, last + 1):
            found = self._unsettled.get(delivery_id)
            if found is None or said.state is None:
                continue
            del self._unsettled[delivery_id]
            state = applied(*found, said.state)
            if not said.settled:
                self.say(Disposition(False, UInt(delivery_id), UInt(delivery_id), True, state))


def _publish(topic: TopicState, raw: bytes, message_format: int) -> Described | None:
    """None: taken. Else why not."""
    if len(raw) > MAX_MESSAGE:
        return error(TOO_LARGE, "The message is too large.")
    messages = unpacked(raw, message_format)
    for message in messages:
        if (problem := refusal(message)) is not None:
            return error(*problem)
    topic.publish(messages)
    return None


def _missing(address: str) -> str:
    return f"The messaging entity '{address}' could not be found."


def _address(terminus: Described | None) -> str:
    """The path of `amqp://host/path`, or the name itself."""
    text = str(terminus.value[0]) if terminus is not None and terminus.value else ""
    if "://" in text:
        text = text.split("://", 1)[1].partition("/")[2]
    return text.strip("/")
