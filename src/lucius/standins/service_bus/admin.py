"""The management API over HTTP: create, read, list, update and delete topics, subscriptions and rules."""

import asyncio
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from lucius.standins.service_bus import atom
from lucius.standins.service_bus.access import MANAGE
from lucius.standins.service_bus.atom import DescriptionError
from lucius.standins.service_bus.broker import Broker
from lucius.standins.service_bus.filters import FilterError

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


NO_SUCH: Final = Reply(HTTPStatus.NOT_FOUND, atom.problem(404, "The entity does not exist."))
EXISTS: Final = Reply(HTTPStatus.CONFLICT, atom.problem(409, "The entity exists already."))
UNAUTHORIZED: Final = Reply(
    HTTPStatus.UNAUTHORIZED, atom.problem(401, "Manage claim is required for this operation.")
)
NOT_IMPLEMENTED: Final = Reply(
    HTTPStatus.NOT_IMPLEMENTED, atom.problem(501, "The stand-in does not support this request.")
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
            case ("$Resources", "topics"):
                return _listed(request, [_topic(broker, name) for name in broker.topics])
            case (topic,):
                return _on_topic(broker, topic, request)
            case (topic, kind) if kind.lower() == "subscriptions":
                return _list_subscriptions(broker, topic, request)
            case (topic, kind, name) if kind.lower() == "subscriptions":
                return _on_subscription(broker, topic, name, request)
            case (topic, kind, name, "rules") if kind.lower() == "subscriptions":
                return _list_rules(broker, topic, name, request)
            case (topic, kind, name, "rules", rule) if kind.lower() == "subscriptions":
                return _on_rule(broker, topic, name, rule, request)
            case _:
                return NOT_IMPLEMENTED
    except (DescriptionError, FilterError) as error:
        return Reply(HTTPStatus.BAD_REQUEST, atom.problem(400, str(error)))


def _listed(request: Request, entries: list[str]) -> Reply:
    skip, top = (
        int(request.query.get(name, [most])[0]) for name, most in (("$skip", "0"), ("$top", "100"))
    )
    return Reply(HTTPStatus.OK, atom.feed(entries[skip : skip + top]))


def _topic(broker: Broker, name: str) -> str:
    found = broker.topics[name.lower()]
    return atom.topic_entry(found.name, found.options)


def _on_topic(broker: Broker, name: str, request: Request) -> Reply:
    known = broker.topic(name) is not None
    if request.method == "PUT":
        if known and not request.updates:
            return EXISTS
        broker.create_topic(name, atom.topic_options(request.body))
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
        request, [atom.subscription_entry(each) for each in found.subscriptions.values()]
    )


def _on_subscription(broker: Broker, topic: str, name: str, request: Request) -> Reply:
    if broker.topic(topic) is None:
        return NO_SUCH
    known = broker.subscription(topic, name)
    if request.method == "PUT":
        if known is not None and not request.updates:
            return EXISTS
        made = broker.subscribe(topic, name, atom.queue_options(request.body))
        status = HTTPStatus.CREATED if known is None else HTTPStatus.OK
        return Reply(status, atom.subscription_entry(made))
    if known is None:
        return NO_SUCH
    if request.method == "DELETE":
        del broker.topics[topic.lower()].subscriptions[name.lower()]
        return Reply(HTTPStatus.OK)
    return Reply(HTTPStatus.OK, atom.subscription_entry(known))


def _list_rules(broker: Broker, topic: str, name: str, request: Request) -> Reply:
    found = broker.subscription(topic, name)
    if found is None:
        return NO_SUCH
    return _listed(request, [atom.rule_entry(rule) for rule in found.rules.values()])


def _on_rule(broker: Broker, topic: str, name: str, rule: str, request: Request) -> Reply:
    found = broker.subscription(topic, name)
    if found is None:
        return NO_SUCH
    known = found.rules.get(rule)
    if request.method == "PUT":
        if known is not None and not request.updates:
            return EXISTS
        found.define(atom.rule(rule, request.body))
        status = HTTPStatus.CREATED if known is None else HTTPStatus.OK
        return Reply(status, atom.rule_entry(found.rules[rule]))
    if known is None:
        return NO_SUCH
    if request.method == "DELETE":
        found.remove(rule)
        return Reply(HTTPStatus.OK)
    return Reply(HTTPStatus.OK, atom.rule_entry(known))
