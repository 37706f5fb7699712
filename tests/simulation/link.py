"""The link between the server and the services' process, as both have it in the simulator.

What one side writes comes late and in order, also when that side has died since. A side that does not read
sees neither that nor the other's end.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from lucius.adapters.buses.linked import LinkedBus
from lucius.adapters.buses.packets import Packets
from lucius.ports.bus import Message
from tests.simulation.faults import Faults, Watching
from tests.simulation.loop import Process, SimLoop, context_of


class WatchedLink(LinkedBus):
    """Says which replies go out."""

    def __init__(
        self,
        watch: Watching,
        heard: Callable[[str, Any], None],
        lost: Callable[[], None],
    ) -> None:
        super().__init__(heard, lost)
        self._watch = watch

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        self._watch.publishes(topic, messages)
        await super().publish(topic, messages)


class Wire:
    """One end of a connection: a transport, as far as `Packets` uses it."""

    other: "Wire"

    def __init__(self, loop: SimLoop, faults: Faults, process: Process, packets: Packets) -> None:
        self._loop = loop
        self._faults = faults
        self._process = process
        self._packets = packets
        self._last = 0.0
        """When what was written last arrives."""
        self._unread: deque[Callable[[], None]] = deque()
        self._reads = True
        self._closed = False

    # -- the transport -----------------------------------------------------------------------

    def set_write_buffer_limits(self, high: int) -> None:
        """The system takes whatever is written."""

    def write(self, data: bytes) -> None:
        self._pass_on(lambda: self.other._packets.data_received(data))

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True
        self._loop.in_process(self._process, self._read)

    def close(self) -> None:
        """The other side sees it when it has read all that was written."""
        if not self._closed:
            self._closed = True
            self._pass_on(self.other._ended)
            self._loop.in_process(self._process, self._packets.connection_lost, None)

    abort = close

    # -- between the two ---------------------------------------------------------------------

    def _pass_on(self, what: Callable[[], None]) -> None:
        delay = self._faults.latency()
        if self._faults.hits("bus.late"):
            delay += 2 * self._faults.random.random()
        self._last = max(self._last, self._loop.time() + delay)
        context = context_of(self.other._process)
        self._loop.call_at(self._last, self.other._arrives, what, context=context)

    def _arrives(self, what: Callable[[], None]) -> None:
        self._unread.append(what)
        self._read()

    def _read(self) -> None:
        while self._unread and self._reads and not self._closed:
            self._unread.popleft()()

    def _ended(self) -> None:
        self._closed = True
        self._packets.connection_lost(None)


def connect(
    loop: SimLoop, faults: Faults, here: tuple[Process, Packets], there: tuple[Process, Packets]
) -> None:
    """The end of a process ends its side of the connection."""
    one, two = Wire(loop, faults, *here), Wire(loop, faults, *there)
    one.other, two.other = two, one
    for wire in (one, two):
        wire._process.on_death.append(wire.close)
        wire._packets.connection_made(cast(asyncio.Transport, wire))
