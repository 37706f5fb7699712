"""Credentials in payloads: fields by their names, and texts by their shape, so that they are refused.

Payloads are stored and passed on as they are, so a secret in them is everybody's. This finds what
was put there in good faith; it does not see through a disguise.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final, Literal
from urllib.parse import unquote

import orjson

from lucius.core.addresses import SECRET_NAMES
from lucius.core.limits import MAX_PAYLOAD_BYTES, pointer
from lucius.engine.admission.faults import PAYLOAD_HAS_CREDENTIALS, Faults

ANY: Final = "*"
NAMED: Final = "looks like a credential by its name"
MAX_NAME: Final = 80
"""Characters at the end of a name that are looked at."""
SHORTEST: Final = 8
"""Characters: a shorter text has the shape of no credential."""

NameHint = Literal["", "secret", "token", "form"]
"""What a name says of its value. `token`: a number is none. `form`: as the name above it says."""
Path = tuple[Any, ...]
"""The path above, and the last part of this one."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_FORMS: Final = frozenset(
    {"value", "plain", "plaintext", "text", "base64", "b64", "pem", "hash", "confirmation"}
)
"""At the end of a name they say how the value is written: `client_secret_value`."""
_SECRETS: Final = frozenset(
    {"password", "passwords", "passwd", "pwd", "passphrase", "passcode", "secret", "secrets"}
    | {"credential", "credentials", "cookie", "jwt", "authorization", "connectionstring"}
    | {"apikey", "apikeys", "secretkey", "privatekey", "accesskey", "accountkey", "clientsecret"}
    | {"accesstoken", "authtoken", "refreshtoken", "idtoken", "bearertoken", "sastoken"}
)
_ENDINGS: Final = ("password", "passwd", "passphrase")
_KEYS: Final = frozenset(
    {"api", "access", "account", "secret", "private", "signing", "encryption", "master", "shared"}
    | {"subscription", "ssh", "auth"}
)
"""What a `key` must be to be a secret: a `sort_key` is none."""
_PIECES: Final = frozenset(
    {"stop", "start", "begin", "end", "pad", "padding", "eos", "bos", "unk", "unknown", "sep"}
    | {"separator", "mask", "cls", "special", "first", "last", "page", "continuation", "cursor"}
    | {"max", "min", "per", "prompt", "completion", "input", "output", "word", "text", "image"}
)
"""What makes a `token` a piece of text or of a listing: a `stop_token` is no secret."""
_RIGHTS: Final = frozenset(
    {"access", "auth", "bearer", "refresh", "session", "api", "sas", "security"}
)
"""What makes `tokens` secrets: otherwise they are counted, or pieces of text."""

_HINTS: Final = (
    *("pass", "pwd", "secret", "token", "key", "cred", "cookie", "jwt", "authorization"),
    *("connection", "sig=", "sig%3d", "bearer", "eyj", "lk_"),
)
"""What a credential has in its name or its text, besides those in URLs."""
_USERINFO: Final = re.compile(r"://([^/?#\s@]{1,512})@")
_PARAMETER: Final = re.compile(
    r"[?&;#](?:" + "|".join(map(re.escape, sorted(SECRET_NAMES))) + r")=[^\s&;#]", re.I
)
_SIGNATURE: Final = re.compile(r"(?:^|[?&;\s\"'])sig=[\w%+/=-]{16}")
_SAS: Final = re.compile(r"(?:^|[?&;\s\"'])s[ev]=")
_ASSIGNED: Final = re.compile(
    r"(?:^|;)\s{0,4}(?:accountkey|sharedaccesskey|password|pwd)\s{0,4}=\s{0,4}[^;\s]"
)
_BEARER: Final = re.compile(r"\bbearer\s{1,8}(?=[\w.~+/=-]{0,512}\d)[\w.~+/=-]{20}")
_BASIC: Final = re.compile(r"\bauthorization\W{1,6}basic\s{1,8}[\w+/=-]{8}")
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY")
_JWT: Final = re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{4,}\.")
_API_KEY: Final = re.compile(r"\blk_[\w-]{16}")


class PayloadSecrets:
    """`allowed`: names of fields that are not looked into, in any spelling; `*` for all."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._off = ANY in allowed
        self._allowed = frozenset(map(words_of, allowed))

    def check(self, value: Any, at: str, faults: Faults) -> None:
        """Name every field that holds a credential. No value is repeated.

        What is too large is refused for its size, so it is not looked into.
        """
        if self._off:
            return
        text = orjson.dumps(value)
        if len(text) > MAX_PAYLOAD_BYTES or not _may_hold(text.decode().lower()):
            return
        for path, reason in self._found(value, (), ""):
            faults.add(PAYLOAD_HAS_CREDENTIALS, at + _pointer(path), reason)

    def _found(self, value: Any, path: Path, named: NameHint) -> list[tuple[Path, str]]:
        kind = value.__class__
        if kind is str:
            reason = NAMED if named else credential_in(value)
            return [(path, reason)] if reason is not None else []
        found: list[tuple[Path, str]] = []
        if kind is dict:
            for name, item in value.items():
                if item and not (self._allowed and words_of(name) in self._allowed):
                    verdict = judged(name)
                    below = named if verdict == "form" else verdict
                    found += self._found(item, (path, name), below)
        elif kind is list:
            for index, item in enumerate(value):
                if item:
                    found += self._found(item, (path, index), named)
        elif named == "secret" and kind is not bool:
            found.append((path, NAMED))
        return found


def _may_hold(text: str) -> bool:
    """Most payloads have none of these, and are done with. The text is in lower case."""
    for hint in _HINTS:  # quicker than `any`: this is on the way of every command
        if hint in text:
            return True
    return "://" in text and ("@" in text or "?" in text or "#" in text)


def _pointer(path: Path) -> str:
    return _pointer(path[0]) + pointer(path[1]) if path else ""


# -- names -----------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def words_of(name: str) -> tuple[str, ...]:
    """`clientSecret`, `client-secret` and `CLIENT_SECRET` have the same two words."""
    return tuple(word.lower() for word in _WORD.findall(name[-MAX_NAME:]))


@lru_cache(maxsize=4096)
def judged(name: str) -> NameHint:
    """By the last word, which says what the value is: a `password_policy_url` is a URL."""
    words = list(words_of(name))
    while words and (words[-1] in _FORMS or words[-1].isdigit()):
        words.pop()
    if not words:
        return "form"
    *_, before, last = "", *words
    if last in _SECRETS or last.endswith(_ENDINGS):
        return "secret"
    if last in ("key", "keys"):
        return "secret" if before in _KEYS else ""
    if last == "tokens":
        return "token" if before in _RIGHTS else ""
    if last == "token":
        return "" if before in _PIECES else "token"
    return "secret" if (before, last) == ("connection", "string") else ""


# -- texts -----------------------------------------------------------------------------------


def credential_in(text: str) -> str | None:
    """What kind of credential a text carries, if it does. Takes time in proportion to its length."""
    if len(text) < SHORTEST:
        return None
    if "://" in text and ("@" in text or "?" in text or "#" in text):
        if any(map(_is_login, _USERINFO.finditer(text))):
            return "has a URL with a user or password before the host"
        if _PARAMETER.search(text):
            return "has a URL with a credential in its query"
    if "-----BEGIN" in text and _PRIVATE_KEY.search(text):
        return "holds a private key"
    if ("eyJ" in text and _JWT.search(text)) or ("lk_" in text and _API_KEY.search(text)):
        return "holds a token"
    return _credential_in_lower(text.lower())


def _is_login(found: re.Match[str]) -> bool:
    """A password, or a user of a web address; the part before `@` in `abfs://` names a container."""
    scheme = found.string[max(found.start() - 5, 0) : found.start()].lower()
    return ":" in found[1] or scheme.endswith(("http", "https"))


def _credential_in_lower(text: str) -> str | None:
    if "sig%3d" in text:
        text = unquote(text)
    if "sig=" in text and _SIGNATURE.search(text) and _SAS.search(text):
        return "holds a shared access signature (sig, with se or sv)"
    if "=" in text and _ASSIGNED.search(text):
        return "holds a connection string with a password or key"
    if ("bearer" in text and _BEARER.search(text)) or ("basic" in text and _BASIC.search(text)):
        return "holds an Authorization header"
    return None
