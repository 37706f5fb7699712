"""A process of a stack is waited for while it lives, and started again when it ends by itself."""

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lucius.app import stacks
from lucius.app.stacks import Part, PartMissingError
from lucius.core.errors import LuciusError

NOTES = "open({path!r}, 'a').write('x'); print('ready', flush=True)"


def part(code: str, **how: Any) -> Part:
    return Part("thing", [sys.executable, "-c", code], os.environ, **how)


async def never() -> None:
    raise ConnectionError("nobody listens")


async def test_one_that_ends_before_it_is_ready_is_named() -> None:
    short = part("")
    with pytest.raises(PartMissingError, match="the thing does not start"):
        await short.start()
    await short.stop()


async def test_one_that_ends_before_it_answers_is_named_at_once() -> None:
    silent = part("", speaks=False)
    await silent.start()
    with pytest.raises(PartMissingError, match="the thing does not start"):
        await silent.answers(never)
    await silent.stop()


async def test_one_that_lives_and_does_not_answer_is_named_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stacks, "PATIENCE", 0.0)
    silent = part("import sys; sys.stdin.read()", speaks=False)
    await silent.start()
    try:
        with pytest.raises(PartMissingError, match="does not answer: nobody listens"):
            await silent.answers(never)
    finally:
        await silent.stop()


async def test_one_that_ends_by_itself_is_started_again_until_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "PAUSE", 0.0)
    noted, again = tmp_path / "starts", Counter[str]()

    async def look() -> None:
        again["looks"] += 1
        raise LuciusError("not yet")

    restless = part(NOTES.format(path=str(noted)), again=look)
    await restless.start()
    keeping = asyncio.create_task(restless.keep())
    async with asyncio.timeout(60):
        while len(noted.read_text()) < 3:
            await asyncio.wait([keeping], timeout=0.05)
        await restless.stop()
        await keeping
    assert again["looks"] >= 1, "what has to be done then is done"
