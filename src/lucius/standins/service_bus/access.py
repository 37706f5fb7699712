"""Shared access policies of a namespace: which token is good, what it allows, where and until when."""

import hmac
import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from time import time
from typing import Final
from urllib.parse import unquote_plus

SEND, LISTEN, MANAGE = "Send", "Listen", "Manage"
EVERYTHING: Final = frozenset({SEND, LISTEN, MANAGE})
UNAUTHORIZED: Final = "amqp:unauthorized-access"
POLICY: Final = "stand-in"
SCHEME: Final = "SharedAccessSignature"
DIGITS: Final = re.compile("[0-9]{1,15}")


@dataclass(frozen=True)
class Policy:
    """A named key and what it allows."""

    key: str
    rights: frozenset[str] = EVERYTHING


@dataclass(frozen=True)
class Grant:
    """The rights of a token for `path` and all below it; of an empty path, for the namespace."""

    rights: frozenset[str]
    path: str = ""
    expires_at: float = inf

    def covers(self, address: str) -> bool:
        return not self.path or f"{address.strip('/').lower()}/".startswith(f"{self.path}/")


def path_of(uri: str) -> str:
    """The path of `sb://host:port/path`, in lower case, as names are compared."""
    return uri.split("://", 1)[-1].partition("/")[2].strip("/").lower()


class Access:
    """Without policies there is one, whose random key only the connection string of the stand-in has."""

    def __init__(
        self, policies: Mapping[str, Policy] | None = None, *, now: Callable[[], float] = time
    ) -> None:
        self.policies = dict(policies or {POLICY: Policy(secrets.token_urlsafe(32))})
        self._now = now

    def granted(self, token: str) -> Grant | None:
        """None: no policy has signed this token, or it has expired.

        The resource is signed as the token writes it: clients escape it in different ways.
        """
        scheme, _, text = token.partition(" ")
        said = dict(part.partition("=")[::2] for part in text.split("&"))
        name, signature = (unquote_plus(said.get(key, "")) for key in ("skn", "sig"))
        resource, until, policy = said.get("sr", ""), said.get("se", ""), self.policies.get(name)
        if scheme != SCHEME or policy is None or not resource or not DIGITS.fullmatch(until):
            return None
        signed = hmac.new(policy.key.encode(), f"{resource}\n{until}".encode(), sha256).digest()
        if not hmac.compare_digest(b64encode(signed), signature.encode()):
            return None
        found = Grant(policy.rights, path_of(unquote_plus(resource)), float(until))
        return found if self.holds(found) else None

    def holds(self, grant: Grant) -> bool:
        return self._now() < grant.expires_at
