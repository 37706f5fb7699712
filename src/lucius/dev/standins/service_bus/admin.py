"""The management API over HTTP: create, read, list, update and delete topics, subscriptions and rules."""

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from lucius.dev.standins.service_bus.broker import MANAGE, Broker, SubscriptionState, TopicOptions
from lucius.dev.standins.service_bus.filters import FilterError, Rule
from lucius.dev.standins.service_bus.queue import QueueOptions

# The XML of the management API: descriptions of topics, subscriptions and rules, both ways.

ATOM: Final = "http://www.w3.org/2005/Atom"
BUS: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
XSI: Final = "http://www.w3.org/2001/XMLSchema-instance"
XSD: Final = "http://www.w3.org/2001/XMLSchema"
ADDRESS: Final = "https://localhost/"
"""Clients look at what comes behind it."""
FOREVER: Final = timedelta(days=10_000)
"""Service Bus writes `never` as about 29,000 years."""
_SPAN: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_SYSTEM: Final = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "subject",
    "SessionId": "session_id",
    "ContentType": "content_type",
}
_KINDS: Final[dict[str, Callable[[str], Any]]] = {
    "string": str,
    "int": int,
    "long": int,
    "double": float,
    "boolean": "true".__eq__,
}
LONGEST_LOCK: Final = timedelta(minutes=5)
_NEVER: Final = "P10675199DT2H48M5.4775807S"
_MOMENTS: Final = dict.fromkeys(("CreatedAt", "UpdatedAt", "AccessedAt"), "0001-01-01T00:00:00Z")
"""The stand-in keeps none; this is what Service Bus writes for `never`."""


class DescriptionError(ValueError):
    """A description that the stand-in cannot read or does not support."""


# -- reading -----------------------------------------------------------------------------------


def topic_options(body: str) -> TopicOptions:
    found = _described(body, "TopicDescription")
    window = _span(found, "DuplicateDetectionHistoryTimeWindow") or timedelta(minutes=10)
    detects = _text(found, "RequiresDuplicateDetection") == "true"
    ttl = _span(found, "DefaultMessageTimeToLive")
    return TopicOptions(duplicate_window=window if detects else None, ttl=ttl)


def queue_options(body: str) -> QueueOptions:
    found = _described(body, "SubscriptionDescription")
    _refuse(found, "ForwardTo", "ForwardDeadLetteredMessagesTo", "AutoDeleteOnIdle")
    lock = _span(found, "LockDuration") or timedelta(minutes=1)
    if lock > LONGEST_LOCK:
        raise DescriptionError("LockDuration is at most five minutes")
    return QueueOptions(
        lock=lock,
        max_deliveries=int(_text(found, "MaxDeliveryCount") or "10"),
        ttl=_span(found, "DefaultMessageTimeToLive"),
        dead_letter_expired=_text(found, "DeadLetteringOnMessageExpiration") == "true",
        sessions=_text(found, "RequiresSession") == "true",
    )


def parsed_rule(name: str, body: str) -> Rule:
    found = _described(body, "RuleDescription").find(f"{{{BUS}}}Filter")
    kind = found.get(f"{{{XSI}}}type", "") if found is not None else "TrueFilter"
    if found is None or kind == "TrueFilter":
        return Rule(name)
    if kind == "SqlFilter":
        made = Rule(name, _text(found, "SqlExpression") or "")
        made.test()
        return made
    if kind == "CorrelationFilter":
        system = {ours: text for theirs, ours in _SYSTEM.items() if (text := _text(found, theirs))}
        return Rule(name, None, _properties(found), system)
    raise DescriptionError(f"a rule with {kind or 'no filter'} is not supported")


def _properties(found: ElementTree.Element) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for pair in found.iter(f"{{{BUS}}}KeyValueOfstringanyType"):
        key, value = pair.find(f"{{{BUS}}}Key"), pair.find(f"{{{BUS}}}Value")
        if key is None or value is None:
            raise DescriptionError("a property of the correlation filter lacks its key or value")
        kind = value.get(f"{{{XSI}}}type", "string").rpartition(":")[2]
        if kind not in _KINDS:
            raise DescriptionError(f"a correlation filter on a {kind} is not supported")
        made[key.text or ""] = _KINDS[kind](value.text or "")
    return made


def _described(body: str, kind: str) -> ElementTree.Element:
    try:
        found = next(ElementTree.fromstring(body).iter(f"{{{BUS}}}{kind}"), None)
    except ElementTree.ParseError as error:
        raise DescriptionError(f"not XML: {error}") from error
    if found is None:
        raise DescriptionError(f"the request has no {kind}")
    return found


def _text(found: ElementTree.Element, name: str) -> str | None:
    element = found.find(f"{{{BUS}}}{name}")
    return None if element is None else element.text


def _span(found: ElementTree.Element, name: str) -> timedelta | None:
    text = _text(found, name)
    if not text:
        return None
    match = _SPAN.fullmatch(text)
    if match is None:
        raise DescriptionError(f"{name} is no span of time: {text}")
    if int(match[1] or 0) >= FOREVER.days:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def _refuse(found: ElementTree.Element, *names: str) -> None:
    for name in names:
        if _text(found, name) and (name != "AutoDeleteOnIdle" or _span(found, name)):
            raise DescriptionError(f"{name} is not supported")


# -- writing -----------------------------------------------------------------------------------


def topic_entry(name: str, options: TopicOptions, subscriptions: int) -> str:
    window = options.duplicate_window
    return _entry(
        (name,),
        "TopicDescription",
        DefaultMessageTimeToLive=_span_text(options.ttl),
        MaxSizeInMegabytes="1024",
        RequiresDuplicateDetection=_flag(window is not None),
        DuplicateDetectionHistoryTimeWindow=_span_text(window or timedelta(minutes=10)),
        EnableBatchedOperations="true",
        Status="Active",
        **_MOMENTS,
        SupportOrdering="true",
        CountDetails=_counts(0, 0),
        SubscriptionCount=str(subscriptions),
        AutoDeleteOnIdle=_NEVER,
        EnablePartitioning="false",
        EntityAvailabilityStatus="Available",
        EnableExpress="false",
    )


def subscription_entry(topic: str, state: SubscriptionState) -> str:
    options, waiting = state.queue.options, len(list(state.queue))
    aside = len(list(state.dead))
    return _entry(
        (topic, "Subscriptions", state.name),
        "SubscriptionDescription",
        LockDuration=_span_text(options.lock),
        RequiresSession=_flag(options.sessions),
        DefaultMessageTimeToLive=_span_text(options.ttl),
        DeadLetteringOnMessageExpiration=_flag(options.dead_letter_expired),
        DeadLetteringOnFilterEvaluationExceptions="true",
        MessageCount=str(waiting + aside),
        MaxDeliveryCount=str(options.max_deliveries),
        EnableBatchedOperations="true",
        Status="Active",
        **_MOMENTS,
        CountDetails=_counts(waiting, aside),
        AutoDeleteOnIdle=_NEVER,
        EntityAvailabilityStatus="Available",
    )


def _counts(active: int, dead: int) -> str:
    named = (("ActiveMessageCount", active), ("DeadLetterMessageCount", dead))
    inner = "".join(f"<c:{name}>{count}</c:{name}>" for name, count in named)
    return f'<CountDetails xmlns:c="{COUNTS}">{inner}</CountDetails>'


def rule_entry(topic: str, subscription: str, rule: Rule) -> str:
    if rule.sql is not None:
        kind = "TrueFilter" if rule.sql == "1=1" else "SqlFilter"
        inner = f"<SqlExpression>{escape(rule.sql)}</SqlExpression>"
    else:
        kind = "CorrelationFilter"
        named = {
            theirs: rule.system[ours] for theirs, ours in _SYSTEM.items() if ours in rule.system
        }
        inner = "".join(f"<{name}>{escape(text)}</{name}>" for name, text in named.items())
        pairs = "".join(_pair(name, value) for name, value in rule.correlation.items())
        inner += f"<Properties>{pairs}</Properties>"
    made = f'<Filter i:type="{kind}">{inner}</Filter><Action i:type="EmptyRuleAction"/>'
    path = (topic, "Subscriptions", subscription, "Rules", rule.name)
    return _wrapped(path, "RuleDescription", f"{made}<Name>{escape(rule.name)}</Name>")


def _pair(name: str, value: Any) -> str:
    kind = {str: "string", bool: "boolean", float: "double"}.get(type(value), "long")
    value = _flag(value) if isinstance(value, bool) else value
    return (
        f"<KeyValueOfstringanyType><Key>{escape(name)}</Key>"
        f'<Value xmlns:d6p1="{XSD}" i:type="d6p1:{kind}">{escape(str(value))}</Value>'
        "</KeyValueOfstringanyType>"
    )


def _entry(path: tuple[str, ...], kind: str, **fields: str) -> str:
    """In the order of the service, in which clients read it."""
    inner = (v if v.startswith("<") else f"<{k}>{v}</{k}>" for k, v in fields.items())
    return _wrapped(path, kind, "".join(inner))


def _wrapped(path: tuple[str, ...], kind: str, inner: str) -> str:
    """Clients take names from the title, or from the path in the id, as it is written here."""
    return (
        f"<entry xmlns={quoteattr(ATOM)}><id>{ADDRESS}{escape('/'.join(path))}</id>"
        f"<title>{escape(path[-1])}</title>"
        f'<content type="application/xml"><{kind} xmlns="{BUS}" xmlns:i="{XSI}">{inner}</{kind}>'
        "</content></entry>"
    )


def feed(path: str, entries: list[str], following: str = "") -> str:
    """Clients look for the next page in a list of links, so that one link alone is none."""
    links = f'<link rel="self" href={quoteattr(ADDRESS + path)}/>'
    if following:
        links += f'<link rel="next" href={quoteattr(ADDRESS + path + following)}/>'
    return f"<feed xmlns={quoteattr(ATOM)}>{links}{''.join(entries)}</feed>"


def problem(code: int, detail: str) -> str:
    return f"<Error><Code>{code}</Code><Detail>{escape(detail)}</Detail></Error>"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _span_text(span: timedelta | None) -> str:
    return _NEVER if span is None else f"PT{span.total_seconds():.3f}S"


MAX_BODY: Final = 1024 * 1024
FEED: Final = "application/atom+xml;type=feed;charset=utf-8"


class Reply(NamedTuple):
    status: HTTPStatus
    body: str = ""


class Request(NamedTuple):
    method: str
    path: tuple[str, ...]
    query: dict[str, list[str]]
    updates: bool
    """Whether it means what exists (If-Match)."""
    token: str
    body: str


RULES: Final = ("subscriptions", "rules")
NO_SUCH: Final = Reply(HTTPStatus.NOT_FOUND, problem(404, "The entity does not exist."))
EXISTS: Final = Reply(HTTPStatus.CONFLICT, problem(409, "The entity exists already."))
UNAUTHORIZED: Final = Reply(
    HTTPStatus.UNAUTHORIZED, problem(401, "Manage claim is required for this operation.")
)
NOT_IMPLEMENTED: Final = Reply(
    HTTPStatus.NOT_IMPLEMENTED, problem(501, "The stand-in does not support this request.")
)


class AdminConnection:
    """One HTTP connection. Callers need the right Manage."""

    def __init__(
        self, broker: Broker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._broker = broker
        self._reader = reader
        self._writer = writer

    async def run(self, head: bytes) -> None:
        while True:
            request = await self._read(head)
            reply = answered(self._broker, request)
            body = reply.body.encode()
            said = (
                f"HTTP/1.1 {reply.status.value} {reply.status.phrase}\r\n"
                f"Content-Type: {FEED}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            self._writer.write(said.encode() + body)
            await self._writer.drain()
            head = b""

    async def _read(self, head: bytes) -> Request:
        text = (head + await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
        size = min(int(headers.get("content-length", "0")), MAX_BODY)
        body = (await self._reader.readexactly(size)).decode()
        method, target, _ = first.split(" ", 2)
        url = urlsplit(target)
        path = tuple(unquote(part) for part in url.path.strip("/").split("/"))
        token = headers.get("authorization", "")
        return Request(method, path, parse_qs(url.query), "if-match" in headers, token, body)


def answered(broker: Broker, request: Request) -> Reply:
    grant = broker.access.granted(request.token)
    if grant is None or MANAGE not in grant.rights or not grant.covers("/".join(request.path)):
        return UNAUTHORIZED
    try:
        match request.path:
            case ("$Resources", kind) if kind.lower() == "topics":
                return _listed(request, [_topic(broker, name) for name in broker.topics])
            case (topic,):
                return _on_topic(broker, topic, request)
            case (topic, kind) if kind.lower() == "subscriptions":
                return _list_subscriptions(broker, topic, request)
            case (topic, kind, name) if kind.lower() == "subscriptions":
                return _on_subscription(broker, topic, name, request)
            case (topic, kind, name, part) if (kind.lower(), part.lower()) == RULES:
                return _list_rules(broker, topic, name, request)
            case (topic, kind, name, part, rule) if (kind.lower(), part.lower()) == RULES:
                return _on_rule(broker, topic, name, rule, request)
            case _:
                return NOT_IMPLEMENTED
    except (DescriptionError, FilterError) as error:
        return Reply(HTTPStatus.BAD_REQUEST, problem(400, str(error)))


def _listed(request: Request, entries: list[str]) -> Reply:
    skip, top = (
        int(request.query.get(name, [most])[0]) for name, most in (("$skip", "0"), ("$top", "100"))
    )
    end = skip + top
    path = "/".join(request.path)
    following = f"?$skip={end}&$top={top}" if end < len(entries) else ""
    return Reply(HTTPStatus.OK, feed(path, entries[skip:end], following))


def _topic(broker: Broker, name: str) -> str:
    found = broker.topics[name.lower()]
    return topic_entry(found.name, found.options, len(found.subscriptions))


def _on_topic(broker: Broker, name: str, request: Request) -> Reply:
    known = broker.topic(name) is not None
    if request.method == "PUT":
        if known and not request.updates:
            return EXISTS
        broker.create_topic(name, topic_options(request.body))
        return Reply(HTTPStatus.OK if known else HTTPStatus.CREATED, _topic(broker, name))
    if not known:
        return NO_SUCH
    if request.method == "DELETE":
        del broker.topics[name.lower()]
        return Reply(HTTPStatus.OK)
    return Reply(HTTPStatus.OK, _topic(broker, name))


def _list_subscriptions(broker: Broker, topic: str, request: Request) -> Reply:
    found = broker.topic(topic)
    if found is None:
        return NO_SUCH
    return _listed(
        request, [subscription_entry(topic, each) for each in found.subscriptions.values()]
    )


def _on_subscription(broker: Broker, topic: str, name: str, request: Request) -> Reply:
    if broker.topic(topic) is None:
        return NO_SUCH
    known = broker.subscription(topic, name)
    if request.method == "PUT":
        if known is not None and not request.updates:
            return EXISTS
        made = broker.subscribe(topic, name, queue_options(request.body))
        status = HTTPStatus.CREATED if known is None else HTTPStatus.OK
        return Reply(status, subscription_entry(topic, made))
    if known is None:
        return NO_SUCH
    if request.method == "DELETE":
        del broker.topics[topic.lower()].subscriptions[name.lower()]
        return Reply(HTTPStatus.OK)
    return Reply(HTTPStatus.OK, subscription_entry(topic, known))


def _list_rules(broker: Broker, topic: str, name: str, request: Request) -> Reply:
    found = broker.subscription(topic, name)
    if found is None:
        return NO_SUCH
    return _listed(request, [rule_entry(topic, name, rule) for rule in found.rules.values()])


def _on_rule(broker: Broker, topic: str, name: str, rule: str, request: Request) -> Reply:
    found = broker.subscription(topic, name)
    if found is None:
        return NO_SUCH
    known = found.rules.get(rule)
    if request.method == "PUT":
        if known is not None and not request.updates:
            return EXISTS
        found.define(parsed_rule(rule, request.body))
        status = HTTPStatus.CREATED if known is None else HTTPStatus.OK
        return Reply(status, rule_entry(topic, name, found.rules[rule]))
    if known is None:
        return NO_SUCH
    if request.method == "DELETE":
        found.remove(rule)
        return Reply(HTTPStatus.OK)
    return Reply(HTTPStatus.OK, rule_entry(topic, name, known))
