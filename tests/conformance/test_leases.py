"""Lease rows: of several who write one, the one that has read the newest wins."""

import asyncio
from dataclasses import replace

from lucius.ports.leases import LeaseRow, LeaseStore
from tests.conformance.lease_registry import ADAPTERS
from tests.conformance.on_every import on_every

ROW = LeaseRow("lane|07", "one", {"held": 3, "lines": {"ocr-service": [1, 2]}})


@on_every(ADAPTERS)
async def test_a_row_is_created_once(on: LeaseStore) -> None:
    stamps = await asyncio.gather(*(on.put(replace(ROW, holder=f"{n}")) for n in range(5)))
    assert sum(stamp is not None for stamp in stamps) == 1
    (row,) = await on.rows()
    assert stamps[int(row.holder)] == row.etag


@on_every(ADAPTERS)
async def test_every_write_changes_the_stamp(on: LeaseStore) -> None:
    first = await on.put(ROW)
    second = await on.put(replace(ROW, etag=first))
    assert None not in (first, second)
    assert first != second
    assert await on.rows() == [replace(ROW, etag=second)]


@on_every(ADAPTERS)
async def test_whoever_has_read_an_older_row_writes_nothing(on: LeaseStore) -> None:
    old = await on.put(ROW)
    new = await on.put(replace(ROW, holder="two", etag=old))
    assert await on.put(replace(ROW, holder="three", etag=old)) is None
    assert not await on.delete(replace(ROW, etag=old))
    assert await on.rows() == [replace(ROW, holder="two", etag=new)]


@on_every(ADAPTERS)
async def test_a_row_that_is_gone_is_not_written_by_who_has_read_it(on: LeaseStore) -> None:
    stamp = await on.put(ROW)
    assert await on.delete(replace(ROW, etag=stamp))
    assert not await on.delete(replace(ROW, etag=stamp))
    assert await on.put(replace(ROW, etag=stamp)) is None
    assert await on.rows() == []
    assert await on.put(ROW) is not None


@on_every(ADAPTERS)
async def test_of_many_rows_those_that_another_has_written_stop_no_other(on: LeaseStore) -> None:
    rows = [replace(ROW, key=f"lane|{n:02}") for n in range(4)]
    first = await on.put_all(rows)
    assert None not in first
    known = [replace(row, etag=etag) for row, etag in zip(rows, first, strict=True)]
    assert await on.put(replace(known[2], holder="other")) is not None
    second = await on.put_all(known)
    assert [etag is None for etag in second] == [False, False, True, False]
    assert [row.holder for row in await on.rows()] == ["one", "one", "other", "one"]
    assert list(await on.put_all([])) == []


@on_every(ADAPTERS)
async def test_rows_come_by_key(on: LeaseStore) -> None:
    for key in ("owner|b", "lane|10", "lane|02", "owner|a/1#?"):
        await on.put(replace(ROW, key=key))
    assert [row.key for row in await on.rows()] == ["lane|02", "lane|10", "owner|a/1#?", "owner|b"]
