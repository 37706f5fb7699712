"""Tokens at the Service Bus stand-in: a good one opens what it names until it expires, others nothing."""

import hmac
from base64 import b64encode
from time import time
from typing import Any
from urllib.parse import quote_plus

import pytest
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from lucius.adapters.buses.service_bus.administration import Plan
from lucius.adapters.buses.service_bus.connecting import open_administrator
from lucius.core.errors import BusUnavailableError
from lucius.dev.standins.service_bus import Broker, StandIn
from lucius.dev.standins.service_bus.broker import Access, Grant, Policy
from lucius.dev.standins.service_bus.codec import Attach, Begin, Described, Detach, ULong
from lucius.dev.standins.service_bus.links import OutgoingLink
from lucius.dev.standins.service_bus.session import Session
from lucius.ports.bus import Subscription
from tests.standins.service_bus import connected, send

KEY = "a key of the test"
HOST = "sb://127.0.0.1:5672"
NOON = 1_800_000_000
AT_NOON = Access({"p": Policy(KEY)}, now=lambda: NOON)


def token(
    resource: str = f"{HOST}/t", policy: str = "p", key: str = KEY, after: int = 60, at: int = NOON
) -> str:
    """As the SDK makes it."""
    named, until = quote_plus(resource), at + after
    signed = hmac.new(key.encode(), f"{named}\n{until}".encode(), "sha256").digest()
    signature = quote_plus(b64encode(signed).decode())
    return f"SharedAccessSignature sr={named}&sig={signature}&se={until}&skn={policy}"


def test_a_good_token_grants_its_resource_until_it_expires() -> None:
    grant = AT_NOON.granted(token(f"{HOST}/T/Subscriptions/w"))
    assert grant is not None
    assert (grant.path, grant.expires_at) == ("t/subscriptions/w", NOON + 60)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "SharedAccessSignature ",
        token(key="another"),
        token(policy="another"),
        token(after=-1),
        token(after=0),
        token().replace(f"se={NOON + 60}", f"se={NOON + 9999}"),
        token().replace("%2Ft&", "%2Fu&"),
        token().replace("SharedAccessSignature", "Bearer"),
        token(""),
    ],
    ids=[
        "none",
        "empty",
        "another key",
        "another policy",
        "expired",
        "expires now",
        "longer than signed",
        "for more than signed",
        "another scheme",
        "for nothing",
    ],
)
def test_any_other_token_grants_nothing(bad: str) -> None:
    assert AT_NOON.granted(bad) is None


@pytest.mark.parametrize(
    ("path", "address", "covered"),
    [
        ("", "t/Subscriptions/w", True),
        ("t", "T", True),
        ("t", "t/Subscriptions/w/$management", True),
        ("t", "tt", False),
        ("t/subscriptions/w", "t", False),
        ("t/subscriptions/w", "t/Subscriptions/w2", False),
    ],
)
def test_a_token_is_for_its_path_and_below(path: str, address: str, covered: bool) -> None:
    assert Grant(frozenset(), path).covers(address) is covered


@pytest.mark.parametrize("key", ["c3RhbmQtaW4=", "", "x"], ids=["once fixed", "none", "wrong"])
async def test_only_the_key_of_this_stand_in_opens_it(key: str) -> None:
    async with connected() as (stand_in, owner):
        await send(owner, "1")
        wrong = stand_in.connection_as("stand-in", key or "-")
        async with ServiceBusClient.from_connection_string(wrong, retry_total=0) as client:
            with pytest.raises(ServiceBusAuthenticationError):
                await send(client, "2")
            with pytest.raises(ServiceBusAuthenticationError):
                async with client.get_subscription_receiver("t", "w"):
                    pass
        administrator = open_administrator(wrong, Plan())
        with pytest.raises(BusUnavailableError, match="right Manage"):
            await administrator.provision([Subscription("t", "w")])
        await administrator.close()


async def test_two_stand_ins_have_different_keys() -> None:
    async with StandIn() as one, StandIn() as other:
        keys = {each.connection_string.partition("SharedAccessKey=")[2] for each in (one, other)}
        assert len(keys) == 2


async def test_an_hour_later_the_token_of_the_sdk_opens_nothing() -> None:
    late = Access({"p": Policy(KEY)}, now=lambda: time() + 3601)
    async with StandIn(Broker(late)) as stand_in:
        stand_in.broker.create_topic("t")
        text = stand_in.connection_string
        async with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            with pytest.raises(ServiceBusAuthenticationError):
                await send(client, "1")


@pytest.mark.parametrize(("path", "taken"), [("t", True), ("", True), ("other", False)])
async def test_a_token_of_one_topic_sends_to_no_other(path: str, taken: bool) -> None:
    async with StandIn(Broker(Access({"p": Policy(KEY)}))) as stand_in:
        stand_in.broker.create_topic("t")
        place = f"sb://127.0.0.1:{stand_in.port}"
        signed = token(f"{place}/{path}", at=int(time()))
        text = f"Endpoint={place};SharedAccessSignature={signed};UseDevelopmentEmulator=true;"
        async with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            if taken:
                await send(client, "1")
            else:
                with pytest.raises(ServiceBusAuthenticationError):
                    await send(client, "1")


class Speaker:
    """A connection that has the grants it is given, and keeps what a session says."""

    def __init__(self, *grants: Grant) -> None:
        self.broker = Broker(AT_NOON)
        self.broker.create_topic("t")
        self.broker.subscribe("t", "w")
        self.max_frame_size = 65536
        self.answers: dict[str, OutgoingLink] = {}
        self.grants = {grant.path: grant for grant in grants}
        self.said: list[Any] = []

    def say(self, channel: int, said: Any, payload: bytes = b"") -> None:
        self.said.append(said)


GOOD = AT_NOON.granted(token(HOST + "/"))
OLD = Grant(frozenset({"Send", "Listen"}), "", NOON)
ADDRESSES = ["t", "t/Subscriptions/w", "t/$management", "t/Subscriptions/w/$management"]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("is_receiver", [True, False], ids=["receiver", "sender"])
def test_without_a_token_no_link_opens_but_the_one_that_takes_tokens(
    address: str, is_receiver: bool
) -> None:
    """Messages can be read at `$management` too."""
    for speaker in (Speaker(), Speaker(OLD)):
        session = Session(speaker, 0, Begin())
        place = Described(ULong(0x28), [address])
        session.take(Attach("link", 1, is_receiver, source=place, target=place), b"")
        refused = speaker.said[-1]
        assert isinstance(refused, Detach)
        assert "unauthorized-access" in str(refused)
        assert speaker.answers == {}
        session.take(
            Attach("c", 2, True, source=Described(ULong(0x28), ["$cbs"]), target=None), b""
        )
        assert not isinstance(speaker.said[-1], Detach)


@pytest.mark.parametrize(
    ("address", "is_receiver"),
    [("t", False), ("t/Subscriptions/w", True), *((each, True) for each in ADDRESSES[2:])],
)
def test_with_a_token_they_open(address: str, is_receiver: bool) -> None:
    assert GOOD is not None
    speaker = Speaker(GOOD)
    place = Described(ULong(0x28), [address])
    Session(speaker, 0, Begin()).take(
        Attach("link", 1, is_receiver, source=place, target=place), b""
    )
    assert not any(isinstance(said, Detach) for said in speaker.said)
