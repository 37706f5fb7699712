"""The policy for references: LUCIUS routes them, never opens them, and lets no credentials pass.

A reference is a URI, or an object whose `uri` is one. What is refused is named by code and pointer.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from lucius.core.addresses import SECRET_NAMES, outside_fault, secret_in

INVALID: Final = "REFERENCE_INVALID"
NOT_ALLOWED: Final = "REFERENCE_NOT_ALLOWED"
HAS_CREDENTIALS: Final = "REFERENCE_HAS_CREDENTIALS"
PROTECTED: Final = "REFERENCE_PROTECTED"

MAX_URI: Final = 2048
DEPLOYED_SCHEMES: Final = ("https", "s3", "az", "abfs", "abfss", "gs")
EMBEDDED_SCHEMES: Final = ("file", *DEPLOYED_SCHEMES)

_PLAIN: Final = re.compile(r"([a-z][a-z0-9+.-]*)://([A-Za-z0-9._-]*)(/[A-Za-z0-9/_.~=+-]*)?")
"""Most references: nothing escaped, no user, port, query or fragment. Only `..` is left to refuse."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_AZURE_SCHEMES: Final = ("az", "abfs", "abfss")
_AZURE_HOST: Final = re.compile(r"\.(blob|dfs)\.")
_HOST: Final = re.compile(r"[\w.~-]+|\[[0-9A-Fa-f:.]+\]")


@dataclass(frozen=True, slots=True)
class ReferencePolicy:
    """Which references are allowed. `hosts` are globs over host or `host:port`; none means any host.

    `protects` says of a path whether it leads to what LUCIUS keeps for itself on this machine. `home`
    is where the workspaces of the jobs lie, if that is an object store.
    """

    schemes: tuple[str, ...] = EMBEDDED_SCHEMES
    hosts: tuple[str, ...] = ()
    protects: Callable[[str], bool] | None = None
    home: str = ""


class ReferenceFault(NamedTuple):
    code: str
    pointer: str
    reason: str


def reference_faults(value: Any, pointer: str, policy: ReferencePolicy) -> list[ReferenceFault]:
    """Everything that is wrong with one reference; usually nothing."""
    if isinstance(value, str):
        return _uri_faults(value, pointer, policy)
    if not isinstance(value, dict | Mapping):
        return [ReferenceFault(INVALID, pointer, 'must be a URI or an object with a "uri"')]
    uri = value.get("uri")
    if not isinstance(uri, str):
        return [ReferenceFault(INVALID, f"{pointer}/uri", "must be a URI")]
    faults = _uri_faults(uri, f"{pointer}/uri", policy)
    if len(value) > 1:
        faults += [
            ReferenceFault(HAS_CREDENTIALS, f"{pointer}/{name}", "looks like a credential")
            for name in value
            if isinstance(name, str) and name.lower() in SECRET_NAMES
        ]
    return faults


def webhook_fault(url: Any, schemes: tuple[str, ...], hosts: tuple[str, ...]) -> str | None:
    """Why LUCIUS will not call this address. Where it leads is checked again when it is called."""
    if not isinstance(url, str):
        return "must be a URL"
    reason = _malformed(url)
    if reason is not None:
        return reason
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.scheme not in schemes:
        return f"must begin with {' or '.join(schemes)}://"
    if not host or "@" in parts.netloc:
        return "must name a host, and no user"
    if hosts and not _any_of(hosts).fullmatch(host):
        return f"host {host} is not one of those in LUCIUS_WEBHOOK_HOSTS"
    return outside_fault(host, port, named=host in hosts)


def _uri_faults(uri: str, pointer: str, policy: ReferencePolicy) -> list[ReferenceFault]:
    plain = _PLAIN.fullmatch(uri)
    if plain is not None and len(uri) <= MAX_URI and ".." not in uri:
        place = _Place(plain[1], plain[2].lower(), plain[2].lower(), plain[3] or "")
        return _place_faults(place, pointer, policy)
    reason = _malformed(uri)
    if reason is not None:
        return [ReferenceFault(INVALID, pointer, reason)]
    return _split_faults(uri, pointer, policy)


def _split_faults(uri: str, pointer: str, policy: ReferencePolicy) -> list[ReferenceFault]:
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        return [ReferenceFault(INVALID, pointer, f"is not a URI: {error}")]
    netloc = parts.netloc.rpartition("@")[2].removesuffix(f":{port}" if port is not None else "")
    if (netloc and not _HOST.fullmatch(netloc)) or not uri[len(parts.scheme) :].startswith("://"):
        return [ReferenceFault(INVALID, pointer, "must read scheme://host/path")]
    reason = unsafe_path(parts.path)
    if reason is not None:
        return [ReferenceFault(INVALID, pointer, reason)]
    secret = secret_in(parts)
    faults = [ReferenceFault(HAS_CREDENTIALS, pointer, secret)] if secret is not None else []
    address = f"{host}:{port}" if port is not None else host
    place = _Place(parts.scheme, host, address, parts.path, parts.username or "")
    return faults + _place_faults(place, pointer, policy)


def _malformed(uri: str) -> str | None:
    if not uri or uri != uri.strip():
        return "must be a URI without spaces around it"
    if len(uri) > MAX_URI:
        return f"is longer than {MAX_URI} characters"
    if not uri.isprintable():
        return "contains a control or invisible character"
    if "\\" in uri:
        return "contains a backslash"
    if not _SCHEME.match(uri):
        return "must begin with a scheme, such as s3://"
    return None


def unsafe_path(path: str) -> str | None:
    """Escapes are undone again and again: whoever opens the reference may do so more than once."""
    for _ in range(3):
        if ".." in path.split("/"):
            return "climbs out of its folder: a path segment is '..'"
        decoded = unquote(path)
        if decoded == path:
            return None
        if "\\" in decoded or not decoded.isprintable():
            return "hides a control character or a backslash behind an escape"
        path = decoded
    return "is escaped too many times"


class _Place(NamedTuple):
    """Where a reference leads. `address` is the host with the port that it names, if any."""

    scheme: str
    host: str
    address: str
    path: str
    user: str = ""
    """What stands before `@`: a container, where the scheme has it so."""


def _place_faults(place: _Place, pointer: str, policy: ReferencePolicy) -> list[ReferenceFault]:
    scheme, host = place.scheme, place.host
    if scheme not in policy.schemes:
        allowed = ", ".join(policy.schemes)
        reason = f"scheme {scheme} is not one of {allowed} (LUCIUS_REFERENCE_SCHEMES)"
        return [ReferenceFault(NOT_ALLOWED, pointer, reason)]
    if scheme == "file":
        return _file_faults(place, pointer, policy)
    if not host:
        return [ReferenceFault(INVALID, pointer, "must name a host, bucket or container")]
    if policy.hosts:
        allowed_place = _any_of(policy.hosts)
        if not (allowed_place.fullmatch(host) or allowed_place.fullmatch(place.address)):
            reason = f"host {host} is not one of those in LUCIUS_REFERENCE_HOSTS"
            return [ReferenceFault(NOT_ALLOWED, pointer, reason)]
    if policy.home and _leads_home(place, policy.home):
        return [ReferenceFault(PROTECTED, pointer, "leads into the workspaces of LUCIUS")]
    return []


def _leads_home(place: _Place, home: str) -> bool:
    """Whether it leads to the workspaces of the jobs, in whatever account the container is."""
    parts = urlsplit(home)
    container, start = _stored(
        _Place(parts.scheme, parts.hostname or "", "", unquote(parts.path), parts.username or "")
    )
    found, path = _stored(place)
    if found != container:
        return False
    return any(f"{each}/".startswith(f"{start.rstrip('/')}/") for each in _readings(path))


def _stored(place: _Place) -> tuple[tuple[str, str], str]:
    """Kind of store and container, and the path in it. Azure spells the same blob in several ways."""
    path = place.path.lstrip("/")
    if place.scheme in _AZURE_SCHEMES:
        return ("azure", unquote(place.user).lower() or place.host), path
    if place.scheme == "https" and _AZURE_HOST.search(place.host):
        container, _, path = path.partition("/")
        return ("azure", unquote(container)), path
    return (place.scheme, place.host), path


def _file_faults(place: _Place, pointer: str, policy: ReferencePolicy) -> list[ReferenceFault]:
    if place.host not in ("", "localhost"):
        return [ReferenceFault(INVALID, pointer, "a file reference names no host: file:///path")]
    if policy.protects is not None and any(map(policy.protects, _readings(place.path))):
        reason = "leads into the data directory or the workspaces of LUCIUS"
        return [ReferenceFault(PROTECTED, pointer, reason)]
    return []


def _readings(path: str) -> Iterator[str]:
    """The path as it is, and with its escapes undone as often as `unsafe_path` lets them nest."""
    while True:
        yield path
        decoded = unquote(path)
        if decoded == path:
            return
        path = decoded


@lru_cache(maxsize=64)
def _any_of(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(translate(glob.lower()) for glob in globs))
