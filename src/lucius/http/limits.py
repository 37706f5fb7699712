"""What a caller may ask for: so many requests a second and at once, and under the names of this machine."""

import ipaddress
import logging
import resource
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from functools import lru_cache, partial
from math import ceil
from time import monotonic
from typing import Final, Protocol
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Scope

from lucius.http.problems import Problem
from lucius.system.instruments import Count, Instruments

# How many connections there may be, in all and from one address, with a reserve for monitors and operators.
#
# A connection beyond the limits is one of the reserve: it is answered once, and only what monitors and
# operators ask for. If the reserve is full too, the one that has been silent longest makes room.

log = logging.getLogger("lucius")

RESERVE: Final = 32
FILES_BESIDES: Final = 256
"""File descriptors for all that is not a connection of a client: ledger, documents, webhooks."""
_FEWEST: Final = 16
ANSWER_UNREAD: Final = "ANSWER_UNREAD"
"""Why a client that takes nothing of its answer is hung up on: nobody could be told."""
_CODES: Final = (
    *("INVALID_HTTP", "INVALID_TARGET", "INVALID_HOST", "HEADERS_TOO_LARGE", "REQUEST_TIMEOUT"),
    *("CONNECTIONS_EXHAUSTED", "TOO_MANY_CONNECTIONS", "OTHER_USER", ANSWER_UNREAD),
)


class ConnectionInstruments(Instruments):
    def __init__(self) -> None:
        self.refused = Count(
            "lucius_connections_refused_total",
            "Connections that were hung up on before a route could answer",
            ("code",),
        )
        for code in _CODES:
            self.refused.expect(code)


class Connection(Protocol):
    def has_asked(self) -> bool:
        """Whether a whole head has come, so that there is something to answer."""

    def cut_off(self) -> None: ...


class Connections:
    def __init__(self, most: int, per_address: int, reserve: int = RESERVE) -> None:
        self._most = most
        self._per_address = per_address
        self._size = reserve
        self.instruments = ConnectionInstruments()
        self._placed: dict[Connection, str] = {}
        self._by_address: Counter[str] = Counter()
        self._reserve: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._placed) + len(self._reserve)

    def enter(self, connection: Connection, address: str) -> str | None:
        """None: it has a place. Otherwise the code that all but monitors and operators are refused with."""
        if len(self._placed) >= self._most:
            code = "CONNECTIONS_EXHAUSTED"
        elif self._by_address[address] >= self._per_address:
            code = "TOO_MANY_CONNECTIONS"
        else:
            self._placed[connection] = address
            self._by_address[address] += 1
            return None
        self._reserve[connection] = None
        if len(self._reserve) > self._size:
            self._make_room()
            self.refused(code)
        return code

    def refused(self, code: str) -> None:
        """Count one that is hung up on without an answer of a route."""
        self.instruments.refused.add(code)

    def leave(self, connection: Connection) -> None:
        self._reserve.pop(connection, None)
        address = self._placed.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _make_room(self) -> None:
        """There is always a silent one: whoever has just come."""
        silent = next(connection for connection in self._reserve if not connection.has_asked())
        del self._reserve[silent]
        silent.cut_off()


def affordable(most: int) -> int:
    """As many as this process may have files open for. The soft limit of files is raised where it can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = most + RESERVE + FILES_BESIDES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return most
    fewer = max(soft - RESERVE - FILES_BESIDES, _FEWEST)
    log.warning(
        "at most %d connections instead of %d: this process may open only %d"
        " files (raise `ulimit -n`)",
        *(fewer, most, soft),
    )
    return fewer


MAX_BUCKETS: Final = 10_000
RESERVE_CODE: Final = "lucius.reserve"
"""In the scope of a request whose connection is one of the reserve: the code to refuse it with."""
LOOPBACK_HOSTS: Final = frozenset((b"localhost", b"127.0.0.1", b"[::1]"))


class RateLimit:
    """A bucket for each caller: it holds one second's worth, and fills up as time goes by."""

    def __init__(self, per_second: float, clock: Callable[[], float] = monotonic) -> None:
        self._rate = per_second
        self._size = max(per_second, 1.0)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """Raises the problem that says when to come back."""
        now = self._clock()
        left, at = self._buckets.pop(who, (self._size, now))
        left = min(left + (now - at) * self._rate, self._size)
        if left < 1.0:
            self._buckets[who] = (left, now)
            wait = str(ceil((1.0 - left) / self._rate))
            raise Problem("RATE_LIMITED", headers={"retry-after": wait})
        self._buckets[who] = (left - 1.0, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)


class WaitLimit:
    """How many requests of one caller may wait at once: event streams, long polls and pulls."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: Counter[str] = Counter()

    def take(self, who: str) -> Callable[[], None]:
        """Call what is returned when the wait is over. Raises the problem where too many wait already."""
        if self._waiting[who] >= self._most:
            raise Problem(
                "TOO_MANY_WAITING",
                f"{self._most} requests of this caller wait already (event streams, `wait_seconds`,"
                " pulls); end some of them, or call with another API key",
            )
        self._waiting[who] += 1
        return partial(self._leave, who)

    def _leave(self, who: str) -> None:
        self._waiting[who] -= 1
        if not self._waiting[who]:
            del self._waiting[who]


def client_of(request: Request) -> str:
    """Where a request comes from."""
    return network_of(request.client.host) if request.client is not None else ""


@lru_cache(maxsize=1024)
def network_of(host: str) -> str:
    """Whom an address belongs to. An IPv6 customer has a whole /64, so that counts as one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False))


class HostCheck:
    """Refuses names that are not ours: a web page whose name leads to loopback stays outside."""

    def __init__(self, more: Collection[str] = ()) -> None:
        self._names = LOOPBACK_HOSTS | {name.lower().encode() for name in more}

    def refusal(self, scope: Scope) -> Problem | None:
        """A request without a Host comes from no browser."""
        for name, value in scope["headers"]:
            if name == b"host":
                return None if self._known(value) else Problem("MISDIRECTED_REQUEST")
        return None

    def _known(self, host: bytes) -> bool:
        if host in self._names:
            return True
        name, colon, port = host.lower().rpartition(b":")
        if not colon or not port.isdigit():
            name = host.lower()
        return name in self._names


def host_of(url: str) -> str:
    """The host of a URL as a Host header names it; empty if it has none."""
    netloc = urlsplit(url).netloc.rpartition("@")[2]
    return netloc.rpartition(":")[0] if not netloc.endswith("]") and ":" in netloc else netloc
