"""`stack.env`: the settings of a running `lucius up --stack azure`, for commands that look at its data."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

NAME: Final = "stack.env"


def write(data: Path, environ: Mapping[str, str]) -> None:
    """As a shell reads them too: `set -a; . stack.env`."""
    path = data / NAME
    named = {name: text for name, text in environ.items() if name.startswith("LUCIUS_")}
    path.touch(0o600)
    path.write_text("".join(f"{name}={shlex.quote(text)}\n" for name, text in named.items()))


def read(data: Path) -> dict[str, str]:
    """Nothing where no such stack runs on this directory."""
    path = data / NAME
    if not path.exists():
        return {}
    pairs = (line.split("=", 1) for line in path.read_text().splitlines())
    return {name: shlex.split(text)[0] for name, text in pairs}


def remove(data: Path) -> None:
    (data / NAME).unlink(missing_ok=True)
