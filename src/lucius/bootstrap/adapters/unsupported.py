"""What this build does not have."""

import importlib
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
