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


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in RULES])
def test_an_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    assert len(rule["annotations"]["runbook"]) > 100
    named = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
    assert all(re.search(rf"by \([^)]*\b{label}\b", rule["expr"]) for label in named)


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
