"""Credentials in references: found, so that requests with them are refused, and taken out of results."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, unquote_plus, urlsplit

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
