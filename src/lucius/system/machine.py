"""Folders that only their owner can enter, and Python processes that import nothing from the current folder.

No other module makes either of them in its own way: `tests/security/test_source.py` looks for those that do.
"""

import os
import sys
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o700


def private_folder(path: Path) -> Path:
    """Make it, and each folder above it that is missing, with mode 0700. One that exists keeps its mode.

    `mkdir(0o700, parents=True)` would give the folders above the mode of the umask.
    """
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(PRIVATE, exist_ok=True)
    return path


def private_text(path: Path, text: str) -> Path:
    """Write a file that only its owner can read, in place of one that may have been open."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def python_command(module: str, *words: str) -> list[str]:
    """`python -m module words`. With -P Python does not look for modules in the current folder."""
    return [sys.executable, "-P", "-m", module, *words]
