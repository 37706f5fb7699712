"""The AsyncAPI document of the bus is valid, and says what is on the bus."""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from lucius.adapters.configs.files import FileConfig
from lucius.app.provisioning import subscriptions
from lucius.core.inputs import CancelRequested
from lucius.core.routing import TOPOLOGIES
from lucius.http import asyncapi
from lucius.platform import FatalError, Output, Service, Task
from lucius.ports.bus import NOTICES, Message
from tests.engine.apart import Apart, Broker, Process
from tests.engine.world import Timed
from tests.virtual import VirtualLoop, run_virtually

SPECIFICATION = (
    Path(sys.prefix) / "asyncapi/node_modules/@asyncapi/specs/schemas/3.0.0-without-$id.json"
)
DOCUMENTS = {topology: asyncapi.document(topology) for topology in TOPOLOGIES}
DOCUMENT = DOCUMENTS["shared"]
MESSAGES = DOCUMENT["components"]["messages"]


@pytest.fixture(scope="module")
def specification() -> jsonschema_rs.Validator:
    assert SPECIFICATION.exists(), "make .venv/asyncapi/.stamp installs the schemas of AsyncAPI"
    return jsonschema_rs.validator_for(json.loads(SPECIFICATION.read_text()))


def misfits(part: Any, value: Any) -> list[str]:
    """Where a value does not fit a schema of the document."""
    whole = {**part, "components": DOCUMENT["components"]}
    found = jsonschema_rs.Draft202012Validator(whole).iter_errors(value)
    return [f"{error.instance_path}: {error.message}" for error in found]


# -- the document ----------------------------------------------------------------------------


@pytest.mark.slow  # it needs the schemas, which `make test` installs
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_it_is_valid_by_the_schema_of_the_specification(
    topology: str, specification: jsonschema_rs.Validator
) -> None:
    document = DOCUMENTS[topology]
    assert [error.message for error in specification.iter_errors(document)] == []


@pytest.mark.slow  # it needs the schemas
def test_the_specification_refuses_what_is_no_asyncapi(
    specification: jsonschema_rs.Validator,
) -> None:
    wrong: list[Callable[[Any], Any]] = [
        lambda d: d["operations"]["receiveReply"].update(action="hear"),
        lambda d: d["channels"]["replies"].update(topic="x"),
        lambda d: (
            d["components"]["messages"]["ack"].pop("examples")
            and d["components"]["messages"]["ack"].update(examples={})
        ),
        lambda d: d.pop("info"),
    ]
    for spoil in wrong:
        document = json.loads(json.dumps(DOCUMENT))
        spoil(document)
        assert not specification.is_valid(document)


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for each in node.values():
            yield from references(each)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def test_every_reference_leads_somewhere() -> None:
    for reference in set(references(DOCUMENT)):
        node: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
        assert isinstance(node, dict)


@pytest.mark.parametrize("name", MESSAGES)
def test_every_example_fits_its_message(name: str) -> None:
    for example in MESSAGES[name]["examples"]:
        assert misfits(MESSAGES[name]["payload"], example["payload"]) == []
        assert misfits(MESSAGES[name]["headers"], example["headers"]) == []


def test_every_message_is_on_a_channel_and_in_an_operation() -> None:
    on_channels = {name for each in DOCUMENT["channels"].values() for name in each["messages"]}
    sent = {reference.rpartition("/")[2] for reference in references(DOCUMENT["operations"])}
    assert set(MESSAGES) == on_channels == sent - set(DOCUMENT["channels"])


def test_a_type_is_needed_on_the_bus() -> None:
    bare = dict(MESSAGES["ack"]["examples"][0]["payload"])
    del bare["type"]
    assert misfits(MESSAGES["ack"]["payload"], bare) == ['[]: "type" is a required property']


# -- topics and subscriptions ----------------------------------------------------------------


def pattern(template: str, parameters: Mapping[str, Any]) -> re.Pattern[str]:
    """What an address or a name with `{names}` in it stands for."""
    parts = re.split(r"\{(\w+)\}", template)
    values = [
        "|".join(parameters[part]["enum"]) if part in parameters else "[A-Za-z0-9-]+"
        for part in parts[1::2]
    ]
    made = "".join(
        re.escape(text) + (f"({value})" if value else "")
        for text, value in zip(parts[::2], [*values, ""], strict=True)
    )
    return re.compile(made)


def channels_of(topic: str, document: Any = DOCUMENT) -> list[str]:
    return [
        name
        for name, channel in document["channels"].items()
        if pattern(channel["address"], channel.get("parameters", {})).fullmatch(topic)
    ]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_subscription_that_is_provisioned_is_documented(topology: str) -> None:
    document, found = DOCUMENTS[topology], set()
    used = (topology, "shared") if topology == "isolated" else (topology,)
    for each in subscriptions(FileConfig().catalog(), topology, used, temporal=True):
        (channel,) = channels_of(each.topic, document)
        known = document["channels"][channel]["x-lucius-subscriptions"]
        names = [
            named["name"] for named in known if pattern(named["name"], {}).fullmatch(each.name)
        ]
        assert names, (channel, each.name)
        found.add(channel)
    assert found >= {
        "replies",
        "notices",
        "isolatedDirectives" if topology == "isolated" else "directives",
    }


@pytest.mark.parametrize(("topology", "channel"), [
    ("shared", "directives"), ("filtered", "directives"), ("isolated", "isolatedDirectives"),
])  # fmt: skip
def test_it_says_which_topics_new_jobs_take(topology: str, channel: str) -> None:
    channels = DOCUMENTS[topology]["channels"]
    assert [n for n, each in channels.items() if "New jobs take" in each["description"]] == [
        channel
    ]


def test_filters_are_those_of_the_code() -> None:
    known = DOCUMENTS["filtered"]["channels"]["directives"]["x-lucius-subscriptions"]
    assert [named["name"] for named in known] == [
        "{service}-default",
        "{service}-burst",
        "{service}-pool-{pool}-default",
        "{service}-pool-{pool}-burst",
        "lucius-unclaimed",
    ]
    assert known[0]["filters"] == {"step_type": ["{step_type}"], "pool": [""], "mode": ["DEFAULT"]}
    assert known[3]["filters"]["pool"] == ["{pool}"]


def test_a_prefix_is_that_of_all_topics() -> None:
    channels = asyncapi.document(prefix="test-")["channels"]
    assert all(each["address"].startswith("test-global-") for each in channels.values())


# -- what is on the bus ----------------------------------------------------------------------


class Recorded(Broker):
    """Keeps what is sent, with its topic."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, Message]] = []

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        self.sent += [(topic, each) for each in messages]
        await super().publish(topic, messages)

    async def send_notice(self, address: str, message: Message) -> None:
        self.sent.append((NOTICES.topic, message))
        await super().send_notice(address, message)


class Waiting(Service):
    """Works until its heartbeat is due, and on until its job is cancelled."""

    name = "embedding"
    step_types = ("EMBEDDING",)
    commit = False

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def execute(self, task: Task) -> Output:
        self.begun.set()
        task.report("page 3 of 9")
        await task.until_cancelled()
        task.check_cancelled()
        raise AssertionError("it was cancelled")


class Refusing(Service):
    name = "sis"
    step_types = ("SIS",)
    commit = False

    async def execute(self, task: Task) -> Output:
        raise FatalError("no such model")


def recorded() -> list[tuple[str, Message]]:
    """Jobs that succeed, fail, are cancelled and are given back: processes apart, as on a broker."""
    bus = Recorded()

    async def main(loop: VirtualLoop) -> None:
        waiting = Waiting()
        services = [Timed("ocr", 1.0), waiting, Refusing()]
        apart = Apart(loop, bus=bus, services=services, decorate=decorated)
        async with apart.running():
            owner = await apart.owner("owner")
            front = await apart.orchestrator("front")
            sending = asyncio.create_task(owner.parts.notices.run())
            try:
                await stories(apart, owner, front, waiting)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    run_virtually(main)
    return bus.sent


def decorated(body: Mapping[str, Any]) -> dict[str, Any]:
    url = "http://lucius/v1/callbacks/"
    kinds = ("ack", "result", "heartbeat", "release")
    return {
        **body,
        "callback_urls": {kind: url + kind for kind in kinds},
        "callback_token": "k1.x.y",
    }


async def stories(apart: Apart, owner: Process, front: Process, waiting: Waiting) -> None:
    done = await apart.submit(front, request_type="OCR", payload={}, number=1, mode="BURST",
                              doc_id="d", own_field=[1])  # fmt: skip
    assert (await apart.ended(owner, done)).state == "SUCCEEDED"
    failed = await apart.submit(front, request_type="SIS", payload={"prompt_set": ["?"]}, number=2)
    assert (await apart.ended(owner, failed)).state == "FAILED_FINAL"
    cancelled = await apart.submit(front, request_type="EMBEDDING", payload={}, number=3)
    await waiting.begun.wait()
    await asyncio.sleep(310)
    await owner.parts.engine.apply(cancelled, CancelRequested())
    await apart.ended(owner, cancelled)
    waiting.begun.clear()
    await apart.submit(front, request_type="EMBEDDING", payload={}, number=4)
    await waiting.begun.wait()


def test_what_is_on_the_bus_is_what_the_document_says() -> None:
    seen = set()
    for topic, message in recorded():
        kind = str(message.body["type"]).lower()
        name = "notice" if kind in ("cancel", "lease_ended") else kind
        (channel,) = channels_of(topic)
        assert name in DOCUMENT["channels"][channel]["messages"]
        body = json.loads(json.dumps(message.body, default=dict))
        assert misfits(MESSAGES[name]["payload"], body) == []
        assert misfits(MESSAGES[name]["headers"], dict(message.properties)) == []
        documented = DOCUMENT["components"]["schemas"]
        properties = documented[asyncapi.MESSAGES[name].properties.__name__]["properties"]
        assert message.properties.keys() <= properties.keys()
        seen.add(name)
    assert seen == set(MESSAGES)
