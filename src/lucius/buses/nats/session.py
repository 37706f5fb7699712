"""One connection to NATS. It is never repaired: once it is lost, another session takes its place."""

import asyncio
import json
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
