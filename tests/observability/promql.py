"""As much of PromQL as it takes to see whether a query speaks of metrics and labels that exist."""

import re
from collections.abc import Iterator, Mapping

from lucius.core.effects import Outcome
from lucius.core.job import TERMINAL_JOB, AbortReason
from lucius.engine.metrics import CAUSES, REPLY_KINDS, TRACKS
from lucius.engine.observer import Incident
from lucius.engine.temporal.metrics import (
    BROKEN,
    CLOSED,
    DELIVERED,
    STARTED,
    UNANSWERED,
    UNREACHED,
)
from tools.metrics_page import instruments

FUNCTIONS = ("sum", "min", "max", "topk", "rate", "increase", "delta", "absent")
WORDS = frozenset((*FUNCTIONS, "histogram_quantile", "by", "and", "or", "unless"))
SCRAPED = frozenset(("instance", "job"))
"""Labels that Prometheus adds to every series."""
PROCESS = ("process_cpu_seconds_total", "process_resident_memory_bytes")
TOLD = (STARTED, DELIVERED, CLOSED, UNREACHED, UNANSWERED)
"""What came of a start, a signal or a question."""
VALUES: Mapping[str, frozenset[str]] = {
    "state": frozenset((*(state.value for state in TERMINAL_JOB), BROKEN)),
    "reason": frozenset(reason.value for reason in AbortReason),
    "outcome": frozenset((*(outcome.value for outcome in Outcome), *TOLD)),
    "kind": frozenset(REPLY_KINDS.values()),
    "track": frozenset(TRACKS.values()),
    "stage": frozenset(("held", "released", "in_progress")),
    "incident": frozenset(incident.value for incident in Incident),
    "cause": frozenset(cause for causes in CAUSES.values() for cause in causes),
    "sla": frozenset(("job_sla", "pause_sla")),
    "effect": frozenset(("notify_client", "link_redrive")),
    "performed": frozenset(("true", "false")),
    "status": frozenset(str(status) for status in range(200, 600)),
    "dependency": frozenset(("ledger", "bus", "reconciler")),
}

_SELECTOR = re.compile(r"([a-z_][a-z0-9_]*)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)(=~|!~|!=|=)"([^"]*)"')
_BY = re.compile(r"\bby\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]")


def known() -> dict[str, frozenset[str]]:
    """Every series there is, by its labels."""
    found: dict[str, frozenset[str]] = {name: frozenset() for name in PROCESS}
    for each in instruments():
        labels = frozenset(each.labels)
        if each.kind == "histogram":
            found[f"{each.name}_bucket"] = labels | {"le"}
            found[f"{each.name}_sum"] = found[f"{each.name}_count"] = labels
        else:
            found[each.name] = labels
    return found


def faults(query: str) -> Iterator[str]:
    """What a query says that is not so."""
    series = known()
    grouped = {label.strip() for found in _BY.findall(query) for label in found.split(",")}
    plain = _RANGE.sub(" ", _BY.sub(" ", query))
    spoken = [match for match in _SELECTOR.finditer(plain) if match[1] not in WORDS]
    available = SCRAPED | {label for m in spoken for label in series.get(m[1], ())}
    if not spoken:
        yield "names no metric"
    for match in spoken:
        if match[1] not in series:
            yield f"there is no series {match[1]}"
        yield from _matcher_faults(match[2] or "", series.get(match[1], frozenset()))
    for label in grouped - available:
        yield f"nothing here has the label {label}"


def _matcher_faults(matchers: str, labels: frozenset[str]) -> Iterator[str]:
    for label, _, value in _MATCHER.findall(matchers):
        if label not in labels | SCRAPED:
            yield f"the metric has no label {label}"
            continue
        for word in value.split("|"):
            values = VALUES.get(label)
            if values is not None and not any(re.fullmatch(word, each) for each in values):
                yield f"{label} is never {word}"
