"""A bus that loses, refuses and forgets what a test tells it to, and remembers all that it took."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from lucius.adapters.buses.memory import MemoryBus
from lucius.core.errors import BusUnavailableError, PublishRefusedError
from lucius.ports.bus import Delivery, Message

Choose = Callable[[Message], bool]


def nothing(message: Message) -> bool:
    return False


def kinds(*wanted: str) -> Choose:
    """Messages of these types: DIRECTIVE, ACK, HEARTBEAT, RESULT, RELEASE."""
    return lambda message: message.properties["type"] in wanted


class Network(MemoryBus):
    """Durable unless told otherwise: it outlives the processes that use it."""

    def __init__(self, *, volatile: bool = False) -> None:
        super().__init__()
        self._volatile = volatile
        self.lose: Choose = nothing
        self.refuse: Choose = nothing
        self.unsure: Choose = nothing
        """Taken, though the publisher is told that nobody knows."""
        self.taken: list[tuple[str, Message]] = []
        self.deliveries: Counter[str] = Counter()
        """How often each message was handed to a receiver, by its id."""

    @property
    def volatile(self) -> bool:
        return self._volatile

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        if any(self.refuse(message) for message in messages):
            raise PublishRefusedError("this message will never be taken")
        await super().publish(topic, [m for m in messages if not self.lose(m)])
        self.taken += [(topic, message) for message in messages]
        if any(self.unsure(message) for message in messages):
            raise BusUnavailableError("the answer was lost")

    async def receive(
        self,
        name: str,
        topics: Sequence[str],
        limit: int,
        wait: timedelta,
        tenants: Collection[str] | None = None,
    ) -> Sequence[Delivery]:
        received = await super().receive(name, topics, limit, wait, tenants)
        self.deliveries.update(delivery.message.message_id for delivery in received)
        return received

    def directives(self, job_id: str) -> list[Message]:
        """Every directive of a job that was ever published, repetitions included."""
        mine = (m for _, m in self.taken if m.properties.get("jobId") == job_id)
        return [message for message in mine if kinds("DIRECTIVE")(message)]

    def topics(self, job_id: str) -> list[str]:
        wanted = self.directives(job_id)
        return [topic for topic, message in self.taken if message in wanted]
