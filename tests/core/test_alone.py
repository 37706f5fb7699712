"""The core needs nothing but the standard library, and of LUCIUS only the contract."""

import subprocess
import sys
from pathlib import Path

import lucius

SOURCE = Path(lucius.__path__[0]).parent
LOAD = "import sys, {modules}; print('\\n'.join(sys.modules))"


def loaded(modules: str) -> subprocess.CompletedProcess[str]:
    """By a Python that knows no installed package."""
    bare = [sys.executable, "-S", "-c", LOAD.format(modules=modules)]
    env = {"PYTHONPATH": str(SOURCE)}
    return subprocess.run(bare, capture_output=True, text=True, timeout=60, env=env, check=False)


def test_every_module_of_the_core_loads_without_any_package() -> None:
    files = (SOURCE / "lucius/core").rglob("*.py")
    names = (".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in files)
    done = loaded(",".join(name.removesuffix(".__init__") for name in names))
    assert done.returncode == 0, done.stderr
    parts = {name.split(".")[1] for name in done.stdout.split() if name.startswith("lucius.")}
    assert parts == {"core", "contract"}


def test_a_module_that_needs_a_package_is_found() -> None:
    assert "orjson" in loaded("lucius.adapters.ledgers.stored.job_codec").stderr
