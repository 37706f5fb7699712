"""The composition root: builds what a process needs from its settings, and runs it."""

from lucius.bootstrap.adapters import (
    demo_services,
    key_file,
    ledger_path,
    named_service,
    open_ledger,
    open_workspace,
)
from lucius.bootstrap.runtime import Runtime, build
from lucius.bootstrap.serve import serve
from lucius.bootstrap.upkeep import prune, restore_ledger, verify

__all__ = [
    "Runtime",
    "build",
    "demo_services",
    "key_file",
    "ledger_path",
    "named_service",
    "open_ledger",
    "open_workspace",
    "prune",
    "restore_ledger",
    "serve",
    "verify",
]
