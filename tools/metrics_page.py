"""The reference page of all metrics, from the instruments that the code declares."""

from collections.abc import Sequence
from typing import Final

from lucius.adapters.ledgers.azure.tables import TableInstruments
from lucius.engine.metrics import EngineInstruments
from lucius.engine.temporal.metrics import TemporalInstruments
from lucius.http.limits import ConnectionInstruments
from lucius.http.routing import HttpInstruments
from lucius.operations.webhooks import WebhookInstruments
from lucius.platform.bodies import ServiceInstruments
from lucius.system.instruments import Instrument

_HEAD: Final = """# Metrics

Generated from `src/lucius/engine/metrics.py`, `src/lucius/engine/temporal/metrics.py`,
`src/lucius/http/routing.py`, `src/lucius/http/limits.py`, `src/lucius/platform/bodies.py` and
`src/lucius/adapters/ledgers/azure/tables.py`. Do not edit.

`GET /metrics` answers in Prometheus' text format, also during an outage. Counters that have not moved yet
are shown as 0 where their labels are known beforehand. Labels come from the configuration or closed sets;
`tenant_id`, the one exception, is capped. A histogram has the series `_bucket`, `_sum` and `_count`.
[Observe LUCIUS](../how-to/observe.md) says how to use them.
"""
_COLUMNS: Final = "| metric | kind | labels | what it says |\n|---|---|---|---|\n"
_TAIL: Final = """
Besides these there are the usual `process_*` metrics: CPU, memory, file descriptors, start time.
"""


def instruments() -> list[Instrument]:
    made = (
        EngineInstruments(),
        TemporalInstruments(),
        HttpInstruments(),
        ConnectionInstruments(),
        TableInstruments(),
        ServiceInstruments(),
        WebhookInstruments(),
    )
    return [instrument for each in made for instrument in each.all()]


def metrics_page() -> str:
    engine = _section(
        "Jobs, steps and dispatch",
        [*EngineInstruments().all(), *WebhookInstruments().all()],
    )
    temporal = _section(
        "Jobs on Temporal (orchestrators start, invokers signal, workers ask)",
        list(TemporalInstruments().all()),
    )
    http = _section("HTTP", [*HttpInstruments().all(), *ConnectionInstruments().all()])
    tables = _section("Azure Table Storage", list(TableInstruments().all()))
    services = _section(
        "Services (`lucius up`, and `lucius service run --health-port`)",
        list(ServiceInstruments().all()),
    )
    return _HEAD + engine + temporal + http + tables + services + _TAIL


def _section(title: str, rows: Sequence[Instrument]) -> str:
    return f"\n## {title}\n\n{_COLUMNS}" + "".join(_row(row) for row in rows)


def _row(row: Instrument) -> str:
    labels = ", ".join(f"`{label}`" for label in row.labels)
    return f"| `{row.name}` | {row.kind} | {labels} | {row.about} |\n"
