"""Which addresses lie outside the house, or on this machine: judgement on text, nothing is looked up here.

The networks are listed rather than taken from `ipaddress`, whose idea of private differs by Python version.
"""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

_NOT_PUBLIC_4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # the host of an Azure machine answers here
        "169.254.0.0/16",  # link-local, and the metadata service of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
    )
)
_GLOBAL_6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(text)
    for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")  # tunnels, documentation
)
_NAT64: Final = IPv6Network("64:ff9b::/96")

_NAME: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))+")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
INSIDE_NAMES: Final = ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "arpa")
"""Last labels that are only resolved inside a network."""
LOWEST_FREE_PORT: Final = 1024
WEB_PORTS: Final = frozenset((80, 443))


def is_public(address: str) -> bool:
    """Whether anyone on the internet may use the address. An IPv4 inside an IPv6 is judged itself."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return not any(parsed in network for network in _NOT_PUBLIC_4)
    if parsed.scope_id is not None:
        return False
    inner = _inner(parsed)
    if inner is not None:
        return is_public(str(inner))
    return parsed in _GLOBAL_6 and not any(parsed in network for network in _NOT_PUBLIC_6)


def _inner(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped


def is_guarded(url: str) -> bool:
    """https, or http on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (
        parts.scheme == "http" and _is_loopback(parts.hostname or "")
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def outside_fault(host: str, port: int | None) -> str | None:
    """Why a host, as it is written in a URL, cannot be outside; what its name leads to is not known yet."""
    host = host.lower()
    if port is not None and port not in WEB_PORTS and port < LOWEST_FREE_PORT:
        return f"port {port} is not one of the web: 443, 80, or {LOWEST_FREE_PORT} and above"
    if ":" in host or _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return None if is_public(host) else f"{host} is not a public address"
    if len(host) > 253 or not _NAME.fullmatch(host):
        return "must name a host with a domain, in ASCII (an international name as xn--)"
    if host.rpartition(".")[2] in INSIDE_NAMES:
        return f"{host} is a name inside a network"
    return None
