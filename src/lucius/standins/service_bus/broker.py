"""The state of the broker: topics, and what waits in their subscriptions. It knows no wire.

It lives on while the server before it is stopped and started again.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from time import time
from typing import Final

from lucius.standins.service_bus.access import Access
from lucius.standins.service_bus.filters import Rule, Test
from lucius.standins.service_bus.messages import Stored
from lucius.standins.service_bus.queue import Queue, QueueOptions

DEFAULT_RULE: Final = "$Default"
DEAD: Final = "/$deadletterqueue"


@dataclass(frozen=True)
class TopicOptions:
    duplicate_window: timedelta | None = None
    """None: duplicates are not looked for."""
    ttl: timedelta | None = None


class SubscriptionState:
    """A queue with rules before it. `dead` holds what was set aside."""

    def __init__(self, topic: str, name: str, options: QueueOptions) -> None:
        self.topic = topic
        self.name = name
        self.dead = Queue(
            f"{topic}/Subscriptions/{name}/$DeadLetterQueue", QueueOptions(max_deliveries=None)
        )
        self.queue = Queue(f"{topic}/Subscriptions/{name}", options, self.dead)
        self.rules: dict[str, Rule] = {}
        self._tests: dict[str, Test] = {}
        self.define(Rule(DEFAULT_RULE))

    def define(self, rule: Rule) -> None:
        self._tests[rule.name] = rule.test()
        self.rules[rule.name] = rule

    def remove(self, name: str) -> None:
        del self.rules[name], self._tests[name]

    def takes(self, message: Stored) -> bool:
        return any(test(message) is True for test in self._tests.values())


@dataclass
class TopicState:
    name: str
    options: TopicOptions = field(default_factory=TopicOptions)
    subscriptions: dict[str, SubscriptionState] = field(default_factory=dict)
    """By name in lower case, as all names here are compared."""
    _seen: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def publish(self, messages: Iterable[Stored]) -> None:
        for message in messages:
            if not self._is_duplicate(message):
                for subscription in self.subscriptions.values():
                    if subscription.takes(message):
                        subscription.queue.put(message, self.options.ttl)

    def _is_duplicate(self, message: Stored) -> bool:
        window, name = self.options.duplicate_window, message.message_id
        if window is None or name is None:
            return False
        now = time()
        while self._seen and next(iter(self._seen.values())) <= now:
            self._seen.popitem(last=False)
        known = name in self._seen
        self._seen.setdefault(name, now + window.total_seconds())
        return known


class Broker:
    """A namespace. Names are compared without regard to case."""

    def __init__(self, access: Access | None = None) -> None:
        self.access = access or Access()
        self.topics: dict[str, TopicState] = {}

    def create_topic(self, name: str, options: TopicOptions | None = None) -> TopicState:
        topic = self.topics.setdefault(name.lower(), TopicState(name))
        topic.options = options or topic.options
        return topic

    def subscribe(
        self, topic: str, name: str, options: QueueOptions | None = None
    ) -> SubscriptionState:
        subscriptions = self.topics[topic.lower()].subscriptions
        known = subscriptions.get(name.lower())
        if known is None:
            known = SubscriptionState(topic, name, options or QueueOptions())
            subscriptions[name.lower()] = known
        elif options is not None:
            known.queue.options = options
        return known

    def topic(self, address: str) -> TopicState | None:
        return self.topics.get(address.lower())

    def subscription(self, topic: str, name: str) -> SubscriptionState | None:
        found = self.topic(topic)
        return None if found is None else found.subscriptions.get(name.lower())

    def queue(self, address: str) -> Queue | None:
        """`topic/Subscriptions/name`, or its dead-letter queue."""
        found = self._at(address)
        if found is None:
            return None
        return found.dead if address.lower().endswith(DEAD) else found.queue

    def rules(self, address: str) -> list[Rule]:
        found = self._at(address)
        return [] if found is None else list(found.rules.values())

    def _at(self, address: str) -> SubscriptionState | None:
        topic, between, name = address.lower().removesuffix(DEAD).partition("/subscriptions/")
        return self.subscription(topic, name) if between else None
