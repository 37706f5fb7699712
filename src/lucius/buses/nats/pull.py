"""One receive of a whole subscription. It takes no more than was asked for, and leaves no request behind."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as Inbox

from lucius.buses.nats.session import ANSWER, Session
from lucius.buses.nats.status import ENDS, GOES_ON, NothingDeliveredError, Status, status_of
from lucius.core.errors import BusUnavailableError


class Pull:
    """Asks for messages that are there. If none are, waits for one, and asks for those that came with it.

    It never waits with a request for many: one that outlived the receive would lock messages for nobody.
    """

    def __init__(self, session: Session, subject: str) -> None:
        self._session = session
        self._subject = subject
        self._arrived: list[Msg] = []
        self._left = 0
        self._end: Status | None = None
        self._moved = asyncio.Event()
        self._address = session.client.new_inbox()
        self._inbox: Inbox | None = None

    async def take(self, limit: int, wait: timedelta) -> Sequence[Msg]:
        self._inbox = await self._session.listen(self._address, self._heard)
        await self._ask(limit, {"no_wait": True}, ANSWER)
        if not self._arrived and wait > timedelta():
            seconds = wait.total_seconds()
            await self._ask(1, {"expires": int(seconds * 1e9)}, seconds + ANSWER)
            if self._arrived and limit > 1:
                await self._ask(limit - 1, {"no_wait": True}, ANSWER)
        await self._session.asked(self._inbox.unsubscribe())
        return self._arrived

    async def _ask(self, batch: int, how: dict[str, Any], patience: float) -> None:
        """Ask once, and return when the broker has sent all or says that there are no more."""
        self._left, self._end = batch, None
        ask = json.dumps({"batch": batch, **how}).encode()
        asking = self._session.client.publish(self._subject, ask, reply=self._address)
        await self._session.asked(asking)
        try:
            await self._session.asked(asyncio.wait_for(self._answered(), patience))
        except BusUnavailableError:
            if not self._arrived:
                raise
        if self._end is not None and self._end.code not in ENDS and not self._arrived:
            raise NothingDeliveredError(self._end)

    async def _answered(self) -> None:
        while self._left > 0 and self._end is None:
            self._moved.clear()
            await self._moved.wait()

    def _heard(self, message: Msg) -> None:
        if message.reply:
            self._arrived.append(message)
            self._left -= 1
        elif (status := status_of(message)).code != GOES_ON:
            self._end = status
        self._moved.set()

    async def give_up(self) -> Sequence[Msg]:
        """End the request. The caller gives back the messages that had come by then."""
        if self._inbox is not None and not self._session.is_lost:
            with suppress(BusUnavailableError):  # it may have been taken back already
                await self._session.asked(self._inbox.drain())  # type: ignore[no-untyped-call]
        return self._arrived
