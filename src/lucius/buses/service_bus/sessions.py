"""One subscription of one topic whose messages come in sessions: a session is one receiver's at a time.

A session is taken, polled, and given back: when it is empty, when another session waits and it has had
its turn, or when nobody receives. It is closed once its last message is settled, because what is not
settled by then goes back.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from lucius.buses.service_bus.faults import TimedOutError
from lucius.buses.service_bus.intake import POLL, Intake
from lucius.buses.service_bus.source import Settlement
from lucius.core.errors import LockLostError

CHECK: Final = timedelta(milliseconds=100)
"""How long a check waits for a session: that none is there says that the subscription is."""
TURN: Final = 16
"""Messages of one session before another session that waits has its turn."""
BRIEF: Final = timedelta(milliseconds=50)
"""A session that has no message for this long is empty, and another one is looked for."""
IDLE: Final = timedelta(seconds=1)
"""A session that had no message for this long is given back."""
RENEWED: Final = 0.25
"""The part of a lock after which it is renewed before the next message, so that each has most of it."""

Opens = Callable[[timedelta], ServiceBusReceiver]
"""Makes a receiver of the next session. It waits that long for one."""


class Once:
    """Opens a receiver one time: a second one would have another session."""

    def __init__(self, subject: str, opens: Callable[[], ServiceBusReceiver]) -> None:
        self._subject = subject
        self._opens: Callable[[], ServiceBusReceiver] | None = opens

    def __call__(self) -> ServiceBusReceiver:
        opens, self._opens = self._opens, None
        if opens is None:
            raise LockLostError(f"{self._subject}: the session is lost, and the lock with it")
        return opens()


class Session:
    """A session that this process has. `lock` is how long it has it without renewal."""

    def __init__(self, intake: Intake, lock: timedelta) -> None:
        self.intake = intake
        self.taken = 0
        self.unsettled: dict[str, float] = {}
        """When each message that is not settled was taken, by its lock."""
        self._lock = lock.total_seconds()
        self._locked_at = self._heard_at = asyncio.get_running_loop().time()

    async def poll(self) -> ServiceBusReceivedMessage | None:
        """A message with most of the lock before it. Raises LockLostError if an older one lost its lock."""
        now = asyncio.get_running_loop().time()
        if any(taken_at + self._lock <= now for taken_at in self.unsettled.values()):
            raise LockLostError(f"{self.intake.subject}: a message was not settled in time")
        if now - self._locked_at > self._lock * RENEWED:
            await self.intake.alone(lambda receiver: receiver.session.renew_lock())
            self._locked_at = now
        message = await self.intake.poll(IDLE)
        if message is not None:
            self._heard_at = asyncio.get_running_loop().time()
            self.unsettled[str(message.lock_token)] = self._heard_at
            self.taken += 1
        return message

    @property
    def is_idle(self) -> bool:
        silent = asyncio.get_running_loop().time() - self._heard_at
        return silent > IDLE.total_seconds()


class SessionIntake:
    """Implements `Source`. It receives from one session at a time."""

    def __init__(self, topic: str, name: str, opens: Opens, lock: timedelta) -> None:
        self.topic = topic
        self.subject = f"subscription {name} of topic {topic}"
        self._name = name
        self._opens = opens
        self._lock = lock
        self._current: Session | None = None
        self._looking: asyncio.Task[Session | None] | None = None
        """Who takes the next session."""
        self._holders: dict[str, Session] = {}
        """The session of each message that is not settled, by its lock."""
        self._left: set[Session] = set()
        """Sessions that are closed with their last settlement."""

    async def check(self) -> None:
        session = await self._taken(CHECK)
        if session is not None:
            await session.intake.close()

    async def _taken(self, wait: timedelta) -> Session | None:
        """The next session; None if none has a message."""
        once = Once(self.subject, lambda: self._opens(wait))
        intake = Intake(self.topic, self._name, once)
        try:
            await intake.open()
        except TimedOutError:
            return None
        return Session(intake, self._lock)

    # -- receiving ---------------------------------------------------------------------------

    async def poll(self) -> ServiceBusReceivedMessage | None:
        if self._current is None:
            self._current = await self._found(POLL)
        if self._current is None:
            return None
        try:
            if self._current.taken >= TURN:
                await self._pass_the_turn()
            return await self._polled(self._current)
        except LockLostError:
            self._leave_current()
            return None
        except Exception:
            self._leave_current()
            raise

    async def _pass_the_turn(self) -> None:
        """Go on with another session if one waits. A look that is under way finds it by itself."""
        if self._looking is None:
            self._switch(await self._found(CHECK))
        elif self._current is not None:
            self._current.taken = 0

    def _switch(self, another: Session | None) -> None:
        if another is not None:
            self._leave_current()
            self._current = another
        elif self._current is not None:
            self._current.taken = 0

    async def _polled(self, session: Session) -> ServiceBusReceivedMessage | None:
        """A message of this session. Another session that is there while it waits takes its place."""
        polling = asyncio.create_task(session.poll())
        try:
            await asyncio.wait([polling], timeout=BRIEF.total_seconds())
            if not polling.done():
                looking = self._look(POLL)
                await asyncio.wait([polling, looking], return_when=asyncio.FIRST_COMPLETED)
                if looking.done():
                    session.intake.interrupt()
            message = await polling
        finally:
            polling.cancel()
        if message is not None:
            self._holders[str(message.lock_token)] = session
        if self._looking is not None and self._looking.done():
            self._switch(await self._found(POLL))
        elif message is None and session.is_idle:
            self._leave_current()
        return message

    def _look(self, wait: timedelta) -> "asyncio.Task[Session | None]":
        """The look that is under way, or one that waits so long."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._taken(wait))
        return self._looking

    async def _found(self, wait: timedelta) -> Session | None:
        """The session that is looked for; None if there is none, or the look was interrupted."""
        looking = self._look(wait)
        try:
            await asyncio.wait([looking])
        except asyncio.CancelledError:
            looking.cancel()
            raise
        finally:
            self._looking = None
        return None if looking.cancelled() else looking.result()

    def interrupt(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        if self._current is not None:
            self._current.intake.interrupt()

    async def rest(self) -> None:
        """Give the session back, so that another process may have it."""
        self._leave_current()

    # -- settling ----------------------------------------------------------------------------

    async def settle(self, message: ServiceBusReceivedMessage, how: Settlement) -> None:
        async with self._settling(message) as session:
            await session.intake.alone(how)

    async def release(self, message: ServiceBusReceivedMessage) -> None:
        async with self._settling(message) as session:
            await session.intake.release(message)

    @asynccontextmanager
    async def _settling(self, message: ServiceBusReceivedMessage) -> AsyncIterator[Session]:
        """The session of the message, which is closed after the last settlement if it was left."""
        token = str(message.lock_token)  # the SDK forgets it with the settlement
        session = self._holders.pop(token, None)
        if session is None:
            raise LockLostError(f"{self.subject}: the session of {message.message_id} is lost")
        try:
            yield session
        finally:
            session.unsettled.pop(token, None)
            if session in self._left and not session.unsettled:
                self._give_back(session)

    def _leave_current(self) -> None:
        session, self._current = self._current, None
        if session is None:
            return
        self._left.add(session)
        if session.unsettled:
            later = asyncio.get_running_loop().call_later
            later(self._lock.total_seconds(), self._give_back, session)
        else:
            self._give_back(session)

    def _give_back(self, session: Session) -> None:
        """Close it in the background. What is not settled by now has lost its lock."""
        self._left.discard(session)
        for token in session.unsettled:
            self._holders.pop(token, None)
        session.intake.drop()

    async def close(self) -> None:
        self.interrupt()
        sessions = {*self._left, *self._holders.values()}
        if self._current is not None:
            sessions.add(self._current)
        if self._looking is not None:
            await asyncio.wait([self._looking])
            if not self._looking.cancelled() and (found := self._looking.result()) is not None:
                sessions.add(found)
        await asyncio.gather(*(session.intake.close() for session in sessions))
