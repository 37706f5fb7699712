"""The state of the broker: topics, and what waits in their subscriptions. It knows no wire.

It lives on while the server before it is stopped and started again.
"""

import hmac
import re
import secrets
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from math import inf
from time import time
from typing import Final
from urllib.parse import unquote, unquote_plus

from lucius.dev.standins.service_bus.filters import Rule, Test
from lucius.dev.standins.service_bus.messages import Stored
from lucius.dev.standins.service_bus.queue import Queue, QueueOptions

# Shared access policies of a namespace: which token is good, what it allows, where and until when.

SEND, LISTEN, MANAGE = "Send", "Listen", "Manage"
EVERYTHING: Final = frozenset({SEND, LISTEN, MANAGE})
UNAUTHORIZED: Final = "amqp:unauthorized-access"
POLICY: Final = "stand-in"
SCHEME: Final = "SharedAccessSignature"
DIGITS: Final = re.compile("[0-9]{1,15}")


@dataclass(frozen=True)
class Policy:
    """A named key and what it allows."""

    key: str
    rights: frozenset[str] = EVERYTHING


@dataclass(frozen=True)
class Grant:
    """The rights of a token for `path` and all below it; of an empty path, for the namespace."""

    rights: frozenset[str]
    path: str = ""
    expires_at: float = inf

    def covers(self, address: str) -> bool:
        return not self.path or f"{address.strip('/').lower()}/".startswith(f"{self.path}/")


def path_of(uri: str) -> str:
    """The path of `sb://host:port/path`, in lower case, as names are compared.

    Clients may sign the address of the whole request, with its query.
    """
    path = uri.split("://", 1)[-1].partition("?")[0].partition("/")[2]
    return unquote(path).strip("/").lower()


class Access:
    """Without policies there is one, whose random key only the connection string of the stand-in has."""

    def __init__(
        self, policies: Mapping[str, Policy] | None = None, *, now: Callable[[], float] = time
    ) -> None:
        self.policies = dict(policies or {POLICY: Policy(secrets.token_urlsafe(32))})
        self._now = now

    def granted(self, token: str) -> Grant | None:
        """None: no policy has signed this token, or it has expired.

        The resource is signed as the token writes it: clients escape it in different ways.
        """
        scheme, _, text = token.partition(" ")
        said = dict(part.partition("=")[::2] for part in text.split("&"))
        name, signature = (unquote_plus(said.get(key, "")) for key in ("skn", "sig"))
        resource, until, policy = said.get("sr", ""), said.get("se", ""), self.policies.get(name)
        if scheme != SCHEME or policy is None or not resource or not DIGITS.fullmatch(until):
            return None
        signed = hmac.new(policy.key.encode(), f"{resource}\n{until}".encode(), sha256).digest()
        if not hmac.compare_digest(b64encode(signed), signature.encode()):
            return None
        found = Grant(policy.rights, path_of(unquote_plus(resource)), float(until))
        return found if self.holds(found) else None

    def holds(self, grant: Grant) -> bool:
        return self._now() < grant.expires_at


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
