"""The reconciler: everything that happens by itself on the owned lanes, put together."""

import asyncio

from lucius.engines.outbox.dispatcher import Dispatcher
from lucius.engines.outbox.notices import Notices
from lucius.engines.outbox.nudges import Nudges
from lucius.engines.outbox.ownership import Ownership
from lucius.engines.outbox.releases import Releases
from lucius.engines.outbox.replies import ReplyConsumer
from lucius.engines.outbox.ticks import Ticks
from lucius.engines.outbox.unclaimed import UnclaimedReporter


class Reconciler:
    """`prepare` it, then `run` it until it is cancelled."""

    def __init__(
        self,
        ownership: Ownership,
        dispatcher: Dispatcher,
        releases: Releases,
        ticks: Ticks,
        replies: ReplyConsumer,
        unclaimed: UnclaimedReporter,
        nudges: Nudges,
        notices: Notices,
    ) -> None:
        self._ownership = ownership
        self._unclaimed = unclaimed
        self._replies = replies
        told = (nudges, notices)
        self._parts = (dispatcher, releases, ticks, replies, unclaimed, *told, ownership)

    async def prepare(self) -> None:
        """Make the topology, take up what is out, and fill the ready queues."""
        await self._replies.prepare()
        await self._unclaimed.prepare()
        await self._ownership.prepare()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for part in self._parts:
                tasks.create_task(part.run())
