"""Hears what is told to one address, on a plain subject: the broker keeps nothing of it."""

import asyncio
import logging
from datetime import timedelta

from nats.aio.msg import Msg

from lucius.buses.ears import Ear
from lucius.buses.nats.names import decoded
from lucius.buses.nats.session import Session
from lucius.ports.bus import Message

log = logging.getLogger(__name__)


class SubjectEar:
    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._session: Session | None = None
        self._ear = Ear()

    async def heard(self, session: Session, wait: timedelta) -> list[Message]:
        """A new session is listened to anew; what came over the earlier one is still heard."""
        if session is not self._session:
            await session.listen(self._subject, self._take)
            await session.asked(session.client.flush())  # the broker knows of it from here on
            self._session = session
        try:
            async with asyncio.timeout(wait.total_seconds()):
                await session.asked(self._ear.wait())
        except TimeoutError:
            pass
        return self._ear.heard()

    def _take(self, message: Msg) -> None:
        try:
            self._ear.tell(decoded(message.data)[0])
        except ValueError as error:
            log.warning("a message on %s is not ours: %s", self._subject, error)
