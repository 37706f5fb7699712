"""Event streams follow a job to its end, resume, and share one reader."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from lucius.core.effects import Event
from lucius.core.errors import LedgerUnavailableError
from lucius.core.inputs import CancelRequested
from lucius.core.job import Job
from lucius.http import streams
from lucius.http.context import ApiOptions
from lucius.http.streams import KEEP_ALIVE, Feeds
from tests.api.world import ENVELOPE, World, client_of, context_of


def parsed(chunk: bytes) -> dict[str, Any]:
    lines = dict(line.split(": ", 1) for line in chunk.decode().strip().split("\n"))
    return {"id": lines.get("id"), "event": lines["event"], "data": json.loads(lines["data"])}


async def everyone_waits() -> None:
    for _ in range(500):
        await asyncio.sleep(0)


async def submitted(world: World) -> str:
    return (await world.submit(ENVELOPE)).job_id


async def collected(world: World, feeds: Feeds, job_id: str, after: int = 0) -> list[bytes]:
    heard = b"".join([chunk async for chunk in feeds.stream(world.jobs[job_id], after)])
    return [each for each in heard.split(b"\n\n") if each]


async def test_a_stream_follows_the_job_to_its_end(world: World) -> None:
    async with client_of(context_of(world)) as client:
        job_id = await submitted(world)
        path = f"/v1/jobs/{job_id}/events"
        reading = asyncio.create_task(client.get(path, headers={"accept": "text/event-stream"}))
        await world.out(job_id)
        await world.apply(job_id, CancelRequested(immediate=True))
        answer = await reading
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [parsed(chunk) for chunk in answer.content.split(b"\n\n") if chunk]
    assert [event["id"] for event in events] == ["1", "2", "3", "4", None]
    assert events[-1] == {
        "id": None,
        "event": "end",
        "data": {"jobId": job_id, "state": "CANCELLED"},
    }


async def test_a_stream_resumes_after_the_last_event_that_was_seen(world: World) -> None:
    async with client_of(context_of(world)) as client:
        job_id = await submitted(world)
        await world.out(job_id)
        await world.apply(job_id, CancelRequested(immediate=True))
        path = f"/v1/jobs/{job_id}/events?stream=true"
        answer = await client.get(path, headers={"last-event-id": "3"})
        assert answer.content.startswith(b"id: 4\n")
        answer = await client.get(path, headers={"last-event-id": "4"})
        assert (answer.status_code, answer.content) == (204, b"")
        answer = await client.get(path, headers={"last-event-id": "x"})
        assert answer.status_code == 422


async def test_many_listeners_share_one_reader(world: World) -> None:
    feeds = Feeds(context_of(world))
    job_id = await submitted(world)
    seen = world.jobs[job_id].seq
    listeners = [asyncio.create_task(collected(world, feeds, job_id, seen)) for _ in range(50)]
    await everyone_waits()
    await world.out(job_id)
    await world.apply(job_id, CancelRequested(immediate=True))
    heard = await asyncio.gather(*listeners)
    assert len({tuple(chunks) for chunks in heard}) == 1
    assert len(heard[0]) == 4
    assert world.ledger.event_reads <= 3


async def test_a_feed_ends_with_its_last_listener(world: World) -> None:
    feeds = Feeds(context_of(world))
    job_id = await submitted(world)
    listener = asyncio.create_task(collected(world, feeds, job_id))
    await everyone_waits()
    feed = feeds.feed(job_id)
    assert feed is not None
    listener.cancel()
    await asyncio.gather(listener, return_exceptions=True)
    assert feed.task.done()
    assert feeds.feed(job_id) is None


async def test_a_silent_stream_says_that_it_is_alive(world: World) -> None:
    feeds = Feeds(context_of(world, options=ApiOptions(keep_alive_seconds=0.001)))
    job_id = await submitted(world)
    stream = feeds.stream(world.jobs[job_id], world.jobs[job_id].seq)
    assert await anext(stream) == KEEP_ALIVE
    await stream.aclose()  # type: ignore[attr-defined]


async def test_when_the_ledger_fails_listeners_are_cut_off(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_WAIT_SECONDS", 0.01)
    feeds = Feeds(context_of(world))
    job_id = await submitted(world)
    listener = asyncio.create_task(collected(world, feeds, job_id, world.jobs[job_id].seq))
    await everyone_waits()
    await world.out(job_id)
    world.ledger.failing = LedgerUnavailableError("gone")
    assert not any(b"event: end" in chunk for chunk in await listener)


async def test_many_listeners_wait_for_the_job_once(world: World) -> None:
    """One poller a job: the engine is asked by one feed, whoever listens and from wherever."""
    asked: list[int] = []
    wait = world.engine.wait

    async def counted(job_id: str, version: int, seconds: float) -> Job | None:
        asked.append(version)
        return await wait(job_id, version, seconds)

    world.engine.wait = counted  # type: ignore[method-assign]
    feeds = Feeds(context_of(world))
    job_id = await submitted(world)
    listeners = [
        asyncio.create_task(collected(world, feeds, job_id, after % 2)) for after in range(40)
    ]
    await everyone_waits()
    feed = feeds.feed(job_id)
    assert feed is not None
    assert feed.listeners == 40
    await world.apply(job_id, CancelRequested(immediate=True))
    await asyncio.gather(*listeners)
    assert len(asked) == len(set(asked)), "no version was waited for twice"


async def test_a_stream_that_was_cut_off_is_resumed_without_a_gap(world: World) -> None:
    feeds = Feeds(context_of(world))
    job_id = await submitted(world)
    first = feeds.stream(world.jobs[job_id], 0)
    seen = parsed((await anext(first)).partition(b"\n\n")[0])["id"]
    await first.aclose()  # type: ignore[attr-defined]
    await world.out(job_id)
    await world.apply(job_id, CancelRequested(immediate=True))
    rest = [parsed(chunk)["id"] for chunk in await collected(world, feeds, job_id, int(seen))]
    assert [seen, *rest] == ["1", "2", "3", "4", None]


async def test_when_the_process_ends_every_stream_ends_and_none_begins(world: World) -> None:
    feeds = Feeds(context_of(world))
    job_id = await submitted(world)
    listener = asyncio.create_task(collected(world, feeds, job_id))
    await everyone_waits()
    await feeds.close()
    assert not any(b"event: end" in chunk for chunk in await listener), "the job has not ended"
    assert await collected(world, feeds, job_id) == []


HISTORY = 400
LISTENERS = 100


class Turns:
    """Counts how many events are written between two turns of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = self.turns = 0
        render = streams.rendered

        def counted(job_id: str, event: Event) -> bytes:
            self.now += 1
            self.most = max(self.most, self.now)
            return render(job_id, event)

        monkeypatch.setattr(streams, "rendered", counted)

    async def turn(self) -> None:
        """As a request would that came meanwhile."""
        while True:
            self.now = 0
            self.turns += 1
            await asyncio.sleep(0)


async def replayed(world: World, monkeypatch: pytest.MonkeyPatch) -> Turns:
    """A long history, read by many at once."""
    feeds = Feeds(context_of(world))
    job_id = await submitted(world)
    await world.apply(job_id, CancelRequested(immediate=True))
    first = world.ledger.history[job_id][0]
    world.ledger.history[job_id] = [replace(first, seq=seq) for seq in range(1, HISTORY + 1)]
    world.ledger.put(replace(world.jobs[job_id], seq=HISTORY))
    turns = Turns(monkeypatch)
    turning = asyncio.create_task(turns.turn())
    heard = await asyncio.gather(*(collected(world, feeds, job_id) for _ in range(LISTENERS)))
    turning.cancel()
    assert {len(events) for events in heard} == {HISTORY + 1}, "all of it, and the end"
    return turns


async def test_many_streams_at_once_leave_turns_to_everyone_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = await replayed(world, monkeypatch)
    assert turns.most <= streams.AT_ONCE * streams.PORTION
    assert turns.turns >= LISTENERS * HISTORY / (streams.AT_ONCE * streams.PORTION)


async def test_without_pacing_they_would_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "AT_ONCE", LISTENERS)
    monkeypatch.setattr(streams, "PORTION", HISTORY)
    turns = await replayed(world, monkeypatch)
    assert turns.most > 50 * 64


async def test_a_listener_that_takes_nothing_holds_nobody_up(world: World) -> None:
    """More of them than may write at once."""
    feeds = Feeds(context_of(world))
    job_id = await submitted(world)
    stuck = [feeds.stream(world.jobs[job_id], 0) for _ in range(2 * streams.AT_ONCE)]
    for stream in stuck:
        await anext(stream)
    await world.apply(job_id, CancelRequested(immediate=True))
    assert len(await collected(world, feeds, job_id)) == world.jobs[job_id].seq + 1
    for stream in stuck:
        await stream.aclose()  # type: ignore[attr-defined]
