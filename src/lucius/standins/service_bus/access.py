"""Shared access policies of a namespace: whose token is good, and what it allows."""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qsl, quote_plus

SEND, LISTEN, MANAGE = "Send", "Listen", "Manage"
EVERYTHING: Final = frozenset({SEND, LISTEN, MANAGE})
UNAUTHORIZED: Final = "amqp:unauthorized-access"


@dataclass(frozen=True)
class Policy:
    """A named key and what it allows."""

    key: str
    rights: frozenset[str] = EVERYTHING


class Access:
    """Without policies every token is good for everything."""

    def __init__(self, policies: Mapping[str, Policy] | None = None) -> None:
        self.policies = dict(policies or {})

    def rights(self, token: str) -> frozenset[str] | None:
        """What the bearer may do. None: no policy has signed this token."""
        if not self.policies:
            return EVERYTHING
        said = dict(parse_qsl(token.partition(" ")[2]))
        policy = self.policies.get(said.get("skn", ""))
        if policy is None:
            return None
        signed = f"{quote_plus(said.get('sr', ''))}\n{said.get('se', '')}".encode()
        wanted = b64encode(hmac.new(policy.key.encode(), signed, sha256).digest()).decode()
        return policy.rights if hmac.compare_digest(wanted, said.get("sig", "")) else None
