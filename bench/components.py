"""Which part of the server a sampled stack belongs to: a table, and the sums over a profile.

A sample goes to the innermost frame that the table names. What the table does not know is not hidden in
its caller: it is `other`, with its file, until somebody adds it here.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

WAITING: Final = "waiting"
OTHER: Final = "other"
LOOP: Final = "event loop"
_CALLER: Final = "its caller"

COMPONENTS: Final[dict[str, tuple[str, ...]]] = {
    "HTTP protocol": (
        *("uvicorn/", "httptools/", "starlette/"),
        *("lucius/server/", "lucius/bootstrap/serve"),
        *("lucius/api/app.py", "lucius/api/routing.py"),
    ),
    "API routes and views": ("lucius/api/", "lucius/gateway/"),
    "ingress": (
        *("lucius/admission/ingress", "lucius/admission/envelope", "lucius/admission/rules"),
        *("lucius/admission/sizes", "lucius/admission/faults", "lucius/configs/"),
        *("lucius/core/routing", "lucius/core/references", "lucius/core/idempotency"),
    ),
    "reading replies": ("lucius/engines/outbox/replies", "lucius/core/wire.py:parse_reply"),
    "engine around a decision": (
        *(
            "lucius/engines/outbox/engine.py",
            "lucius/engines/outbox/cache",
            "lucius/engines/outbox/inbox",
            "lucius/engines/outbox/loop",
            "lucius/engines/outbox/clock",
            "lucius/engines/outbox/tasks",
        ),
    ),
    "deciding": (
        *("lucius/core/decide", "lucius/core/callbacks", "lucius/core/turn"),
        *("lucius/core/drafts", "lucius/core/dispatch", "lucius/core/leases"),
        *("lucius/core/sequence", "lucius/core/ticks", "lucius/core/control"),
        *("lucius/core/retry", "lucius/core/table", "lucius/core/audit"),
        *("lucius/engines/outbox/loop.py:EngineLoop._add", "lucius/engines/outbox/loop.py:_Save"),
    ),
    "releasing steps": (
        *(
            "lucius/engines/outbox/releases",
            "lucius/engines/outbox/window",
            "lucius/engines/outbox/visits",
        ),
        "lucius/engines/outbox/loop.py:EngineLoop._released_at_once",
    ),
    "encoding and queueing saves": (
        "lucius/ledgers/sqlite/ledger.py",
        *("lucius/ledgers/sqlite/batch.py:Save", "lucius/ledgers/sqlite/batch.py:Create"),
        "lucius/ledgers/sqlite/writer.py:Writer.submit",
        "lucius/ledgers/sqlite/writer.py:Writer._wait_for_more",
        "lucius/ledgers/sqlite/writer.py:Writer._hand_over",
    ),
    "writer: staging rows": (
        *("lucius/ledgers/sqlite/batch", "lucius/ledgers/sqlite/memory"),
        "lucius/ledgers/sqlite/rows.py:Rows._portions",
        "lucius/ledgers/sqlite/rows.py:_statement",
    ),
    "writer: SQLite statements": ("lucius/ledgers/sqlite/rows",),
    "writer: commit and fsync": ("lucius/ledgers/sqlite/writer",),
    "after the commit": (
        "lucius/ledgers/sqlite/writer.py:Writer._answer",
        "lucius/ledgers/sqlite/writer.py:Writer._resolve",
        "lucius/engines/outbox/loop.py:EngineLoop._saved",
        "lucius/engines/outbox/loop.py:EngineLoop._committed",
        "lucius/engines/outbox/loop.py:EngineLoop._answer",
        "lucius/engines/outbox/loop.py:OwedEffects",
        "lucius/engines/outbox/ticks.py:Alarm",
        "lucius/engines/outbox/waits",
    ),
    "metrics, logs, traces": (
        *(
            "lucius/engines/outbox/metric",
            "lucius/telemetry/instruments",
        ),
        *("lucius/engines/outbox/observer", "lucius/telemetry/", "lucius/api/metrics"),
        *("lucius/api/tracing", "opentelemetry/", "prometheus_client/", "logging/"),
    ),
    "what is known beside the jobs": ("lucius/insight/", "lucius/core/fingerprint"),
    "dispatching": ("lucius/engines/outbox/dispatcher", "lucius/engines/outbox/publish_now"),
    "bus": ("lucius/buses/",),
    "link to the services": ("lucius/buses/linked", "lucius/buses/packets"),
    "kit and services": ("lucius/platform/", "lucius/workspaces/", "bench/echo"),
    "reading the ledger": ("lucius/ledgers/sqlite/queries", "lucius/ledgers/sqlite/lists"),
    LOOP: ("asyncio/runners", "asyncio/base_events", "uvloop/"),
    _CALLER: (
        *("lucius/core/job", "lucius/core/plan", "lucius/core/states", "lucius/core/effects"),
        *("lucius/core/inputs", "lucius/core/record", "lucius/core/ids", "lucius/core/wire"),
        "lucius/core/credentials",
        *("lucius/core/json_faults", "lucius/core/limits", "lucius/core/errors"),
        *("lucius/ports/", "lucius/ledgers/stored/job_codec", "lucius/ledgers/stored/plan_codec"),
        *(
            "lucius/ledgers/stored/event_codec",
            "lucius/ledgers/stored/json_form",
            "lucius/ledgers/rules",
        ),
        *("lucius/api/tokens", "lucius/bootstrap/reply_tokens"),
    ),
    OTHER: ("lucius/",),
}
"""Beginnings of `file:function`; of those that fit, the longest counts.

What several components use counts for its caller, and so does any library that is not listed.
"""

WAITS: Final = (
    "lucius/ledgers/sqlite/writer.py:Writer._take",
    "concurrent/futures/thread.py:_worker",
    "threading.py:Condition.wait",
    "selectors.py:",
)
"""Innermost frames of threads with nothing to do. The sampler leaves out threads that sleep, but sees some
that are just going to; it cannot tell this for uvloop, whose turns and waits are one frame (`LOOP`)."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Samples by component, without those that wait; and the files behind `other`."""

    counts: Counter[str]
    waiting: int
    unknown: Counter[str]

    def rows(self, cpu_ms_per_job: float) -> list[dict[str, Any]]:
        """Each component's share, and what it is of the CPU that a job was measured to take."""
        busy = self.counts.total()
        return [
            {
                "component": name,
                "share": n / busy,
                "cpu_us_per_job": n / busy * cpu_ms_per_job * 1e3,
            }
            for name, n in self.counts.most_common()
        ]


def profile(lines: Iterable[str]) -> Profile:
    """Sum up the lines of `py-spy record -f raw`: frames from the outermost on, then a count."""
    counts, unknown = Counter[str](), Counter[str]()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        component, file = _component(stack)
        counts[component] += int(count)
        if component == OTHER:
            unknown[file] += int(count)
    waiting = counts.pop(WAITING, 0)
    return Profile(counts, waiting, unknown)


def _component(stack: str) -> tuple[str, str]:
    """The component of a stack, and the file that decided it."""
    places = [_place(frame) for frame in reversed(stack.split(";"))]
    if places[0].startswith(WAITS):
        return WAITING, ""
    for place in places:
        name = _named(place)
        if name != _CALLER:
            return name, place.partition(":")[0]
    return OTHER, places[0].partition(":")[0]


@cache
def _place(frame: str) -> str:
    """`Rows.run (lucius/ledgers/sqlite/rows.py:29)` as `lucius/ledgers/sqlite/rows.py:Rows.run`."""
    function, _, where = frame.rpartition(" (")
    return f"{where.rstrip(')').rpartition(':')[0]}:{function}"


@cache
def _named(place: str) -> str:
    fitting = ((len(start), name) for start, name in _STARTS if place.startswith(start))
    return max(fitting, default=(0, _CALLER))[1]


_STARTS: Final = [(start, name) for name, starts in COMPONENTS.items() for start in starts]
