"""One connection to NATS. It is never repaired: once it is lost, another session takes its place."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as Inbox
from nats.js import JetStreamContext

from lucius.core.errors import BusUnavailableError, PublishRefusedError
from lucius.core.record import record
from lucius.ports.bus import Message

# The names of streams, subjects and consumers, and how a message is encoded.
#
# A name becomes one token of a subject: a character that NATS forbids is written as `=` and its hex digits.

_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPED: Final = re.compile(r"((?:=[0-9A-F]{2})+)")


def token(name: str) -> str:
    return _FORBIDDEN.sub(lambda found: "".join(f"={b:02X}" for b in found[0].encode()), name)


def untoken(escaped: str) -> str:
    def plain(found: re.Match[str]) -> str:
        return bytes.fromhex(found[0].replace("=", "")).decode()

    return _ESCAPED.sub(plain, escaped)


@record
class Names:
    """Names that begin with the name of the installation, so that several can share a broker."""

    system: str

    @property
    def stream(self) -> str:
        return f"{self.system}-bus"

    @property
    def dead_stream(self) -> str:
        return f"{self.system}-dead-letters"

    @property
    def bucket(self) -> str:
        return f"{self.system}-subscriptions"

    def subject(self, topic: str, name: str) -> str:
        return f"{self.system}.bus.{token(topic)}.{token(name)}"

    def all_subjects(self, name: str | None = None) -> str:
        return f"{self.system}.bus.*.{'*' if name is None else token(name)}"

    def dead_subject(self, topic: str, name: str) -> str:
        return f"{self.system}.dead.{token(topic)}.{token(name)}"

    def all_dead_subjects(self) -> str:
        return f"{self.system}.dead.*.*"

    def notice_subject(self, address: str) -> str:
        """The subject of what is told to an address. No stream keeps it."""
        return f"{self.system}.told.{token(address)}"

    def next_message(self, consumer: str) -> str:
        """The subject on which a consumer is asked for messages."""
        return f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{consumer}"


def topic_of(subject: str) -> str:
    return untoken(subject.split(".")[-2])


def stored_at(lock_token: str) -> str:
    """When the broker stored the message. Every delivery of a message has the same time."""
    parts = lock_token.split(".")
    return parts[7] if len(parts) == 9 else parts[9]


def consumer_name(name: str, topic: str | None = None) -> str:
    """The name of the consumer for a whole subscription, or for one of its topics."""
    return token(name) if topic is None else f"{token(name)}@{token(topic)}"


def encoded(message: Message, **more: str) -> bytes:
    parts = {"message_id": message.message_id, "properties": message.properties, **more}
    try:
        text = json.dumps({**parts, "body": message.body}, default=dict, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise PublishRefusedError(f"message {message.message_id} is not JSON: {error}") from error
    return text.encode()


def decoded(data: bytes) -> tuple[Message, Mapping[str, Any]]:
    """The message, and the whole document it stands in. Raises ValueError if LUCIUS did not write it."""
    try:
        read = json.loads(data)
        message_id, body, properties = read["message_id"], read["body"], read["properties"]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it has no {error}") from error
    if not (
        isinstance(message_id, str) and isinstance(body, dict) and isinstance(properties, dict)
    ):
        raise ValueError("message_id, body or properties is of another type")
    return Message(message_id, body, properties), read


# Status answers, which the broker sends instead of a message.

GOES_ON: Final = "100"
ENDS: Final = ("404", "408")
"""There are no messages, or none came in time."""


@record
class Status:
    code: str
    text: str

    @property
    def consumer_gone(self) -> bool:
        """Someone deleted it, or the broker came back without its storage."""
        return self.code == "503" or "Consumer Deleted" in self.text


def status_of(message: Msg) -> Status:
    headers = message.headers or {}
    return Status(headers.get("Status", ""), headers.get("Description", ""))


class NothingDeliveredError(BusUnavailableError):
    def __init__(self, status: Status) -> None:
        why = status.text or "the subscription is not on the broker"
        super().__init__(f"NATS delivers nothing: {status.code} {why}")
        self.status = status


T = TypeVar("T")

ANSWER: Final = 5.0
"""Seconds that a request may stay unanswered; then the broker counts as gone."""
OPENING: Final = 5.0
"""Seconds within which a connection is opened: the library may wait for ever where TLS fails."""
CLOSING: Final = 1.0
PING: Final = 5
"""Seconds between two pings on a quiet connection. Two unanswered pings end it."""
NOBODY: Final = "Start a server with JetStream (nats-server -js), or let LUCIUS_NATS_URL name one"
REFUSED: Final = (
    "It asks who this is: set LUCIUS_NATS_CREDENTIALS (a credentials file or a certificate) or"
    " LUCIUS_NATS_PASSWORD (of the user in LUCIUS_NATS_URL, or a token)"
)
RIGHTS: Final = (
    "The user of this process needs the rights that docs/how-to/nats.md lists under Who may connect"
)
CONTENT_REFUSED: Final = (10054, 10097)
"""JetStream's codes for a message or its header that is larger than the stream takes."""
CONNECT: Final[Mapping[str, Any]] = {
    "allow_reconnect": False,
    "max_reconnect_attempts": 1,
    "reconnect_time_wait": 0.05,
    "connect_timeout": 2,
    "ping_interval": PING,
    "max_outstanding_pings": 2,
    "name": "lucius",
}


class Session:
    """`faults`: what the server has said against this connection so far."""

    def __init__(
        self, client: Client, lost: "asyncio.Future[None]", faults: Sequence[str] = ()
    ) -> None:
        self.client = client
        self.lost = lost
        self._faults = faults
        self.js: JetStreamContext = client.jetstream(timeout=ANSWER)

    @classmethod
    async def open(cls, servers: Sequence[str], **options: Any) -> "Session":
        """Raises BusUnavailableError, with the reason, if no server takes the connection."""
        client, lost = Client(), asyncio.get_running_loop().create_future()
        reasons: list[str] = []

        async def failed(error: Exception) -> None:
            reasons.append(str(error) or type(error).__name__)

        async def closed() -> None:
            if not lost.done():
                lost.set_result(None)

        try:
            async with asyncio.timeout(OPENING):
                await client.connect(
                    list(servers), error_cb=failed, closed_cb=closed, **{**CONNECT, **options}
                )
        except (nats.errors.Error, OSError, ValueError, BusUnavailableError) as error:
            why = reasons[-1] if reasons else str(error) or type(error).__name__
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await client.close()
            where = ", ".join(each.rpartition("@")[2] for each in servers)
            advice = REFUSED if "authorization" in why.lower() else NOBODY
            raise BusUnavailableError(
                f"no connection to NATS at {where}: {why}. {advice}"
            ) from error
        return cls(client, lost, reasons)

    @property
    def is_lost(self) -> bool:
        return self.lost.done() or not self.client.is_connected

    async def asked(self, work: Awaitable[T], *, but: type[Exception] | None = None) -> T:
        """The result of the work. Raises BusUnavailableError if it fails or the connection is lost.

        `but` is an error of the library that is raised as it is, because the caller handles it.
        """
        doing = asyncio.ensure_future(work)
        doing.add_done_callback(_seen)
        try:
            await asyncio.wait((doing, self.lost), return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise BusUnavailableError("the connection to NATS is lost")
            if but is not None and isinstance(failure := doing.exception(), but):
                raise failure
            with foreign_errors(self._forbidden()):
                return doing.result()
        finally:
            doing.cancel()

    def _forbidden(self) -> str:
        """What this user may not do, as the server said once: it does not answer such requests."""
        return next((said for said in reversed(self._faults) if "permissions" in said.lower()), "")

    async def request(
        self, subject: str, payload: bytes, headers: dict[str, Any] | None = None
    ) -> bytes:
        work = self.client.request(subject, payload, timeout=ANSWER, headers=headers)
        return (await self.asked(work)).data

    async def store(self, sends: Sequence[tuple[str, bytes, str]]) -> None:
        """Publish (subject, payload, id) in order, and return when the broker has stored them all."""
        works = [
            self.client.request(subject, payload, ANSWER, headers={"Nats-Msg-Id": message_id})
            for subject, payload, message_id in sends
        ]
        for answer in await self.asked(asyncio.gather(*works)):
            if (error := json.loads(answer.data).get("error")) is not None:
                refused = error.get("err_code") in CONTENT_REFUSED
                raise (PublishRefusedError if refused else BusUnavailableError)(
                    f"NATS did not store a message: {error}"
                )

    async def listen(self, subject: str, heard: Callable[[Msg], None]) -> Inbox:
        async def pass_on(message: Msg) -> None:
            heard(message)

        return await self.asked(self.client.subscribe(subject, cb=pass_on))

    async def close(self) -> None:
        await self.client.close()


def _seen(done: "asyncio.Future[Any]") -> None:
    """Fetch the exception of abandoned work, so that asyncio does not log it."""
    if not done.cancelled():
        done.exception()


@contextmanager
def foreign_errors(forbidden: str = "") -> Iterator[None]:
    """Turn errors of the library into those of the port. Whether the request had an effect is unknown."""
    try:
        yield
    except nats.errors.MaxPayloadError as error:
        raise PublishRefusedError(f"NATS: {error}") from error
    except (nats.errors.Error, OSError, TimeoutError) as error:
        if forbidden:
            raise BusUnavailableError(f"NATS: {forbidden}. {RIGHTS}") from error
        if isinstance(error, nats.js.errors.ServiceUnavailableError):
            raise BusUnavailableError("NATS runs without JetStream: nats-server -js") from error
        raise BusUnavailableError(f"NATS: {str(error) or type(error).__name__}") from error
