"""API keys in a store: what one process makes or revokes, the others read."""

import asyncio
from datetime import UTC, datetime, timedelta

from lucius.http.context import Role
from lucius.http.keys import new_key
from lucius.ports.keys import ApiKey
from tests.conformance.key_registry import ADAPTERS, Opens
from tests.conformance.on_every import on_every

NOW = datetime(2026, 1, 27, 10, 0, tzinfo=UTC)


def made(number: int = 0, tenants: tuple[str, ...] | None = ("a/b", "ü#?")) -> ApiKey:
    at = NOW + timedelta(seconds=number)
    return new_key(f"ci {number}", (Role.READ, Role.SUBMIT), tenants, at, NOW)[0]


@on_every(ADAPTERS)
async def test_what_is_added_is_read_elsewhere_the_oldest_first(opens: Opens) -> None:
    keys = [made(0), made(1, None), made(2, ("*",))]
    for key in keys:
        await opens().add(key)
    assert list(await opens().keys()) == keys


@on_every(ADAPTERS)
async def test_a_revoked_key_keeps_its_first_date(opens: Opens) -> None:
    key = made()
    await opens().add(key)
    first = await opens().revoke(key.key_id, NOW)
    assert first is not None
    assert first.state(NOW) == "revoked"
    assert await opens().revoke(key.key_id, NOW + timedelta(days=1)) == first
    assert list(await opens().keys()) == [first]


@on_every(ADAPTERS)
async def test_a_key_that_is_not_there_is_not_revoked(opens: Opens) -> None:
    assert await opens().revoke("nobody/#?", NOW) is None
    assert list(await opens().keys()) == []


@on_every(ADAPTERS)
async def test_writers_at_once_lose_no_key(opens: Opens) -> None:
    keys = [made(number) for number in range(8)]
    await asyncio.gather(*(opens().add(key) for key in keys))
    await asyncio.gather(*(opens().revoke(key.key_id, NOW) for key in keys[:4]))
    found = await opens().keys()
    assert [key.key_id for key in found] == [key.key_id for key in keys]
    assert [key.revoked_at is not None for key in found] == [True] * 4 + [False] * 4
