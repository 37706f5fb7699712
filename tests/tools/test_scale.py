"""What each part of Azure carries is computed from one file, and the page says the same."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lucius.bootstrap.adapters.configs import open_config
from lucius.bootstrap.provisioning import subscriptions
from lucius.configs.app_configuration import AppConfiguration
from lucius.core.routing import LANES as REAL_LANES
from lucius.core.routing import reply_topic
from lucius.ports.bus import NOTICES
from lucius.settings import load_settings
from tools.scale import (
    LANES,
    REFRESH_SECONDS,
    REQUESTS,
    Requests,
    RequestsError,
    first_full,
    main,
    processes,
    read,
    rows,
)
from tools.scale_page import scale_page

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


def test_another_part_is_full_first_when_a_job_asks_more_of_it() -> None:
    greedy = replace(JOB, storage_requests=1_000)
    assert first_full(rows(greedy)).part == "Tables, the account"


def test_a_nudge_and_a_service_more_cost_credits() -> None:
    assert replace(JOB, nudges=2).credits == JOB.credits + 3
    assert replace(JOB, directive_subscriptions=4).credits == JOB.credits + 1


def test_processes_share_the_requests_of_a_store() -> None:
    assert [processes(seconds) for seconds in (5, REFRESH_SECONDS)] == [41, 250]


def test_the_page_has_a_line_for_each_row_and_says_where_each_number_comes_from() -> None:
    page = (ROOT / "docs/reference/scale.md").read_text()
    assert page == scale_page(), "run `make docs`"
    counted = read()
    assert all(f" | {basis} |" in page for basis in counted.basis.values())
    for row in rows(counted.requests):
        assert f"| {row.part} | " in page
        assert f"| {row.asks:,} | {row.jobs:,} |" in page


def test_every_number_is_one_of_a_test() -> None:
    for name, basis in read().basis.items():
        found = re.match(r"(?:counted|measured) (?:in (tests/\S+\.py)|there)\b", basis)
        assert found is not None, name
        assert found[1] is None or (ROOT / found[1]).exists(), name


def test_the_script_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    for row in rows(read().requests):
        assert f"{row.jobs:,} jobs/s  {row.part}" in said


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
    assert AppConfiguration.pause.total_seconds() == REFRESH_SECONDS


@pytest.mark.parametrize(
    ("name", "entry", "fault"),
    [
        ("nudges", {"basis": "x"}, "nudges must be a whole number from 1, not None"),
        (
            "storage_requests",
            {"number": 0, "basis": "x"},
            "storage_requests must be a whole number",
        ),
        (
            "replies",
            {"number": "six", "basis": "x"},
            "replies must be a whole number from 1, not 'six'",
        ),
        ("replies", {"number": 6}, "replies has no basis: say how it was counted"),
        ("requests", {"number": 3, "basis": "x"}, "requests is not known"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    tmp_path: Path, name: str, entry: dict[str, Any], fault: str
) -> None:
    given = json.loads(REQUESTS.read_text())
    given["numbers"][name] = entry
    (tmp_path / "wrong.json").write_text(json.dumps(given))
    with pytest.raises(RequestsError, match=fault):
        read(tmp_path / "wrong.json")


def test_a_missing_number_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(RequestsError, match="storage_requests is missing"):
        read(tmp_path / "empty.json")
