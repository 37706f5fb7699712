"""Creates topics, subscriptions and rules. A second run changes nothing."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.identity.aio import DefaultAzureCredential
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import SqlRuleFilter, SubscriptionProperties, TopicProperties

from lucius.core.errors import BusError, BusUnavailableError, OtherDeploymentError
from lucius.ports.bus import ABSENT, MARK, Property, Subscription, others_mark

# The rules of subscriptions, as SQL of Service Bus.

EVERYTHING: Final = "1=1"
STEP_TYPE: Final = "step_type"
POOL: Final = "pool"
LONGEST: Final = 1024
"""Length of the longest rule that Service Bus takes, in characters."""
_TAKEN: Final = re.compile(rf"\b{STEP_TYPE} IN \(((?:'(?:[^']|'')*'(?:, )?)+)\)")
_POOLS: Final = re.compile(rf"\b{POOL} IN \(((?:'(?:[^']|'')*'(?:, )?)+)\)")
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'")


class RuleTooLongError(BusError):
    """More values than one rule can name."""


def taking(filters: Mapping[str, tuple[Property, ...]]) -> str:
    """The rule of a subscription: all filters must match. Without filters it takes every message."""
    if not filters:
        return EVERYTHING
    return _short(" AND ".join(_one_of(name, filters[name]) for name in sorted(filters)))


def _one_of(name: str, values: tuple[Property, ...]) -> str:
    named = [value for value in values if value != ABSENT]
    if len(named) == len(values):
        return f"{name} IN ({_listed(named)})"
    if not named:
        return f"{name} IS NULL"
    return f"({name} IS NULL OR {name} IN ({_listed(named)}))"


def excluding(step_types: Iterable[str], pools: Iterable[str] | None = None) -> str:
    """The rule of a catch-all: messages that have none of these step types, or a pool that nobody serves.

    `pools`: none where no rule tells pools apart.
    """
    known = sorted(set(step_types))
    if not known:
        return EVERYTHING
    rule = f"{STEP_TYPE} IS NULL OR {STEP_TYPE} NOT IN ({_listed(known)})"
    if pools is not None:
        served = sorted(set(pools))
        rule += f" OR {POOL} NOT IN ({_listed(served)})" if served else f" OR {POOL} IS NOT NULL"
    return _short(rule)


def step_types_of(rule: str) -> list[str]:
    """The step types that a rule made by `taking` names."""
    return _named(_TAKEN, rule)


def pools_of(rule: str) -> list[str] | None:
    """The pools that it names. None: it takes messages whatever their pool."""
    return _named(_POOLS, rule) if re.search(rf"\b{POOL} I[NS] ", rule) else None


def _named(listing: re.Pattern[str], rule: str) -> list[str]:
    return [
        text.replace("''", "'")
        for listed in listing.findall(rule)
        for text in _TEXT.findall(listed)
    ]


def _listed(values: Iterable[Property]) -> str:
    return ", ".join(
        str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
        for value in values
    )


def _short(rule: str) -> str:
    if len(rule) > LONGEST:
        raise RuleTooLongError(
            f"a rule of {len(rule)} characters is longer than the {LONGEST} that Service Bus takes:"
            f" {rule[:80]}... Use fewer or shorter step types"
        )
    return rule


DEFAULT_RULE: Final = "$Default"
RULE: Final = "lucius"
CATCH_ALL: Final = "lucius-catch-all"
TOLD: Final = timedelta(minutes=5)
"""How long what was told to an address waits for it."""
AT_ONCE: Final = 8
"""Topics that are worked on at the same time."""


@dataclass(frozen=True)
class Plan:
    """Properties of new topics and subscriptions."""

    duplicate_window: timedelta | None = timedelta(minutes=2)
    """How long a topic drops messages with an id that it has seen. A publish whose outcome is unknown is
    repeated within seconds; a longer window costs throughput. None: it drops none."""
    expiry: timedelta | None = timedelta(days=14)
    """How long an unread message is kept, longer than any outage; then it is a dead letter."""
    lock: timedelta | None = timedelta(minutes=1)
    """How long a message is locked for its receiver: enough for an ACK and a record, because a directive is
    settled when its step begins. Soon after, what a dead process had comes again."""
    max_deliveries: int | None = 50
    """More than Azure's 10: messages that come for a full process are given back, and locks that run out in
    an outage count too."""
    prefix: str = ""
    """What the names of topics begin with."""


class Administrator:
    """Creates and changes entities. It needs the right Manage."""

    def __init__(
        self,
        client: ServiceBusAdministrationClient,
        plan: Plan,
        credential: DefaultAzureCredential | None = None,
    ) -> None:
        self._client = client
        self._credential = credential
        self._plan = plan
        self._topics: set[str] = set()
        """Topics that are known to exist."""

    async def provision(self, subscriptions: Sequence[Subscription]) -> Sequence[str]:
        """Create subscriptions of services first, then catch-alls, which exclude what services take."""
        by_topic: dict[str, list[Subscription]] = {}
        for each in subscriptions:
            topic = f"{self._plan.prefix}{each.topic}"
            by_topic.setdefault(topic, []).append(replace(each, topic=topic))
        gate = asyncio.Semaphore(AT_ONCE)

        async def work(topic: str) -> list[str]:
            async with gate, _mapped(topic):
                return await self._topic(topic, by_topic[topic])

        done = await asyncio.gather(*(work(topic) for topic in by_topic))
        return [change for changes in done for change in changes]

    async def close(self) -> None:
        await self._client.close()
        if self._credential is not None:
            await self._credential.close()

    async def _topic(self, topic: str, wanted: Sequence[Subscription]) -> list[str]:
        changes = await self._ensure_topic(topic)
        catch_alls = {each.name for each in wanted if each.catch_all}
        rules: list[str] = []
        for each in wanted:
            if each.name.startswith(MARK):
                await self._refuse_others(each)
            changes += await self._ensure_subscription(each)
            if not each.catch_all:
                rules += await self._ensure_rule(topic, each.name, RULE, taking(each.filters))
        if rules or catch_alls:
            rules += await self._renew_catch_alls(topic, catch_alls)
        return changes + rules

    async def _ensure_topic(self, topic: str) -> list[str]:
        if topic in self._topics:
            return []
        self._topics.add(topic)
        window = self._plan.duplicate_window
        options: dict[str, Any] = {"requires_duplicate_detection": window is not None}
        if window is not None:
            options["duplicate_detection_history_time_window"] = window
        if self._plan.expiry is not None:
            options["default_message_time_to_live"] = self._plan.expiry
        try:
            found = await self._client.get_topic(topic)
        except ResourceNotFoundError:
            await self._client.create_topic(topic, **options)
            return [f"created topic {topic}"]
        return await self._update_topic(found, options)

    async def _update_topic(self, found: TopicProperties, wanted: dict[str, Any]) -> list[str]:
        """Change what differs. Azure does not let duplicate detection be turned on or off later."""
        if found.requires_duplicate_detection != wanted.pop("requires_duplicate_detection"):
            wanted.pop("duplicate_detection_history_time_window", None)
        differing = {name: value for name, value in wanted.items() if getattr(found, name) != value}
        if not differing:
            return []
        for name, value in differing.items():
            setattr(found, name, value)
        await self._client.update_topic(found)
        return [f"changed topic {found.name}: {', '.join(differing)}"]

    async def _refuse_others(self, mark: Subscription) -> None:
        names = [each.name async for each in self._client.list_subscriptions(mark.topic)]
        if (other := others_mark(mark, names)) is not None:
            raise OtherDeploymentError(
                f"topic {mark.topic} belongs to another deployment ({other}; this one is {mark.name})."
                " Give this one topics of its own with LUCIUS_SERVICEBUS_PREFIX, or another namespace. If"
                f" the other one is gone, delete its subscription {other}"
            )

    async def _ensure_subscription(self, wanted: Subscription) -> list[str]:
        options: dict[str, Any] = {
            "lock_duration": self._plan.lock or wanted.lock,
            "max_delivery_count": self._plan.max_deliveries or wanted.max_deliveries,
            "dead_lettering_on_message_expiration": not wanted.addressed,
        }
        if wanted.addressed:
            options["default_message_time_to_live"] = TOLD
        try:
            found = await self._client.get_subscription(wanted.topic, wanted.name)
        except ResourceNotFoundError:
            options["requires_session"] = wanted.addressed
            await self._client.create_subscription(wanted.topic, wanted.name, **options)
            return [f"created subscription {wanted.name} of topic {wanted.topic}"]
        return await self._update_subscription(wanted, found, options)

    async def _update_subscription(
        self, wanted: Subscription, found: SubscriptionProperties, options: dict[str, Any]
    ) -> list[str]:
        differing = {k: v for k, v in options.items() if getattr(found, k) != v}
        if not differing:
            return []
        for name, value in differing.items():
            setattr(found, name, value)
        await self._client.update_subscription(wanted.topic, found)
        changed = ", ".join(differing)
        return [f"changed subscription {wanted.name} of topic {wanted.topic}: {changed}"]

    # -- rules -------------------------------------------------------------------------------

    async def _ensure_rule(self, topic: str, name: str, rule: str, sql: str) -> list[str]:
        """Add the new rule before the old one is deleted, so that no message is missed."""
        rules = {each.name: each async for each in self._client.list_rules(topic, name)}
        changes: list[str] = []
        known = rules.get(rule)
        if known is None:
            await self._client.create_rule(topic, name, rule, filter=SqlRuleFilter(sql))
            changes.append(f"created rule of {name} on topic {topic}: {sql}")
        elif getattr(known.filter, "sql_expression", None) != sql:
            known.filter = SqlRuleFilter(sql)
            await self._client.update_rule(topic, name, known)
            changes.append(f"changed rule of {name} on topic {topic}: {sql}")
        if DEFAULT_RULE in rules:
            await self._client.delete_rule(topic, name, DEFAULT_RULE)
        return changes

    async def _renew_catch_alls(self, topic: str, named: set[str]) -> list[str]:
        """Let every catch-all of the topic exclude what the other subscriptions take now."""
        taken: list[str] = []
        pools: list[str] | None = None
        catch_alls = set(named)
        async for each in self._client.list_subscriptions(topic):
            async for rule in self._client.list_rules(topic, each.name):
                if rule.name == CATCH_ALL:
                    catch_alls.add(each.name)
                elif rule.name == RULE:
                    sql = getattr(rule.filter, "sql_expression", None) or ""
                    taken += step_types_of(sql)
                    if (served := pools_of(sql)) is not None:
                        pools = [*(pools or ()), *served]
        changes: list[str] = []
        for name in sorted(catch_alls):
            changes += await self._ensure_rule(topic, name, CATCH_ALL, excluding(taken, pools))
        return changes


@asynccontextmanager
async def _mapped(topic: str) -> AsyncIterator[None]:
    try:
        yield
    except (AzureError, OSError, TimeoutError) as error:
        raise BusUnavailableError(
            f"topic {topic} cannot be set up with LUCIUS_SERVICEBUS_CONNECTION: {_why(error)}"
        ) from error


def _why(error: Exception) -> str:
    said = " ".join(str(error).split())
    refused = getattr(error, "status_code", None) in (401, 403)
    return f"{said}. It needs the right Manage" if refused else said
