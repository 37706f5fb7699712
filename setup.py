"""The hot modules as extension modules, made by mypyc. All else about the package is in `pyproject.toml`.

`LUCIUS_COMPILED=1` asks for them, `LUCIUS_COMPILED=auto` where a compiler is there; without it every module
stays Python. They are made for a wheel only, never beside the sources: Python would load them there, and not
a source that has been changed since.
"""

import os
import shlex
import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup


def modules(room: str, *names: str) -> list[str]:
    return [f"src/lucius/{room}/{name}.py" for name in names]


HOT = [
    *modules("core", "callbacks", "decide", "idempotency", "references", "retry", "routing"),
    *modules("core", "sequence", "ticks", "turn", "wire"),
    *modules("engine", "cache", "dispatcher", "inbox", "loop", "releases", "replies", "windows"),
    *modules("engine/admission", "rules"),
    *modules("adapters/buses", "linked", "memory", "packets", "subscriptions"),
    *modules("adapters/ledgers/sqlite", "batch", "rows"),
    *modules("adapters/ledgers/stored", "job_codec", "json_form", "plan_codec"),
    *modules("http", "body", "tokens", "views"),
    *modules("platform", "commit", "messages"),
]
"""Modules that every job goes through. Those of records stay Python: mypyc loses their `ClassVar`s, and gains
nothing where `dataclasses` writes the methods. So do `engine/observer.py`, whose classes are inherited from,
and `platform/execution.py`, which does not run when it is compiled."""


def extensions() -> list[Extension]:
    wanted = os.environ.get("LUCIUS_COMPILED")
    if wanted not in ("1", "auto") or "bdist_wheel" not in sys.argv:
        return []
    if lacking := missing():
        if wanted == "1":
            sys.exit(f"LUCIUS_COMPILED=1: {lacking}")
        print(f"no module is compiled: {lacking}", file=sys.stderr)
        return []
    from mypyc.build import mypycify

    level = os.environ.get("MYPYC_OPT_LEVEL", "3")
    how = ["--config-file=", "--cache-dir=build/mypy", "--ignore-missing-imports"]
    return mypycify([*how, *HOT], opt_level=level, group_name="lucius")


def missing() -> str | None:
    """What a build would fail for, and what to install. It is asked beforehand: half a build does not run."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler}): install one, on Debian `apt install gcc libc6-dev`"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "there is no Python.h: install the headers of Python, on Debian `apt install python3-dev`"
    if find_spec("mypyc") is None:
        return "there is no mypyc: `pip install mypy`, and build with --no-build-isolation"
    return None


setup(ext_modules=extensions())
