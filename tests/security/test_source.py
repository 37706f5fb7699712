"""Rules of the source that a review would have to find again and again: one place does it, nobody else."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import lucius

TREE = Path(lucius.__path__[0])
ALONE = "system/machine.py"
"""The module that may do it."""
PYTHONS = ("python", "python3")


def found(text: str) -> list[str]:
    return [*own_pythons(text), *open_parents(text)]


def own_pythons(text: str) -> Iterator[str]:
    """Commands of a Python that `machine.python_command` did not make.

    `Path(sys.executable)` is no command: it leads to what is installed beside it.
    """
    tree = ast.parse(text)
    paths = {
        id(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Path"
        for argument in node.args
    }
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="executable", value=ast.Name(id="sys")):
                if id(node) not in paths:
                    yield f"{node.lineno}: sys.executable"
            case ast.ImportFrom(module="sys", names=names):
                if any(name.name == "executable" for name in names):
                    yield f"{node.lineno}: sys.executable"
            case ast.List(elts=[ast.Constant(value=str() as word), *_]):
                if word.rpartition("/")[2] in PYTHONS:
                    yield f"{node.lineno}: {word}"


def open_parents(text: str) -> Iterator[str]:
    """Folders with a mode whose parents get the mode of the umask."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        named = {keyword.arg for keyword in node.keywords}
        with_mode = bool(node.args) or "mode" in named
        if called == "os.makedirs" or (
            called.endswith(".mkdir") and with_mode and "parents" in named
        ):
            yield f"{node.lineno}: {called}"


def test_python_processes_and_private_folders_are_made_in_one_place() -> None:
    files = {path.relative_to(TREE): path for path in TREE.rglob("*.py")}
    faults = {
        str(name): faults
        for name, path in files.items()
        if str(name) != ALONE and (faults := found(path.read_text("utf-8")))
    }
    assert faults == {}
    assert len(list(own_pythons(files[Path(ALONE)].read_text("utf-8")))) == 1


@pytest.mark.parametrize(
    "line",
    [
        'words = [sys.executable, "-m", "lucius"]',
        'run(f"{sys.executable} -m lucius")',
        "from sys import executable",
        'words = ["/usr/bin/python3", "-m", "lucius"]',
        "folder.mkdir(0o700, parents=True)",
        "folder.mkdir(mode=0o700, parents=True, exist_ok=True)",
        "os.makedirs(folder, 0o700)",
    ],
)
def test_each_way_around_it_is_seen(line: str) -> None:
    assert len(found(line)) == 1


@pytest.mark.parametrize("line", ["Path(sys.executable).parent", "folder.mkdir(parents=True)"])
def test_what_is_something_else_is_left_alone(line: str) -> None:
    assert found(line) == []


def test_projects_that_are_written_for_others_look_nowhere_either() -> None:
    for path in TREE.rglob("*.tmpl"):
        for line in path.read_text("utf-8").splitlines():
            assert "sys.executable" not in line or '"-P"' in line, path
