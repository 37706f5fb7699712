"""What each part of Azure carries is computed from one file, and the page says the same."""

from collections import Counter
from pathlib import Path

from lucius.app.adapters import open_config
from lucius.app.provisioning import subscriptions
from lucius.app.settings import load_settings
from lucius.core.routing import LANES as REAL_LANES
from lucius.core.routing import reply_topic
from lucius.ports.bus import NOTICES
from tools.scale import (
    LANES,
    Requests,
    first_full,
    read,
    rows,
)

ROOT = Path(__file__).parents[2]
JOB = Requests(
    storage_requests=10,
    tenant_partition_entities=4,
    lane_partition_entities=5,
    directives=1,
    replies=2,
    nudges=1,
    directive_bytes=1_000,
    reply_bytes=500,
    directive_subscriptions=3,
    reply_subscriptions=1,
)


def test_each_part_carries_its_limit_divided_by_what_a_job_asks_for() -> None:
    assert {row.part: (row.asks, row.jobs) for row in rows(JOB)} == {
        "Service Bus Standard": (14, 71),
        "Service Bus Premium, 1 unit": (5_000, 800),
        "Service Bus Premium, 16 units": (5_000, 12_800),
        "Tables, one tenant": (4, 500),
        "Tables, one lane": (5, 400),
        "Tables, 16 lanes": (5, 6_400),
        "Tables, the account": (10, 2_000),
    }
    assert first_full(rows(JOB)).part == "Service Bus Standard"


async def test_numbers_of_the_code_are_those_of_the_code() -> None:
    settings = load_settings({})
    config = await open_config(settings)
    asked = read().requests
    found = Counter(each.topic for each in subscriptions(config.catalog(), "shared"))
    replies = {reply_topic(lane) for lane in range(REAL_LANES)}
    assert {found[topic] for topic in replies} == {asked.reply_subscriptions}
    directives = {count for topic, count in found.items() if topic not in {*replies, NOTICES.topic}}
    assert directives == {asked.directive_subscriptions}
    assert LANES == REAL_LANES
