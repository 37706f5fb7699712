"""What this build does not have."""

import importlib
from pathlib import Path
from types import ModuleType

from lucius.core.errors import LuciusError


class UnsupportedError(LuciusError):
    """A backend or service that this build does not have."""


class LibrariesMissingError(UnsupportedError):
    """The packaged services are not installed: a server can run without them."""


def optional(module: str, setting: str, extra: str) -> ModuleType:
    """An adapter whose library comes with an extra: it is looked for only where a setting needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"{setting} needs the package {error.name}: pip install 'lucius[{extra}]'"
        ) from error


def key_beside(certificate: str) -> str | None:
    """The file with its private key, as `tls.key` beside `tls.crt`. None: its own file has it too."""
    beside = Path(certificate).with_suffix(".key") if certificate else None
    return str(beside) if beside is not None and beside.exists() else None
