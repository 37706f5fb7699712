"""`stack.env`: the settings of a running `lucius up --stack NAME`, for commands on its data directory.

It holds the secrets of the stack, so only its owner can read it.
"""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lucius.machine import private_text

NAME: Final = "stack.env"


def write(data: Path, environ: Mapping[str, str]) -> None:
    """As a shell reads them too: `set -a; . stack.env`."""
    named = {name: text for name, text in environ.items() if name.startswith("LUCIUS_")}
    lines = (f"{name}={shlex.quote(text)}\n" for name, text in named.items())
    private_text(data / NAME, "".join(lines))


def read(data: Path) -> dict[str, str]:
    """Nothing where no such stack runs on this directory."""
    path = data / NAME
    if not path.exists():
        return {}
    pairs = (line.split("=", 1) for line in path.read_text().splitlines())
    return {name: shlex.split(text)[0] for name, text in pairs}


def remove(data: Path) -> None:
    (data / NAME).unlink(missing_ok=True)


@contextmanager
def kept(data: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """They are there for as long as the stack runs."""
    write(data, environ)
    try:
        yield
    finally:
        remove(data)
