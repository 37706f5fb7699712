"""Callback keys are rotated replica by replica: whoever gets a reply knows the key that signed it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.configs.files import FileConfig
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.app.runtime import Runtime
from lucius.app.settings import load_settings
from lucius.core.routing import LANES, lane_of
from lucius.ports.bus import Message
from lucius.ports.lanes import FixedLanes
from tests.api.live import BOUND, Live
from tests.wiring import runtime_of

OLD, NEW = ("k1", "1" * 32), ("k2", "2" * 32)
ROTATION = ((OLD,), (NEW, OLD), (OLD, NEW), (NEW,))
"""As docs/how-to/azure.md has it: known everywhere, then used, then alone. The last key signs."""
HASTY = ((OLD,), (OLD, NEW), (NEW,))
"""The new key signs at once where the other replica does not know it yet."""
HALVES = (range(LANES // 2), range(LANES // 2, LANES))
Keys = Sequence[tuple[str, str]]
Directive = Mapping[str, Any]


class Ledger(MemoryLedger):
    """It outlives its processes."""

    async def close(self) -> None: ...


class Broker(MemoryBus):
    volatile = False

    async def close(self) -> None: ...


@asynccontextmanager
async def serving(runtime: Runtime) -> AsyncIterator[Live]:
    async with runtime.running():
        app = runtime.app()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://lucius") as client:
            yield Live(client, runtime)
            await app.state.feeds.close()


class Deployment:
    """Two replicas over one ledger and one bus, each the owner of half of the lanes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ledger, self._bus = Ledger(), Broker()
        self._open = [AsyncExitStack(), AsyncExitStack()]
        self.replicas: list[Live] = []
        self.number = 0

    async def restart(self, which: int, keys: Keys) -> None:
        await self._open[which].aclose()
        settings = load_settings(
            {
                "LUCIUS_DATA_DIR": str(self._folder / str(which)),
                "LUCIUS_PUBLIC_URL": "http://lucius",
                "LUCIUS_REQUIRE_REPLY_TOKEN": "true",
                "LUCIUS_CALLBACK_KEYS": ",".join(f"{name}:{secret}" for name, secret in keys),
            }
        )
        runtime = runtime_of(
            settings,
            ledger=self._ledger,
            bus=self._bus,
            config=FileConfig(),
            workspace=MemoryWorkspace(),
            lanes=FixedLanes(HALVES[which]),
        )
        live = await self._open[which].enter_async_context(serving(runtime))
        self.replicas[which : which + 1] = [live]

    async def close(self) -> None:
        for opened in self._open:
            await opened.aclose()

    async def given_out(self, which: int) -> Directive:
        """A directive whose token this replica has signed."""
        self.number += 1
        names = (f"t{self.number}-{n}" for n in range(1000))
        tenant = next(name for name in names if lane_of(name) in HALVES[which])
        await self.replicas[which].accepted(tenant_id=tenant)
        (directive,) = await self.replicas[which].pull()
        return directive

    async def acked_over_the_bus(self, directive: Directive) -> None:
        """Its lane's owner gets it, whoever that is by now."""
        body = {name: directive[name] for name in (*BOUND, "callback_token")} | {"type": "ACK"}
        message = Message(f"reply-{token_hex(4)}", body, {"type": "ACK"})
        await self._bus.publish(directive["reply_topic"], (message,))
        engine = self.replicas[directive["lane"] // (LANES // 2)].runtime.engine
        job = await engine.job(directive["jobId"])
        async with asyncio.timeout(30):  # if the reply is set aside, nothing moves the job on
            while job is not None and job.state != "IN_PROGRESS":
                job = await engine.wait(directive["jobId"], job.version, 30)


async def lost_while(deployment: Deployment, rotation: Sequence[Keys]) -> list[str]:
    """Work is out while each replica is restarted with the next keys; each reply meets the other one.

    The answer: the replies that were refused.
    """
    lost: list[str] = []
    for which in (0, 1):
        await deployment.restart(which, rotation[0])
    for keys in rotation[1:]:
        for which in (0, 1):
            out = [await deployment.given_out(each) for each in (0, 1, 0, 1)]
            await deployment.restart(which, keys)
            out += [await deployment.given_out(each) for each in (0, 1)]
            for number, directive in enumerate(out):
                one, two = deployment.replicas[:: 1 if number % 4 < 2 else -1]
                beat = await one.reply("heartbeat", directive)
                result = await two.reply("result", directive, status="SUCCEEDED")
                if beat.status_code == 401 or result.json() != {"outcome": "applied"}:
                    lost.append(f"{directive['callback_token'][:2]} at {keys}: {result.text}")
    return lost


async def test_a_rotation_loses_no_callback(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    try:
        lost = await lost_while(deployment, ROTATION[:3])
        assert not lost
        await deployment.restart(0, ROTATION[3])
        await deployment.restart(1, ROTATION[3])
        directive = await deployment.given_out(0)
        assert directive["callback_token"].startswith("k2.")
        for replica, kind in zip(deployment.replicas, ("ack", "heartbeat"), strict=True):
            assert (await replica.reply(kind, directive)).status_code == 200
        await deployment.replicas[1].answer(directive)
    finally:
        await deployment.close()


async def test_sabotage_a_key_that_signs_before_all_know_it_loses_callbacks(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    try:
        assert await lost_while(deployment, HASTY[:2])
    finally:
        await deployment.close()


async def test_sabotage_a_replica_that_forgets_the_old_key_loses_what_is_out(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    try:
        assert await lost_while(deployment, ((OLD,), (NEW,)))
    finally:
        await deployment.close()


async def test_a_reply_over_the_bus_outlives_the_key_that_signed_it(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    try:
        for which in (0, 1):
            await deployment.restart(which, (OLD,))
        out = [await deployment.given_out(which) for which in (0, 1)]
        for which in (0, 1):
            await deployment.restart(which, (OLD, NEW))
        for directive in out:
            assert directive["callback_token"].startswith("k1.")
            await deployment.acked_over_the_bus(directive)
    finally:
        await deployment.close()
