"""Heartbeats while the event loop is held up: a thread sends them, over a connection of its own.

An `async def execute()` that computes without awaiting holds up everything else on its loop, heartbeats
included. Its lease, and those of its neighbours, are kept all the same.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from lucius.platform.execution import Attempt
from lucius.platform.replies import Replies
from lucius.platform.runner import ServiceRunner

log = logging.getLogger(__name__)
PATIENCE_SECONDS: Final = 10.0
"""For opening the connection and sending what is due. What fails is tried again at the next look."""

OpenReplies = Callable[[], AbstractAsyncContextManager[Replies]]
"""Opens a way for replies that the loop which is held up has no part in."""


class StandbyHeartbeats:
    def __init__(self, runners: Sequence[ServiceRunner], open_replies: OpenReplies) -> None:
        self._runners = runners
        self._open_replies = open_replies

    def send_due(self) -> None:
        """Send the heartbeats that are overdue, from a thread that is not the loop's."""
        now = time.monotonic()
        due = [each for runner in self._runners for each in runner.attempts() if each.overdue(now)]
        if not due:
            return
        try:
            asyncio.run(self._send(due))
        except Exception as error:
            log.warning("no heartbeats could be sent beside the event loop: %r", error)

    async def _send(self, due: Sequence[Attempt]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), self._open_replies() as replies:
            await asyncio.gather(*(attempt.beat_over(replies) for attempt in due))
