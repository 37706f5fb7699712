"""Keys and tokens of a NATS operator, made for one test: accounts, users, a configuration."""

import base64
import binascii
import json
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SEED, OPERATOR, ACCOUNT, USER = 18 << 3, 14 << 3, 0, 20 << 3
"""What the first letters of a key stand for."""
CONFIGURATION = """
operator: {operator}
system_account: {system}
resolver: MEMORY
resolver_preload: {{ {system}: {system_token}, {account}: {account_token} }}
"""


class Pair:
    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._key = Ed25519PrivateKey.generate()

    @property
    def public(self) -> str:
        return _written(bytes([self._kind]) + self._key.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        first, second = SEED | (self._kind >> 5), (self._kind & 31) << 3
        return _written(bytes([first, second]) + self._key.private_bytes_raw())

    def token(self, subject: str, name: str, said: dict[str, Any]) -> str:
        """A JWT about the subject that this key has signed."""
        claims = {"iss": self.public, "sub": subject, "name": name, "iat": int(time.time())}
        claims["nats"] = {"version": 2, **said}
        digest = sha256(json.dumps(claims).encode()).digest()
        claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
        parts = [_coded({"typ": "JWT", "alg": "ed25519-nkey"}), _coded(claims)]
        signature = self._key.sign(".".join(parts).encode())
        return ".".join([*parts, base64.urlsafe_b64encode(signature).decode().rstrip("=")])


def _written(raw: bytes) -> str:
    checked = raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _coded(said: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")


class Operator:
    """An account with JetStream, and a system account without."""

    def __init__(self) -> None:
        self._operator, self._system, self._account = Pair(OPERATOR), Pair(ACCOUNT), Pair(ACCOUNT)

    def configuration(self) -> str:
        operator, unlimited = self._operator, {"mem_storage": -1, "disk_storage": -1}
        counts = {"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1, "imports": -1}
        limits = {**counts, "exports": -1, "wildcards": True, "streams": -1, "consumer": -1}
        account = {"type": "account", "limits": {**limits, **unlimited}}
        system = {"type": "account", "limits": limits}
        return CONFIGURATION.format(
            operator=operator.token(operator.public, "operator", {"type": "operator"}),
            system=self._system.public,
            system_token=operator.token(self._system.public, "system", system),
            account=self._account.public,
            account_token=operator.token(self._account.public, "lucius", account),
        )

    def write_credentials(self, path: Path, **rights: Any) -> None:
        """A new user of the account. `rights` narrow what it may do, as `pub={"deny": ["x"]}`."""
        user, free = Pair(USER), {"subs": -1, "data": -1, "payload": -1}
        token = self._account.token(user.public, "user", {"type": "user", **free, **rights})
        blocks = (("NATS USER JWT", token), ("USER NKEY SEED", user.seed))
        path.write_text(
            "\n".join(
                f"-----BEGIN {name}-----\n{text}\n------END {name}------\n" for name, text in blocks
            )
        )
