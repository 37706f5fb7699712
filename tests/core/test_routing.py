"""Routing: the lane of a key, the mode of a request, and the topics of a topology."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.core.errors import RequestError
from lucius.core.plan import DecisionSource, Mode
from lucius.core.routing import (
    LANES,
    choose_mode,
    directive_topics,
    every_directive_topic,
    lane_of,
    parse_mode,
    reply_topic,
    route,
)

DEFAULT = choose_mode(None, None, Mode.DEFAULT)
BURST = choose_mode(Mode.BURST, None, Mode.DEFAULT)


def test_tenant_a_is_on_lane_15() -> None:
    assert lane_of("tenant_a") == crc32(b"tenant_a") % 16 == 15
    assert route("tenant_a", None, DEFAULT).lane == 15


def test_the_default_mode_routes_by_tenant_alone() -> None:
    routing = route("tenant_a", "doc-1", DEFAULT)
    assert routing.routing_key_used == "tenant_a"
    assert routing.topic == "global-bus-p15"
    assert routing.reply_topic == "global-bus-replies-p15"


def test_burst_spreads_a_tenant_by_document_with_nothing_in_between() -> None:
    routing = route("tenant_a", "doc-1", BURST)
    assert routing.routing_key_used == "tenant_adoc-1"
    assert routing.lane == crc32(b"tenant_adoc-1") % 16


def test_a_deployment_may_set_a_delimiter() -> None:
    assert route("tenant_a", "doc-1", BURST, delimiter="|").routing_key_used == "tenant_a|doc-1"


def test_keys_are_trimmed_and_lowered() -> None:
    assert route("  Tenant_A ", None, DEFAULT) == route("tenant_a", None, DEFAULT)
    assert route("Tenant_A", " DOC-1 ", BURST).routing_key_used == "tenant_adoc-1"


@pytest.mark.parametrize("doc_id", [None, "", "  "])
def test_burst_without_a_document_is_refused_by_name(doc_id: str | None) -> None:
    with pytest.raises(RequestError) as refused:
        route("tenant_a", doc_id, BURST)
    assert refused.value.code == "DOC_ID_REQUIRED"
    assert refused.value.faults[0][0] == "/doc_id"


def test_the_request_comes_before_the_tenant_and_the_tenant_before_the_default() -> None:
    assert choose_mode(Mode.DEFAULT, Mode.BURST, Mode.BURST)[:2] == (
        Mode.DEFAULT,
        DecisionSource.REQUEST,
    )
    assert choose_mode(None, Mode.BURST, Mode.DEFAULT)[:2] == (
        Mode.BURST,
        DecisionSource.TENANT_CONFIG,
    )
    assert choose_mode(None, None, Mode.DEFAULT)[:2] == (
        Mode.DEFAULT,
        DecisionSource.GLOBAL_CONFIG,
    )


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("SAFE", Mode.DEFAULT),
        ("default", Mode.DEFAULT),
        (" Burst ", Mode.BURST),
        ("FAST", None),
        ("", None),
    ],
)
def test_spellings_of_a_mode(text: str, mode: Mode | None) -> None:
    assert parse_mode(text) is mode


def test_isolated_lanes_follow_the_tenant_and_have_topics_of_their_own() -> None:
    routing = route("tenant_a", "doc-1", BURST, topology="isolated")
    assert routing.lane == 15
    assert routing.topic == "global-burst-p15"
    assert route("tenant_a", None, DEFAULT, topology="isolated").topic == "global-default-p15"
    assert len(directive_topics("isolated")) == 2 * LANES


@pytest.mark.parametrize("topology", ["shared", "filtered"])
def test_other_topologies_share_one_grid(topology: str) -> None:
    topics = directive_topics(topology)
    assert topics == tuple(f"global-bus-p{lane}" for lane in range(16))
    assert route("tenant_a", "doc-1", BURST, topology=topology).topic in topics


def test_the_topics_of_some_lanes_are_those_of_every_topology() -> None:
    assert every_directive_topic([3]) == ("global-bus-p3", "global-default-p3", "global-burst-p3")
    assert len(every_directive_topic()) == 3 * LANES


@given(st.text())
def test_every_key_has_one_of_sixteen_lanes(key: str) -> None:
    key = key.encode("utf-8", "replace").decode()
    assert 0 <= lane_of(key) < LANES
    assert reply_topic(lane_of(key)).startswith("global-bus-replies-p")
