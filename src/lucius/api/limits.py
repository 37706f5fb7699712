"""What a caller may ask for: so many requests a second and at once, and under the names of this machine."""

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from functools import lru_cache, partial
from math import ceil
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Scope

from lucius.api.problems import Problem

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
