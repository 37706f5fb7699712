"""The port of API keys that replicas share: rows beside the jobs. They hold hashes, never a secret."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ApiKey:
    """`tenants` is None for a key that may act for every tenant."""

    key_id: str
    name: str
    secret_sha256: str
    roles: tuple[str, ...]
    tenants: tuple[str, ...] | None
    created_at: str
    revoked_at: str | None = None
    expires_at: str | None = None

    def state(self, now: datetime) -> str:
        if self.revoked_at is not None:
            return "revoked"
        expired = self.expires_at is not None and datetime.fromisoformat(self.expires_at) <= now
        return "expired" if expired else "active"


class KeyStore(Protocol):
    """LuciusError with what helps, where it cannot be read or written."""

    async def keys(self) -> Sequence[ApiKey]:
        """Every key that this version understands, the oldest first."""

    async def add(self, key: ApiKey) -> None:
        """Its id is new."""

    async def revoke(self, key_id: str, at: datetime) -> ApiKey | None:
        """None: there is no such key. One that was revoked before keeps its first date."""
