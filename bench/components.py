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
        *(
            *("lucius/http/limits", "lucius/http/owner", "lucius/http/server"),
            "lucius/app/processes",
        ),
        *("lucius/http/app.py", "lucius/http/routing.py"),
    ),
    "API routes and views": ("lucius/http/", "lucius/engine/gateway"),
    "ingress": (
        *(
            "lucius/engine/admission/ingress",
            "lucius/engine/admission/envelope",
            "lucius/engine/admission/rules",
        ),
        *(
            "lucius/engine/admission/rules",
            "lucius/engine/admission/faults",
            "lucius/adapters/configs/",
        ),
        *("lucius/core/routing", "lucius/core/references", "lucius/core/idempotency"),
    ),
    "reading replies": ("lucius/engine/replies", "lucius/core/wire.py:parse_reply"),
    "engine around a decision": (
        *(
            "lucius/engine/outbox.py",
            "lucius/engine/cache",
            "lucius/engine/inbox",
            "lucius/engine/loop",
            "lucius/engine/clock",
            "lucius/engine/clock",
        ),
    ),
    "deciding": (
        *("lucius/core/decide", "lucius/core/callbacks", "lucius/core/turn"),
        *("lucius/core/turn", "lucius/core/decide", "lucius/core/callbacks"),
        *("lucius/core/sequence", "lucius/core/ticks", "lucius/core/control"),
        *("lucius/core/retry", "lucius/core/table", "lucius/core/audit"),
        *("lucius/engine/loop.py:EngineLoop._add", "lucius/engine/loop.py:_Save"),
    ),
    "releasing steps": (
        *(
            "lucius/engine/releases",
            "lucius/engine/windows",
            "lucius/engine/pull_times",
        ),
        "lucius/engine/loop.py:EngineLoop._released_at_once",
    ),
    "encoding and queueing saves": (
        "lucius/adapters/ledgers/sqlite/ledger.py",
        *(
            "lucius/adapters/ledgers/sqlite/batch.py:Save",
            "lucius/adapters/ledgers/sqlite/batch.py:Create",
        ),
        "lucius/adapters/ledgers/sqlite/writer.py:Writer.submit",
        "lucius/adapters/ledgers/sqlite/writer.py:Writer._wait_for_more",
        "lucius/adapters/ledgers/sqlite/writer.py:Writer._hand_over",
    ),
    "writer: staging rows": (
        *("lucius/adapters/ledgers/sqlite/batch", "lucius/adapters/ledgers/sqlite/batch"),
        "lucius/adapters/ledgers/sqlite/rows.py:Rows._portions",
        "lucius/adapters/ledgers/sqlite/rows.py:_statement",
    ),
    "writer: SQLite statements": ("lucius/adapters/ledgers/sqlite/rows",),
    "writer: commit and fsync": ("lucius/adapters/ledgers/sqlite/writer",),
    "after the commit": (
        "lucius/adapters/ledgers/sqlite/writer.py:Writer._answer",
        "lucius/adapters/ledgers/sqlite/writer.py:Writer._resolve",
        "lucius/engine/loop.py:EngineLoop._saved",
        "lucius/engine/loop.py:EngineLoop._committed",
        "lucius/engine/loop.py:EngineLoop._answer",
        "lucius/engine/loop.py:OwedEffects",
        "lucius/engine/ticks.py:Alarm",
        "lucius/engine/outbox.py:Waits",
    ),
    "metrics, logs, traces": (
        *(
            "lucius/engine/metrics",
            "lucius/system/instruments",
        ),
        *("lucius/engine/observer", "lucius/system/"),
        *("lucius/http/tracing", "opentelemetry/", "prometheus_client/", "logging/"),
    ),
    "what is known beside the jobs": ("lucius/operations/", "lucius/core/text"),
    "dispatching": ("lucius/engine/dispatcher", "lucius/engine/dispatcher"),
    "bus": ("lucius/adapters/buses/",),
    "link to the services": ("lucius/adapters/buses/linked", "lucius/adapters/buses/packets"),
    "kit and services": ("lucius/platform/", "lucius/adapters/workspaces/", "bench/echo"),
    "reading the ledger": (
        "lucius/adapters/ledgers/sqlite/queries",
        "lucius/adapters/ledgers/sqlite/lists",
    ),
    LOOP: ("asyncio/runners", "asyncio/base_events", "uvloop/"),
    _CALLER: (
        *("lucius/core/job", "lucius/core/plan", "lucius/core/job", "lucius/core/effects"),
        *("lucius/core/inputs", "lucius/core/record", "lucius/core/ids", "lucius/core/wire"),
        "lucius/core/addresses",
        *("lucius/core/limits", "lucius/core/limits", "lucius/core/errors"),
        *(
            "lucius/ports/",
            "lucius/adapters/ledgers/stored/job_codec",
            "lucius/adapters/ledgers/stored/plan_codec",
        ),
        *(
            "lucius/adapters/ledgers/stored/job_codec",
            "lucius/adapters/ledgers/stored/json_form",
            "lucius/adapters/ledgers/rules",
        ),
        *("lucius/http/tokens", "lucius/app/access"),
    ),
    OTHER: ("lucius/",),
}
"""Beginnings of `file:function`; of those that fit, the longest counts.

What several components use counts for its caller, and so does any library that is not listed.
"""

WAITS: Final = (
    "lucius/adapters/ledgers/sqlite/writer.py:Writer._take",
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
    """`Rows.run (lucius/x.py:29)` as `lucius/x.py:Rows.run`."""
    function, _, where = frame.rpartition(" (")
    return f"{where.rstrip(')').rpartition(':')[0]}:{function}"


@cache
def _named(place: str) -> str:
    fitting = ((len(start), name) for start, name in _STARTS if place.startswith(start))
    return max(fitting, default=(0, _CALLER))[1]


_STARTS: Final = [(start, name) for name, starts in COMPONENTS.items() for start in starts]
