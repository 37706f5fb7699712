"""The bus as an AsyncAPI 3 document: topics, subscriptions and messages, from the models that they follow.

It is written from the side of LUCIUS: what it sends, services receive.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from lucius import __version__
from lucius.contract.models.base import RequestBody, example_of
from lucius.contract.models.messages import (
    AckMessage,
    DirectiveMessage,
    DirectiveProperties,
    HeartbeatMessage,
    NoticeMessage,
    NoticeProperties,
    NudgeMessage,
    NudgeProperties,
    ReleaseMessage,
    ReplyProperties,
    ResultMessage,
)
from lucius.contract.words import JsonObject, Mode
from lucius.core.routing import LANES, TOPOLOGIES, subscriptions_of
from lucius.core.wire import ACK, NUDGE
from lucius.engine.notices import UNCLAIMED
from lucius.engine.replies import INVOKER_REPLIES, REPLIES
from lucius.ports.bus import NOTICES, directive_filters

_SCHEMA: Final = "#/components/schemas/{model}"
_ID: Final = "jobId:stepId:attempt_no:lease_id"
_REPLIES: Final = "replies"
_DESCRIPTION: Final = """\
Directives go out to services, replies come back. Bodies are JSON objects; properties repeat what brokers filter and
spread messages by. The same message may come twice, with the same id: deduplicate by `jobId`, `stepId`, `attempt_no`
and `lease_id`. Fields that are not listed here are kept or passed over, never an error.

On Azure Service Bus a message has its body as data, its headers as application properties, and its id as
`message-id`. On NATS (JetStream) its subject is `<system>.bus.<topic>.<subscription>`, and it is the document
`{"message_id", "properties", "body"}`. Workers without a broker pull the same directives and send the same replies
over HTTP: see the OpenAPI document.
"""  # noqa: E501


class BusMessage(NamedTuple):
    """A kind of message: its models, its id on the bus, what its example shows beyond what is required."""

    title: str
    body: type[BaseModel]
    properties: type[BaseModel]
    message_id: str
    also: tuple[str, ...] = ()


_REPLY: Final = ("type", "tenant_id", "worker_id", "timestamp", "traceparent", "callback_token")
MESSAGES: Final[Mapping[str, BusMessage]] = {
    "directive": BusMessage(
        "One attempt of one step",
        DirectiveMessage,
        DirectiveProperties,
        f"{_ID}:DIRECTIVE",
        ("callback_urls",),
    ),
    "ack": BusMessage(
        "The work has begun",
        AckMessage,
        ReplyProperties,
        f"{_ID}:{ACK}",
        (*_REPLY, "slots", "version"),
    ),
    "result": BusMessage(
        "How the attempt ended",
        ResultMessage,
        ReplyProperties,
        f"{_ID}:RESULT",
        (*_REPLY, "output_ref"),
    ),
    "heartbeat": BusMessage(
        "The work goes on",
        HeartbeatMessage,
        ReplyProperties,
        f"{_ID}:HEARTBEAT:number",
        (*_REPLY, "progress"),
    ),
    "release": BusMessage(
        "The work is given back", ReleaseMessage, ReplyProperties, f"{_ID}:RELEASE", _REPLY
    ),
    "notice": BusMessage(
        "The worker that holds a lease is told to stop",
        NoticeMessage,
        NoticeProperties,
        f"{_ID}:type:random",
        ("address",),
    ),
    "nudge": BusMessage(
        "The owner of a lane is told to look at a job",
        NudgeMessage,
        NudgeProperties,
        f"jobId:version:{NUDGE}",
    ),
}
"""By the name that channels and operations call them by."""
_ANSWERS: Final = ("ack", "result", "heartbeat", "release")


def document(topology: str = TOPOLOGIES[0], prefix: str = "") -> JsonObject:
    """`topology`: the one whose topics new jobs take. `prefix`: what the names of topics begin with."""
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "LUCIUS bus", "version": __version__, "description": _DESCRIPTION},
        "defaultContentType": "application/json",
        "servers": _servers(),
        "channels": _channels(topology, prefix),
        "operations": _operations(),
        "components": {
            "messages": {name: _message(name, about) for name, about in MESSAGES.items()},
            "schemas": _schemas(),
        },
    }


def text(topology: str = TOPOLOGIES[0]) -> str:
    """As a file."""
    return json.dumps(document(topology), indent=2, ensure_ascii=False) + "\n"


# -- servers and channels --------------------------------------------------------------------


def _servers() -> JsonObject:
    return {
        "servicebus": {
            "host": "{namespace}.servicebus.windows.net",
            "protocol": "amqps",
            "protocolVersion": "1.0",
            "description": "Azure Service Bus, with `LUCIUS_BUS_BACKEND=servicebus`",
            "variables": {"namespace": {"description": "The name of the namespace"}},
        },
        "nats": {
            "host": "{host}:{port}",
            "protocol": "nats",
            "description": "NATS with JetStream, with `LUCIUS_BUS_BACKEND=nats`",
            "variables": {
                "host": {"description": "The broker", "default": "127.0.0.1"},
                "port": {"description": "Its port", "default": "4222"},
            },
        },
    }


def _channels(topology: str, prefix: str) -> JsonObject:
    lanes = {
        "description": "The lane of the job, from its routing key",
        "enum": [str(lane) for lane in range(LANES)],
    }
    modes = {"description": "The mode of the job", "enum": [mode.value.lower() for mode in Mode]}
    isolated = topology == "isolated"
    return {
        "directives": _channel(
            f"{prefix}global-bus-p{{lane}}",
            "Directives of one lane, in the topologies `shared` and `filtered`."
            + _now(not isolated),
            {"lane": lanes},
            ("directive",),
            _takers(("filtered",) if topology == "filtered" else ("shared", "filtered")),
        ),
        "isolatedDirectives": _channel(
            f"{prefix}global-{{mode}}-p{{lane}}",
            "Directives of one mode and lane, in the topology `isolated`." + _now(isolated),
            {"mode": modes, "lane": lanes},
            ("directive",),
            _takers(("isolated",)),
        ),
        _REPLIES: _channel(
            f"{prefix}global-bus-replies-p{{lane}}",
            "Replies to the directives of one lane: a directive names it as `reply_topic`. Nudges come here"
            " too, from LUCIUS to itself.",
            {"lane": lanes},
            (*_ANSWERS, "nudge"),
            [
                _subscription(REPLIES, "Read by the processes that move jobs", {}),
                _subscription(INVOKER_REPLIES, "Read by invokers, with the engine `temporal`", {}),
            ],
        ),
        "notices": _channel(
            f"{prefix}{NOTICES.topic}",
            "Notices to workers, each at its own address: the `worker_id` of its ACK. On Service Bus that is"
            " a session; on NATS there is no topic but the subject `<system>.told.<worker_id>`.",
            {},
            ("notice",),
            [_subscription(NOTICES.name, "A session for each worker, kept for five minutes", {})],
        ),
    }


def _now(taken: bool) -> str:
    return " New jobs take these." if taken else " Jobs that took them before do still."


def _channel(
    address: str,
    description: str,
    parameters: JsonObject,
    messages: Sequence[str],
    subscriptions: list[JsonObject],
) -> JsonObject:
    named = {name: {"$ref": f"#/components/messages/{name}"} for name in messages}
    return {
        "address": address,
        "description": description,
        **({"parameters": parameters} if parameters else {}),
        "messages": named,
        "x-lucius-subscriptions": subscriptions,
    }


def _takers(topologies: Sequence[str]) -> list[JsonObject]:
    """The subscriptions of a service and of its pools, as they are named, and the catch-all."""
    found: dict[str, JsonObject] = {}
    for topology in topologies:
        for pool in (None, "{pool}"):
            for name, mode in subscriptions_of("{service}", topology, pool):
                whose = "The service" if pool is None else "A pool of workers of the service"
                about = whose + ("" if mode is None else f", in the topology `{topology}`")
                filters = directive_filters(("{step_type}",), mode, pool)
                found.setdefault(name, _subscription(name, about, filters))
    catch_all = _subscription(UNCLAIMED, "What no other subscription takes", {})
    return [*found.values(), catch_all]


def _subscription(name: str, description: str, filters: Mapping[str, Sequence[Any]]) -> JsonObject:
    """A filter is a property and the values of it that are taken; an empty value: messages without it."""
    shown = {key: list(values) for key, values in filters.items()}
    return {"name": name, "description": description, "filters": shown}


# -- operations ------------------------------------------------------------------------------


def _operations() -> JsonObject:
    reply = {
        "address": {
            "description": "The topic that the directive names",
            "location": "$message.payload#/reply_topic",
        },
        "channel": {"$ref": f"#/channels/{_REPLIES}"},
        "messages": [_of(_REPLIES, name) for name in _ANSWERS],
    }
    sent = "A directive is published to the topic of its lane"
    return {
        "sendDirective": _operation("send", "directives", ("directive",), sent, reply=reply),
        "sendIsolatedDirective": _operation(
            "send", "isolatedDirectives", ("directive",), f"{sent} and mode", reply=reply
        ),
        "receiveReply": _operation("receive", _REPLIES, _ANSWERS, "A worker says how it goes"),
        "sendNotice": _operation(
            "send", "notices", ("notice",), "A worker is told that there is a reason to stop"
        ),
        "sendNudge": _operation(
            "send",
            _REPLIES,
            ("nudge",),
            "A process that has moved a job tells the owner of its lane",
        ),
        "receiveNudge": _operation(
            "receive", _REPLIES, ("nudge",), "The owner of the lane looks at the job"
        ),
    }


def _operation(
    action: str, channel: str, messages: Sequence[str], summary: str, **more: JsonObject
) -> JsonObject:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": summary,
        "messages": [_of(channel, name) for name in messages],
        **more,
    }


def _of(channel: str, message: str) -> JsonObject:
    return {"$ref": f"#/channels/{channel}/messages/{message}"}


# -- messages --------------------------------------------------------------------------------


def _message(name: str, about: BusMessage) -> JsonObject:
    payload: JsonObject = {"$ref": _SCHEMA.format(model=about.body.__name__)}
    if issubclass(about.body, RequestBody):  # over HTTP the path says it
        payload = {"allOf": [payload, {"required": ["type"]}]}
    return {
        "name": name,
        "title": about.title,
        "summary": " ".join((about.body.__doc__ or "").split()),
        "description": f"Its id is `{about.message_id}`; one of more than 128 characters is cut to 63,"
        " followed by `:` and its SHA-256 in hex.",
        "contentType": "application/json",
        "headers": {"$ref": _SCHEMA.format(model=about.properties.__name__)},
        "payload": payload,
        "correlationId": {
            "description": "The job that the message belongs to",
            "location": "$message.payload#/jobId",
        },
        "examples": [{"name": name, **example(about)}],
    }


def example(about: BusMessage) -> JsonObject:
    payload = example_of(about.body, *about.also)
    properties = example_of(about.properties, *about.also)
    return {"headers": {**properties, "type": payload["type"]}, "payload": payload}


def _schemas() -> JsonObject:
    models = dict.fromkeys(
        (model, "validation")
        for each in MESSAGES.values()
        for model in (each.body, each.properties)
    )
    _, schemas = models_json_schema(list(models), ref_template=_SCHEMA)  # type: ignore[arg-type]
    found: JsonObject = schemas["$defs"]
    return found
