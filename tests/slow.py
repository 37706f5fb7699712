"""Which tests are slow: those that start a process or a broker. It follows from their code.

Nobody has to mark them, but where it cannot be seen (LUCIUS starts the process, or a command does):
`pytest.mark.slow`. So does a test that computes for seconds. A quick one
that starts a process all the same fails.
"""

import concurrent.futures
import multiprocessing
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import CodeType, FunctionType, MethodType
from typing import Any

import pytest

from lucius.dev.standins.service_bus import StandIn

STARTERS = {id(each) for each in (subprocess, multiprocessing, concurrent.futures, StandIn)}
NAMES = {
    "create_subprocess_exec",
    "create_subprocess_shell",
    "ProcessPoolExecutor",
    "fork",
    "spawn",
}
"""How processes are started: by these modules, or by something of such a name. A broker is as slow as one."""
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}
"""What Python says of it in its audit."""

_quickly: dict[int, object] = {}
"""Values that lead to no process."""
_quick: list[str] = []
"""The quick test that runs at the moment, if one does."""


def is_slow(item: pytest.Item) -> bool:
    """By what its function, its fixtures and its parameters lead to. A group shares something costly."""
    if item.get_closest_marker("xdist_group"):
        return True
    fixtures = getattr(item, "_fixtureinfo", None)
    defined = fixtures.name2fixturedefs.values() if fixtures else ()
    parameters = getattr(item, "callspec", None)
    roots = [getattr(item, "obj", None), *(each.func for several in defined for each in several)]
    return _starts([*roots, *(parameters.params.values() if parameters else ())])


def _starts(roots: Iterable[object]) -> bool:
    """Whether one of these values leads to something that starts a process."""
    seen: dict[int, object] = {}
    ahead = list(roots)
    while ahead:
        value = ahead.pop()
        if id(value) in STARTERS or _isolated(value):
            return True
        if id(value) not in seen and id(value) not in _quickly:
            seen[id(value)] = value
            ahead += _led_to(value)
    _quickly.update(seen)
    return False


def _led_to(value: Any) -> Iterator[object]:
    value = getattr(value, "__wrapped__", value)
    match value:
        case MethodType():
            yield value.__func__
        case FunctionType() if _ours(value):
            yield from _named(value.__code__, value.__globals__)
            yield from _held(value)
        case property():
            yield value.fget
        case type() if _ours(value):
            yield from [*value.__bases__, *vars(value).values()]
        case dict():
            yield from value.values()
        case list() | tuple() | set() | frozenset():
            yield from value
        case staticmethod() | classmethod():
            yield value.__func__
        case _ if _ours(type(value)):
            yield type(value)


def _isolated(value: object) -> bool:
    """A service whose steps run in processes of their own."""
    return isinstance(value, type) and getattr(value, "isolation", None) == "process"


def _ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("tests.")


def _held(function: FunctionType) -> Iterator[object]:
    """What a function holds from where it was made."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # it is not filled yet
            yield cell.cell_contents


def _named(code: CodeType, known: Mapping[str, object]) -> Iterator[object]:
    for name in code.co_names:
        if name in NAMES:
            yield subprocess
        yield known.get(name)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _named(inner, known)


def watch() -> None:
    """A quick test that starts a process fails."""

    def heard(event: str, arguments: object) -> None:
        if event in STARTS and _quick:
            raise AssertionError(f"{_quick[-1]} starts a process: mark it as slow")

    sys.addaudithook(heard)


def begins(item: pytest.Item) -> None:
    _quick[:] = [] if item.get_closest_marker("slow") else [item.nodeid]


def ends() -> None:
    _quick.clear()
