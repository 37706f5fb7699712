"""The bus port: topics with filtered subscriptions, at-least-once delivery under a lock."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Any, Final, Protocol

from lucius.core.errors import PublishRefusedError
from lucius.core.limits import MESSAGE_ID_CHARACTERS
from lucius.core.record import record

Property = str | int
BoundTenants = frozenset[str] | None
"""The tenants that a worker serves; None: all."""
ABSENT: Final = ""
"""Among the accepted values of a filter: messages without the property. None has it empty."""


@record
class Message:
    """`body` is JSON data and is not changed by anyone; adapters with a wire encode it.

    Its `payload` may be `Packed` on the way in: JSON text already. Whoever receives it gets a mapping.
    """

    message_id: str
    body: Mapping[str, Any]
    properties: Mapping[str, Property] = field(default_factory=dict)


@record
class Subscription:
    """A named, durable view of a topic.

    `filters`: property name to accepted values; all must match, an empty mapping matches all. `ABSENT`
    among the values takes messages that do not have the property.
    `catch_all`: takes exactly the messages that no other subscription of the topic takes.
    `by_topic`: a receiver may name some of its topics; otherwise it names all of them. A broker may
    then lock more for a receiver than it asked for, up to one message a topic.
    """

    topic: str
    name: str
    filters: Mapping[str, tuple[Property, ...]] = field(default_factory=dict)
    catch_all: bool = False
    lock: timedelta = timedelta(seconds=60)
    max_deliveries: int = 10
    by_topic: bool = False
    addressed: bool = False
    """It keeps what is told to addresses, for a few minutes. Only some brokers need a place for that."""


NOTICES: Final = Subscription(
    "global-bus-notices", "workers", lock=timedelta(minutes=5), addressed=True
)
"""What is told to workers, each at its own address."""


def directive_filters(
    step_types: Sequence[str], mode: str | None = None, pool: str | None = None
) -> dict[str, tuple[Property, ...]]:
    """What a service's subscription takes. The common one leaves what is for a pool to that pool."""
    filters: dict[str, tuple[Property, ...]] = {
        "step_type": tuple(step_types),
        "pool": (pool if pool is not None else ABSENT,),
    }
    return filters if mode is None else {**filters, "mode": (mode,)}


MARK: Final = "deployment-"
"""How the name of the subscription begins that says whose topics these are. A topic has one such."""


def deployment_mark(topic: str, deployment: str) -> Subscription:
    """A subscription that takes nothing. Adapters refuse a second one with another name."""
    name = f"{MARK}{deployment}"
    return Subscription(topic, name, {"deployment": (deployment,)}, by_topic=True)


def others_mark(wanted: Subscription, names: Iterable[str]) -> str | None:
    """The mark of another deployment among these names, where `wanted` is a mark."""
    if not wanted.name.startswith(MARK):
        return None
    return next((n for n in names if n.startswith(MARK) and n != wanted.name), None)


@record
class Delivery:
    """One message under one lock. `count` is 1 the first time."""

    message: Message
    topic: str
    subscription: str
    lock_token: str
    count: int


def check_ids(messages: Iterable[Message]) -> None:
    """Refuse a message id that is too long for one of the buses, on every bus."""
    for message in messages:
        if len(message.message_id) > MESSAGE_ID_CHARACTERS:
            raise PublishRefusedError(
                f"the id of message {message.message_id} has {len(message.message_id)} characters:"
                f" at most {MESSAGE_ID_CHARACTERS} are allowed"
            )


@record
class Broker:
    """What spans of messages say of the broker, in the words of OpenTelemetry.

    `prefix`: what the names of topics begin with there.
    """

    system: str
    host: str | None = None
    port: int | None = None
    prefix: str = ""


IN_MEMORY: Final = Broker("memory")


class Bus(Protocol):
    @property
    def broker(self) -> Broker:
        """Where messages go."""

    @property
    def volatile(self) -> bool:
        """Whether messages are lost when this process ends."""

    @property
    def by_tenant(self) -> bool:
        """Whether `receive` can choose by tenant. Where it cannot, it is never given `tenants`."""

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        """Make topics and subscriptions exist; repeating it is harmless."""

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """Return once every message is taken, in order.

        PublishRefusedError: the content of one of them is refused, now and later. If there are several,
        send each alone: some of the others may have been taken. BusUnavailableError: unknown.
        """

    async def receive(
        self,
        name: str,
        topics: Sequence[str],
        limit: int,
        wait: timedelta,
        tenants: Collection[str] | None = None,
    ) -> Sequence[Delivery]:
        """Up to `limit` messages of that subscription name, fairly over the topics.

        With `tenants`, only messages whose property `tenant_id` is one of them: the others are not
        touched, so they stay for whoever may have them.

        Returns as soon as there is at least one, or with none after `wait`. Each is locked for
        this receiver; when the lock runs out unsettled it is delivered again with a higher count,
        and past `max_deliveries` it is dead-lettered. BusUnavailableError during an outage.
        """

    async def complete(self, delivery: Delivery) -> None:
        """Settle: never delivered again. LockLostError if the lock has run out."""

    async def abandon(self, delivery: Delivery) -> None:
        """Give the lock back: delivered again at once, with a higher count."""

    async def dead_letter(self, delivery: Delivery, reason: str, detail: str) -> None:
        """Set a faulty message aside."""

    async def send_notice(self, address: str, message: Message) -> None:
        """Send it to whoever hears at that address. It may be lost: nobody keeps it for long."""

    async def receive_notices(self, address: str, wait: timedelta) -> Sequence[Message]:
        """What was told to that address, as soon as there is something; nothing after `wait`.

        One receiver hears at an address. It misses nothing after its first call, unless the broker is
        away meanwhile. BusUnavailableError during an outage.
        """

    async def close(self) -> None: ...


class Provisioner(Protocol):
    """Creates what subscriptions need, on brokers where running processes have no right to."""

    async def provision(self, subscriptions: Sequence[Subscription]) -> Sequence[str]:
        """Say what was changed, in words. Repeating it changes nothing."""

    async def close(self) -> None: ...
