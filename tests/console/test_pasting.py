"""The forms of an order that a page shows to copy do it when they are pasted into a shell."""

import asyncio
import html
import os
import re
import sys
from pathlib import Path

import httpx
import pytest

from tests.console.served import Served, served
from tests.console.test_orders import token_in

CURL = """#!{python}
import argparse, sys, urllib.request
given = argparse.ArgumentParser()
given.add_argument("-X", dest="method")
given.add_argument("-H", dest="headers", action="append")
given.add_argument("--data")
given.add_argument("url")
given = given.parse_args()
asked = urllib.request.Request(given.url, given.data.encode(), method=given.method)
for header in given.headers:
    asked.add_header(*header.split(": ", 1))
print(urllib.request.urlopen(asked).read().decode())
"""
"""As much of curl as the forms use, so that the tests need none."""


class Shell:
    """`sh` with `lucius` and `curl` on its path, and the key in its environment."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        (folder / "curl").write_text(CURL.format(python=sys.executable))
        (folder / "curl").chmod(0o755)
        programs = os.pathsep.join([str(folder), str(Path(sys.prefix) / "bin"), os.defpath])
        self._env = {"PATH": programs, "LUCIUS_API_KEY": key}

    async def paste(self, text: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", text),
            env=self._env,
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
        return said.decode()


async def visitor(server: Served, key: str) -> httpx.AsyncClient:
    client = httpx.AsyncClient(base_url=server.url, timeout=60, follow_redirects=True)
    token = token_in((await client.get("/sign-in")).text)
    await client.post("/sign-in", data={"key": key, "form_token": token})
    return client


async def form(visiting: httpx.AsyncClient, page: str, program: str, words: str) -> str:
    """What the copy button has that begins with the program and contains these words."""
    shown = await visiting.get(page)
    texts = [html.unescape(each) for each in re.findall(r'data-copy="([^"]*)"', shown.text)]
    (found,) = [each for each in texts if each.startswith(f"{program} ") and words in each]
    return found


@pytest.mark.parametrize("program", ["lucius", "curl"])
async def test_what_is_copied_does_what_the_button_would(tmp_path: Path, program: str) -> None:
    async with served(tmp_path / "data", auth="keys") as server:
        key = server.key()
        server.authorized(key)
        folder = tmp_path / "shell"
        folder.mkdir()
        shell, visiting = Shell(folder, key), await visitor(server, key)
        yes = " --yes" if program == "lucius" else ""
        await server.failed("failed")
        live = await server.accepted("live", request_type="OCR->EMBEDDING")
        page = f"/jobs/{live}"
        await shell.paste(await form(visiting, page, program, "pause"))
        assert (await server.job(live))["state"].startswith("PAUS")
        arrow = "/jobs/order?verb=resume&request_type=OCR-%3EEMBEDDING"
        await shell.paste(await form(visiting, arrow, program, "resume") + yes)
        assert (await server.job(live))["state"] == "DISPATCHING"
        await shell.paste(await form(visiting, page, program, "cancel"))
        assert (await server.job(live))["cancel_requested_at"] is not None
        (group,) = (await server.client.get("/v1/failures")).json()["groups"]
        plan = f"/failures/redrive?group={group['group']}"
        await shell.paste(await form(visiting, plan, program, "redrive"))
        (started,) = (await server.client.get("/v1/redrives")).json()["plans"]
        assert started["matched"] == 1
        await shell.paste(await form(visiting, "/services", program, "ocr"))
        services = (await server.client.get("/v1/services")).json()["services"]
        assert [each["service"] for each in services if each["paused"]] == ["ocr"]
        await visiting.aclose()


@pytest.mark.parametrize("program", ["lucius", "curl"])
async def test_nothing_in_a_filter_is_run_by_the_shell(tmp_path: Path, program: str) -> None:
    async with served(tmp_path / "data", auth="keys") as server:
        key = server.key()
        folder = tmp_path / "shell"
        folder.mkdir()
        shell, visiting = Shell(folder, key), await visitor(server, key)
        server.authorized(key)
        hostile = "o'brien\"; touch here; $(touch here) `touch here` #"
        job_id = await server.accepted("theirs", tenant_id=hostile)
        asked = httpx.QueryParams(verb="pause", tenant_id=hostile)
        text = await form(visiting, f"/jobs/order?{asked}", program, "pause")
        await shell.paste(text.replace(" --url ", " --yes --url "))
        assert (await server.job(job_id))["state"].startswith("PAUS")
        assert not (folder / "here").exists()
        await visiting.aclose()
