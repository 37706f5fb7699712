"""API keys in a dictionary: for several runtimes in one process."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from lucius.ports.keys import ApiKey


class MemoryKeys:
    def __init__(self) -> None:
        self._keys: dict[str, ApiKey] = {}

    async def keys(self) -> Sequence[ApiKey]:
        return list(self._keys.values())

    async def add(self, key: ApiKey) -> None:
        self._keys[key.key_id] = key

    async def revoke(self, key_id: str, at: datetime) -> ApiKey | None:
        key = self._keys.get(key_id)
        if key is not None and key.revoked_at is None:
            key = self._keys[key_id] = replace(key, revoked_at=at.isoformat(timespec="seconds"))
        return key
