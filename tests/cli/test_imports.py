"""A process imports no large library that it does not use: each costs CPU at every start."""

import subprocess
import sys

import pytest

LARGE = {
    "aiohttp",
    "azure",
    "httpx",
    "jinja2",
    "jwt",
    "nats",
    "opentelemetry.sdk",
    "prometheus_client",
    "pydantic",
    "sqlite3",
    "starlette",
    "temporalio",
    "uvicorn",
    "yaml",
}
CLIENT = {"aiohttp"}
SERVICE = {"prometheus_client", "pydantic", "sqlite3", "starlette", "uvicorn", "yaml"}
SERVER = SERVICE | {"httpx", "jinja2", "jwt"}
SAYS = """
import sys
{imports}
print(*sorted(name for name in {large!r} if name in sys.modules))
"""
RUN = """
sys.argv = {argv!r}
from lucius.cli.main import main
try:
    main()
except SystemExit:
    pass
"""


def imported(imports: str) -> set[str]:
    code = SAYS.format(imports=imports, large=LARGE)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("argv", "may"),
    [
        (["lucius", "--help"], set()),
        (["lucius", "jobs", "--help"], set()),
        (["lucius", "up", "--help"], set()),
        (["lucius", "jobs", "--url", "http://127.0.0.1:1"], CLIENT),
        (["lucius", "settings"], {"pydantic", "yaml"}),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_command_imports_only_what_it_uses(argv: list[str], may: set[str]) -> None:
    assert imported(RUN.format(argv=argv)) <= may


@pytest.mark.parametrize(
    ("entry", "may"),
    [
        ("lucius.app.processes", SERVER),
        ("lucius.app.standalone", SERVICE),
        ("lucius.app.telemetry", {"pydantic", "yaml"}),
        ("lucius.platform", {"prometheus_client", "pydantic"}),
        ("lucius.client", CLIENT),
        ("lucius.client.plain", CLIENT),
    ],
)
def test_an_entry_point_imports_only_what_it_uses(entry: str, may: set[str]) -> None:
    """The backends of a deployment (Azure, NATS, Temporal) come with their settings."""
    assert imported(f"import {entry}") <= may
