"""How many jobs a second each part of Azure carries: `python -m tools.scale [FILE]`.

From Azure's published limits and what one job asks for, which is in `docs/reference/requests-per-job.json`.
The reference page is generated from it. How fast our own processes are is a matter of the benchmarks.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

REQUESTS: Final = Path(__file__).resolve().parent.parent / "docs/reference/requests-per-job.json"
LANES: Final = 16
REFRESH_SECONDS: Final = 30
"""Between two looks of a process at App Configuration."""


@dataclass(frozen=True)
class Limit:
    """A number that Azure publishes, and the page that says so."""

    amount: int
    unit: str
    page: str
    words: str


TABLES: Final = "Scalability and performance targets for Table storage"
ACCOUNT: Final = Limit(20_000, "requests/s", TABLES, "maximum request rate per storage account")
PARTITION: Final = Limit(2_000, "entities/s", TABLES, "target throughput of one partition")
STANDARD: Final = Limit(
    1_000,
    "credits/s",
    "Throttling operations on Azure Service Bus",
    "credits of a Standard namespace; sending or receiving a message costs one, evaluating a filter too",
)
PREMIUM: Final = Limit(
    4_000_000,
    "bytes/s",
    "Best practices for performance improvements using Service Bus Messaging",
    "observed in and out of one messaging unit of Premium, about",
)
CONFIGURATION: Final = Limit(
    30_000, "requests/h", "Azure App Configuration FAQ", "requests to a store of the tier Standard"
)
LIMITS: Final = (ACCOUNT, PARTITION, STANDARD, PREMIUM, CONFIGURATION)


class RequestsError(ValueError):
    """The file does not say what one job asks for."""


@dataclass(frozen=True)
class Requests:
    """What one job asks for."""

    storage_requests: int
    tenant_partition_entities: int
    lane_partition_entities: int
    directives: int
    replies: int
    nudges: int
    directive_bytes: int
    reply_bytes: int
    directive_subscriptions: int
    """On each topic of directives: every one evaluates its filter."""
    reply_subscriptions: int

    @property
    def credits(self) -> int:
        """Each message is sent, looked at by every subscription of its topic, and received once."""
        to_lanes = self.directives * (2 + self.directive_subscriptions)
        back = (self.replies + self.nudges) * (2 + self.reply_subscriptions)
        return to_lanes + back

    @property
    def bus_bytes(self) -> int:
        """In and out: whoever reads the limit otherwise has twice as much."""
        replies = (self.replies + self.nudges) * self.reply_bytes
        return 2 * (self.directives * self.directive_bytes + replies)


@dataclass(frozen=True)
class Counted:
    """The file: which job it speaks of, what it asks for, and where each number comes from."""

    job: str
    requests: Requests
    basis: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    part: str
    limit: Limit
    asks: int
    """Of the limit's unit, for one job."""
    more: str
    """What to do when it is full."""
    bounds: str
    """Whom it bounds: an edition of Service Bus, `tenant` or `all`."""
    times: int = 1
    """How often the part is there."""

    @property
    def jobs(self) -> int:
        return self.limit.amount * self.times // self.asks


def read(path: Path = REQUESTS) -> Counted:
    """Raises RequestsError, which names every number that is missing, unknown or of a wrong kind."""
    given = json.loads(path.read_text(encoding="utf-8"))
    numbers = given.get("numbers", {})
    known = [each.name for each in fields(Requests)]
    faults = [f"{name} is missing" for name in known if name not in numbers]
    faults += [f"{name} is not known" for name in numbers if name not in known]
    for name, entry in numbers.items():
        if type(entry.get("number")) is not int or entry["number"] < 1:
            faults.append(f"{name} must be a whole number from 1, not {entry.get('number')!r}")
        if not entry.get("basis"):
            faults.append(f"{name} has no basis: say how it was counted")
    if faults:
        raise RequestsError(f"{path.name}: {'; '.join(faults)}")
    requests = Requests(**{name: numbers[name]["number"] for name in known})
    return Counted(given["job"], requests, {name: numbers[name]["basis"] for name in known})


def rows(asked: Requests) -> list[Row]:
    lane, bus, again = asked.lane_partition_entities, asked.bus_bytes, "a second installation"
    spread = "mode BURST spreads a tenant over the lanes, unless they are isolated"
    return [
        Row("Service Bus Standard", STANDARD, asked.credits, "take Premium", "Standard"),
        Row("Service Bus Premium, 1 unit", PREMIUM, bus, "add units", "Premium, 1 unit"),
        Row("Service Bus Premium, 16 units", PREMIUM, bus, again, "Premium, 16 units", 16),
        Row("Tables, one tenant", PARTITION, asked.tenant_partition_entities, again, "tenant"),
        Row("Tables, one lane", PARTITION, lane, spread, "tenant"),
        Row(f"Tables, {LANES} lanes", PARTITION, lane, again, "all", LANES),
        Row("Tables, the account", ACCOUNT, asked.storage_requests, again, "all"),
    ]


def first_full(found: list[Row]) -> Row:
    return min(found, key=lambda row: row.jobs)


def processes(refresh_seconds: int) -> int:
    """How many processes may look at one store, each once in so many seconds."""
    return CONFIGURATION.amount * refresh_seconds // 3600


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    counted = read(Path(given[0])) if given else read()
    found = rows(counted.requests)
    print(counted.job)
    for row in found:
        print(f"{row.jobs:>7,} jobs/s  {row.part}: {row.asks:,} of {row.limit.unit}")
    print(f"first to be full: {first_full(found).part}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
