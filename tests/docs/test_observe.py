"""What the page on observing says about credentials holds, and its scrape job works."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import yaml
from click.testing import CliRunner

from lucius.cli.main import main
from tests.api.live import live
from tests.docs.blocks import blocks_of

PAGE = (Path(__file__).parents[2] / "docs/how-to/observe.md").read_text("utf-8")


def scrape_job() -> dict[str, Any]:
    (block,) = [block for block in blocks_of(PAGE) if block.info == "yaml file=prometheus.yml"]
    job: dict[str, Any] = yaml.safe_load(block.text)["scrape_configs"][0]
    return job


def made_key(data: Path, file: str) -> str:
    """The key that the command of the page writes to that file."""
    (command,) = [block.text for block in blocks_of(PAGE) if block.kind == "run"]
    words, _, target = command.strip().partition(" > ")
    assert target == file
    made = CliRunner().invoke(main, [*words.split()[1:], "--data", str(data)])
    return made.stdout.strip()


async def status(client: httpx.AsyncClient, path: str, **headers: str) -> int:
    return (await client.get(path, headers=headers)).status_code


async def test_only_the_metrics_need_credentials_and_the_scrape_job_has_them(
    tmp_path: Path,
) -> None:
    asked = scrape_job()["authorization"]
    key = await asyncio.to_thread(made_key, tmp_path, asked["credentials_file"])
    async with live(tmp_path, auth="keys") as lucius:
        client = lucius.client
        assert [await status(client, path) for path in ("/healthz", "/readyz")] == [200, 200]
        assert await status(client, "/metrics") == 401
        assert await status(client, "/metrics", authorization=f"{asked['type']} {key}") == 200
    async with live(tmp_path / "open") as lucius:
        assert await status(lucius.client, "/metrics") == 200
