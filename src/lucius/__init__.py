"""LUCIUS."""

from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec

__version__ = "0.9.0"


def build() -> str:
    """Whether the hot modules are compiled (`setup.py`), or are the Python sources."""
    hot = find_spec("lucius.core.decide")
    return "compiled" if hot and isinstance(hot.loader, ExtensionFileLoader) else "pure Python"
