"""The stand-ins for Azure as Microsoft's SDKs for JavaScript see them: others wrote these."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from lucius.dev.standins import app_configuration, service_bus

HERE = Path(__file__).parent
MODULES = Path(sys.prefix) / "azuresdk/node_modules"


@pytest.mark.parametrize("stand_in", [app_configuration.StandIn, service_bus.StandIn])
async def test_the_sdk_finds_what_microsoft_documents(stand_in: type) -> None:
    assert MODULES.exists(), "make .venv/azuresdk/.stamp installs the SDKs"
    script = HERE / f"{stand_in.__module__.split('.')[3]}.cjs"
    async with stand_in() as running:
        node = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "node"),
            str(script),
            running.connection_string,
            env={**os.environ, "NODE_PATH": str(MODULES)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await node.communicate()
    assert (node.returncode, said) == (0, b"all of it\n"), said.decode()
