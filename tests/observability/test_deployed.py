"""The dashboard and the alert rules that are shipped speak only of what is measured."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.observability.promql import PROCESS, faults, known
from tests.observability.served import ended, serving, submitted
from tests.observability.world import Scripted
from tools.dashboard import WIDTH
from tools.metrics_page import instruments, metrics_page

DEPLOY = Path(__file__).parents[2] / "deploy"
OBSERVE = DEPLOY.parent / "docs/how-to/observe.md"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/lucius.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "alerts/lucius.yaml").read_text())["groups"]
    for rule in group["rules"]
]


def queries() -> Iterator[tuple[str, str]]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield f"panel {panel['title']} {target['refId']}", target["expr"]
    for rule in RULES:
        yield f"alert {rule['alert']}", rule["expr"]
    for query in re.findall(r"\| `([^`]*\(.*?lucius_[^`]*)`", OBSERVE.read_text()):
        yield f"documented {query[:30]}", query.replace(r"\|", "|")


@pytest.mark.parametrize("query", [pytest.param(query, id=name) for name, query in queries()])
def test_a_query_speaks_only_of_what_is_measured(query: str) -> None:
    assert list(faults(query)) == []


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("sum(lucius_job_total)", "there is no series lucius_job_total"),
        ("lucius_step_seconds", "there is no series lucius_step_seconds"),
        ("sum by (tenant) (lucius_inflight_jobs)", "nothing here has the label tenant"),
        ('lucius_backlog{state="held"}', "the metric has no label state"),
        ('lucius_backlog{stage=~"held|queued"}', "stage is never queued"),
        ("avg(lucius_dlq_jobs)", "there is no series avg"),
        ("vector(1)", "there is no series vector"),
    ],
)
def test_a_query_that_speaks_of_something_else_is_found(query: str, fault: str) -> None:
    assert fault in faults(query)


def test_every_metric_has_its_place_on_the_dashboard() -> None:
    shown = " ".join(query for name, query in queries() if name.startswith("panel"))
    missing = {
        each.name
        for each in instruments()
        if not re.search(rf"\b{each.name}(_bucket|_sum)?\b", shown)
        and each.name != "lucius_build_info"
    }
    assert missing == set()


def test_panels_do_not_overlap_and_fit_the_page() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not mine & cells
        cells |= mine
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in RULES])
def test_an_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    assert len(rule["annotations"]["runbook"]) > 100
    named = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
    assert all(re.search(rf"by \([^)]*\b{label}\b", rule["expr"]) for label in named)


def test_runbooks_name_commands_metrics_and_alerts_that_exist() -> None:
    from lucius.cli.main import main

    texts = " ".join(rule["annotations"]["runbook"] for rule in RULES)
    series = {each.name for each in instruments()} | set(known())
    assert set(re.findall(r"\blucius_[a-z_]+", texts)) <= series
    assert set(re.findall(r"\bLucius[A-Z]\w+", texts)) <= {rule["alert"] for rule in RULES}
    for command in re.findall(r"`lucius ([a-z ]+)`", texts):
        found: Any = main
        for word in command.split():
            found = found.commands[word]


async def test_what_is_scraped_is_what_is_declared(tmp_path: Path) -> None:
    async with serving(tmp_path, [Scripted()]) as (runtime, client):
        await ended(client, await submitted(client))
        await client.get("/metrics")
        text = generate_latest(runtime.registry).decode()
    families = list(text_string_to_metric_families(text))
    scraped = {
        sample.name: set(sample.labels)
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    declared = known()
    for name, labels in scraped.items():
        if not name.startswith("process_"):
            assert labels == set(declared[name]), name
    assert set(PROCESS) <= set(scraped)
    page = metrics_page()
    assert all(f"| `{each.name}` | {each.kind} |" in page for each in instruments())
