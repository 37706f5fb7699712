"""`lucius` as it is where only some of the pinned libraries are installed: the others cannot be imported."""

import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def lucius_with(pins: str) -> list[str]:
    """The command, in an environment that `requirements/PINS.txt` alone has filled."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys({missing(pins)!r}))\n"
    return [sys.executable, "-c", hidden + "from lucius.cli.main import main; main()"]


def missing(pins: str) -> list[str]:
    text = (REQUIREMENTS / f"{pins}.txt").read_text()
    installed = {_plain(name) for name in PINNED.findall(text)} | {"lucius"}
    return [
        name
        for name, owners in packages_distributions().items()
        if not installed & {_plain(owner) for owner in owners}
    ]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
