"""Webhooks lead outside or nowhere: refused as written, and again once the name is resolved."""

import asyncio
from base64 import b64encode
from datetime import timedelta
from secrets import token_bytes
from typing import Any

import httpcore
import pytest

from lucius.core.addresses import is_public
from lucius.core.errors import EffectRefusedError
from lucius.core.references import webhook_fault
from lucius.operations.webhooks import WebhookFailedError, WebhookRefusedError, Webhooks
from lucius.system.outside import (
    ADDRESSES,
    AddressRefusedError,
    GuardedBackend,
    guarded_transport,
    resolved,
)
from tests.api.world import ENVELOPE, START, World
from tests.security.receiver import Detour, Names, names

INSIDE = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::808:808",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "2606:4700::1%eth0",
]
SECRET = "whsec_" + b64encode(token_bytes(32)).decode()
OUTSIDE = ["8.8.8.8", "93.184.215.14", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8"]
OUTSIDE += ["64:ff9b::808:808"]
NO_ADDRESS = ["", "x", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "1.2.3.4.5", "[::1]"]


@pytest.mark.parametrize("address", INSIDE + NO_ADDRESS)
def test_what_lies_inside_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", OUTSIDE)
def test_what_lies_outside_is_public(address: str) -> None:
    assert is_public(address)


REFUSED_URLS = [
    *(f"https://[{a}]/" if ":" in a else f"https://{a}/" for a in INSIDE if "%" not in a),
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://0177.0.0.1/",
    "https://127.0.0.1./",
    "https://localhost/",
    "https://LOCALHOST:8443/",
    "https://foo.localhost/",
    "https://metadata/",
    "https://metadata.google.internal/computeMetadata/v1/",
    "https://printer.local/",
    "https://intranet/",
    "https://１２７.0.0.1/",
    "https://ⓛocalhost/",
    "https://exämple.com/",
    "https://127%2e0.0.1/",
    "https://a_b@127.0.0.1/",
    "https://client.example@127.0.0.1/",
    "https://127.0.0.1#@client.example/",
    "https://127.0.0.1\\@client.example/",
    "https://client.example:22/",
    "https://client.example:25/",
    "https://client.example:0/",
    "https://client.example:99999/",
    "https://.example/",
    "https://a..example/",
    "https://-a.example/",
    "http://client.example/",
    "file:///etc/passwd",
    "gopher://client.example/",
    "https:///x",
    "https://",
]
TAKEN_URLS = [
    "https://client.example/hook?x=1",
    "https://Client.Example:8443/",
    "https://client.example:443/",
    "https://xn--exmple-cua.com/",
    "https://8.8.8.8/",
    "https://[2606:4700::1111]/",
]


@pytest.mark.parametrize("url", REFUSED_URLS)
def test_ingress_refuses_what_is_inside_as_it_is_written(url: str) -> None:
    assert webhook_fault(url, ("https",), ()) is not None


@pytest.mark.parametrize("url", TAKEN_URLS)
def test_ingress_takes_public_hosts(url: str) -> None:
    assert webhook_fault(url, ("https",), ()) is None


async def notify(url: str, backend: httpcore.AsyncNetworkBackend, **more: Any) -> bool:
    world = World()
    made = await world.submit(ENVELOPE)
    job = world.jobs[made.job_id]
    hooks = Webhooks(SECRET, now=lambda: START, transport=guarded_transport(backend), **more)
    try:
        return await hooks.notify(job, "notify-0", url)
    finally:
        await hooks.close()


@pytest.mark.parametrize("url", REFUSED_URLS)
async def test_delivery_refuses_it_too_and_looks_nothing_up(url: str) -> None:
    detour, table = Detour({}), names({})
    with pytest.raises(WebhookRefusedError):
        await notify(url, GuardedBackend(detour, table))
    assert (detour.dialled, table.asked) == ([], 0)


@pytest.mark.parametrize("address", INSIDE)
async def test_a_name_that_leads_inside_is_refused_for_good(address: str) -> None:
    detour = Detour({})
    table = names({"client.example": [address]})
    with pytest.raises(AddressRefusedError):
        await notify("https://client.example/", GuardedBackend(detour, table))
    assert detour.dialled == []
    assert issubclass(AddressRefusedError, EffectRefusedError)


async def test_one_address_inside_among_many_is_enough_to_refuse() -> None:
    detour = Detour({})
    table = names({"client.example": ["93.184.215.14", "10.0.0.1"]})
    with pytest.raises(AddressRefusedError):
        await notify("https://client.example/", GuardedBackend(detour, table))
    assert detour.dialled == []


async def test_a_name_that_answers_differently_later_is_asked_once() -> None:
    """Rebinding: what was checked is what is dialled, as an address and never again as a name."""
    detour = Detour({})
    table = Names({"client.example": ["93.184.215.14"]}, later=["127.0.0.1"])
    with pytest.raises(WebhookFailedError):
        await notify("https://client.example/", GuardedBackend(detour, table))
    assert (detour.dialled, table.asked) == (["93.184.215.14"], 1)


async def test_every_address_is_tried_up_to_a_bound() -> None:
    detour = Detour({})
    table = names({"client.example": [f"93.184.215.{n}" for n in range(9)]})
    with pytest.raises(WebhookFailedError):
        await notify("https://client.example/", GuardedBackend(detour, table))
    assert len(detour.dialled) == ADDRESSES


async def test_a_name_that_cannot_be_resolved_is_tried_again_later() -> None:
    with pytest.raises(WebhookFailedError, match=r"client\.example cannot be resolved"):
        await notify("https://client.example/", GuardedBackend(Detour({}), names({})))


NAMED = "hooks.corp"


@pytest.mark.parametrize("address", ["10.1.2.3", "172.20.0.9", "192.168.4.4", "fd00::7"])
async def test_a_host_that_an_operator_has_named_may_be_in_a_private_network(address: str) -> None:
    url = f"https://{NAMED}/"
    assert webhook_fault(url, ("https",), ()) is not None
    assert webhook_fault(url, ("https",), (NAMED,)) is None
    detour, table = Detour({}), names({NAMED: [address]})
    with pytest.raises(WebhookFailedError):  # nobody listens there, and it was dialled
        await notify(url, GuardedBackend(detour, table, (NAMED,)), hosts=(NAMED,))
    assert detour.dialled == [address]
    with pytest.raises(AddressRefusedError):
        await notify(
            "https://client.example/",
            GuardedBackend(detour, names({"client.example": [address]}), (NAMED,)),
        )


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0"])
async def test_no_name_opens_this_machine_or_its_link(address: str) -> None:
    detour, table = Detour({}), names({NAMED: [address]})
    with pytest.raises(AddressRefusedError):
        await notify(f"https://{NAMED}/", GuardedBackend(detour, table, (NAMED,)), hosts=(NAMED,))
    assert detour.dialled == []


def test_a_glob_opens_no_private_network() -> None:
    assert webhook_fault("https://10.1.2.3/", ("https",), ("10.*",)) is not None
    assert webhook_fault("https://10.1.2.3/", ("https",), ("10.1.2.3",)) is None


async def test_the_real_resolver_finds_loopback_and_it_is_refused() -> None:
    assert await resolved("localhost", 443)
    with pytest.raises(AddressRefusedError):
        await GuardedBackend(Detour({})).connect_tcp("localhost", 443)


async def test_a_local_socket_is_never_a_webhook() -> None:
    with pytest.raises(AddressRefusedError):
        await GuardedBackend(Detour({})).connect_unix_socket("/run/docker.sock")


async def test_only_allowed_hosts_are_called() -> None:
    backend = GuardedBackend(Detour({}), names({}))
    allowed = {"hosts": ("*.Client.example",)}
    with pytest.raises(WebhookFailedError, match=r"a\.client\.example cannot be resolved"):
        await notify("https://a.client.example/", backend, **allowed)
    for url in ("https://client.example/", "https://a.client.example.evil.test/"):
        with pytest.raises(WebhookRefusedError):
            await notify(url, backend, **allowed)


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    detour = Detour({})
    table = names({"client.example": ["93.184.215.14"]})
    with pytest.raises(WebhookFailedError):
        await notify("https://client.example/", GuardedBackend(detour, table))
    assert detour.dialled == ["93.184.215.14"]


async def test_waiting_for_a_name_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucius.operations.webhooks.LONGEST", timedelta(milliseconds=1))
    never = asyncio.Event()

    async def resolve(host: str, port: int) -> list[str]:
        await never.wait()
        return []

    with pytest.raises(WebhookFailedError, match=r"no answer within 0\.001 s"):
        await notify("https://client.example/", GuardedBackend(Detour({}), resolve))
