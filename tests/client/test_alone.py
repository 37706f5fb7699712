"""The client needs nothing of the server: neither its modules nor the libraries that only it uses."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import lucius

ROOT = Path(__file__).parents[2]
OWN = {"client", "contract"}
LATER = {"pydantic", "pydantic_core"}
"""With the first answer: a program that only imports the client does not pay for them."""
OF_THE_SERVER = {"starlette", "uvicorn", "jsonschema_rs", "prometheus_client", "jwt"}
LOADED = "import sys, lucius.client; print('\\n'.join(sys.modules))"


def test_it_loads_the_contract_and_no_other_part_of_lucius() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = done.stdout.split()
    parts = {name.split(".")[1] for name in loaded if name.startswith("lucius.")}
    assert parts == OWN
    assert not (OF_THE_SERVER | LATER) & {name.partition(".")[0] for name in loaded}


@pytest.mark.parametrize("own", [OWN, {"services", "platform"}], ids=["client", "services"])
def test_the_import_contract_names_every_other_package(own: set[str]) -> None:
    """A package that is new and not in the list would be open to the client, or to the services."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = [
        each
        for each in project["tool"]["importlinter"]["contracts"]
        if own & {name.removeprefix("lucius.") for name in each.get("source_modules", ())}
    ]
    tree = Path(lucius.__path__[0])
    packages = {path.parent.name for path in tree.glob("*/__init__.py")}
    (contract,) = contracts
    forbidden = {name.removeprefix("lucius.") for name in contract["forbidden_modules"]}
    assert packages - own == forbidden
