"""Which addresses lie outside the house, or on this machine: judgement on text, nothing is looked up here.

The networks are listed rather than taken from `ipaddress`, whose idea of private differs by Python version.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final
from urllib.parse import SplitResult, unquote_plus, urlsplit

# Credentials in references: found, so that requests with them are refused, and taken out of results.

SECRET_NAMES: Final = frozenset(
    {"sig", "signature", "sas", "sas_token", "token", "access_token", "id_token", "refresh_token"}
    | {"auth", "auth_token", "authorization", "credential", "credentials"}
    | {"password", "passwd", "pwd", "secret", "client_secret", "secret_key", "connection_string"}
    | {"api_key", "apikey", "account_key", "access_key", "awsaccesskeyid", "googleaccessid"}
    | {"x-amz-signature", "x-amz-credential", "x-amz-security-token"}
    | {"x-goog-signature", "x-goog-credential"}
)
"""Query parameters and fields that carry a right to read or write, whatever their case."""
REMOVED: Final = "credentials_removed"
"""The mark on a result that came with credentials: `{"uri": ..., "credentials_removed": true}`."""

_CONTAINER_SCHEMES: Final = frozenset(("abfs", "abfss", "wasb", "wasbs"))
"""Here the part before `@` names the container, not a user."""
_PAIRS: Final = re.compile("[&;?]")
_SAS_NAMES: Final = frozenset(
    {"se", "sp", "st", "sv", "sr", "ss", "srt", "si", "sip", "spr", "sdd", "ses"}
    | {"skoid", "sktid", "skt", "ske", "sks", "skv"}
)
"""What belongs to a shared access signature, besides `sig`."""


# -- finding ---------------------------------------------------------------------------------


def may_carry(text: str) -> bool:
    """Credentials stand before an `@`, in a query or in a fragment: most references have none of these."""
    return "@" in text or "?" in text or "#" in text


def secret_in(parts: SplitResult) -> str | None:
    """What kind of credential a URI carries, if it does."""
    user, at, _ = parts.netloc.rpartition("@")
    if at and (parts.scheme not in _CONTAINER_SCHEMES or ":" in user):
        return "names a user or password before the host"
    names = _names(parts.query) | _names(parts.fragment)
    found = sorted(names & SECRET_NAMES)
    if found:
        return f"carries the credential parameter {found[0]}"
    if {"se", "sp"} <= names:
        return "carries a shared access signature (se, sp)"
    return None


def _names(query: str) -> set[str]:
    return {_name(pair) for pair in _PAIRS.split(query)}


def _name(pair: str) -> str:
    return unquote_plus(pair.partition("=")[0]).strip().lower()


# -- taking out ------------------------------------------------------------------------------


def without_credentials(value: Any) -> Any:
    """A reference in a result, or a list of them, with its credentials removed and a mark in their place.

    What carries none is given back as it is.
    """
    if isinstance(value, str):
        clean = _clean(value)
        return value if clean == value else {"uri": clean, REMOVED: True}
    if isinstance(value, list | tuple):
        return [without_credentials(item) for item in value]
    if isinstance(value, Mapping):
        return _clean_object(value)
    return value


def _clean_object(value: Mapping[str, Any]) -> Mapping[str, Any]:
    kept = {
        name: _clean(item) if isinstance(item, str) else without_credentials(item)
        for name, item in value.items()
        if name.lower() not in SECRET_NAMES
    }
    same = len(kept) == len(value) and all(
        kept[name] == item for name, item in value.items() if isinstance(item, str)
    )
    return kept if same else {**kept, REMOVED: True}


def _clean(text: str) -> str | None:
    """The text without credentials; None where they cannot be told from the rest."""
    if not may_carry(text) or _secret(text) is None:
        return text
    rest, hash_mark, fragment = text.partition("#")
    rest, question_mark, query = rest.partition("?")
    sas = {"se", "sp"} <= _names(query) | _names(fragment) or "sig" in _names(query)
    query, fragment = _clean_query(query, sas), _clean_query(fragment, sas)
    clean = _clean_authority(rest)
    clean += question_mark + query if query else ""
    clean += hash_mark + fragment if fragment else ""
    return clean if _secret(clean) is None else None


def _secret(text: str) -> str | None:
    try:
        return secret_in(urlsplit(text))
    except ValueError:
        return "is not a URI"


def _clean_query(query: str, sas: bool) -> str:
    secret = SECRET_NAMES | _SAS_NAMES if sas else SECRET_NAMES
    return "&".join(pair for pair in _PAIRS.split(query) if pair and _name(pair) not in secret)


def _clean_authority(text: str) -> str:
    scheme, slashes, rest = text.partition("//")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if at and scheme.lower().removesuffix(":") in _CONTAINER_SCHEMES:
        host = f"{user.partition(':')[0]}@{host}"
    return f"{scheme}{slashes}{host if at else authority}{slash}{path}"


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
_PRIVATE_4: Final = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
_PRIVATE_6: Final = IPv6Network("fc00::/7")
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


def is_private(address: str) -> bool:
    """Whether it is of a private network: neither this machine nor its link, where metadata lie."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    inner = _inner(parsed) if isinstance(parsed, IPv6Address) else parsed
    if inner is None:
        return parsed in _PRIVATE_6
    return any(inner in network for network in _PRIVATE_4)


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


def outside_fault(host: str, port: int | None, *, named: bool = False) -> str | None:
    """Why a host, as it is written in a URL, cannot be outside; what its name leads to is not known yet.

    `named`: an operator has named it, so it may be in a private network.
    """
    host = host.lower()
    if port is not None and port not in WEB_PORTS and port < LOWEST_FREE_PORT:
        return f"port {port} is not one of the web: 443, 80, or {LOWEST_FREE_PORT} and above"
    if ":" in host or _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        fits = is_public(host) or (named and is_private(host))
        return None if fits else f"{host} is not a public address"
    if len(host) > 253 or not _NAME.fullmatch(host):
        return "must name a host with a domain, in ASCII (an international name as xn--)"
    if host.rpartition(".")[2] in INSIDE_NAMES and not named:
        return f"{host} is a name inside a network"
    return None
