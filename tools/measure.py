"""Counts what a newcomer has to hold: `python -m tools.measure [--json] [--no-job]`.

Files, lines, functions, settings, words and the glossary are read from the tree. One job's way is traced: a
server runs a job of one step, and every function of LUCIUS that its processes enter meanwhile is counted.
"""

import argparse
import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final
from urllib.request import Request, urlopen

from lucius.app.lifecycle import free_port
from lucius.app.settings.loading import ROWS

ROOT: Final = Path(__file__).resolve().parent.parent
SMALL: Final = 60
"""A file with fewer lines is usually a paragraph of another one."""
START_SECONDS: Final = 60.0
Counts = dict[str, Any]
Function = ast.FunctionDef | ast.AsyncFunctionDef

TRACER: Final = """
import os, signal, sys, threading
entered = None
def call(frame, event, argument):
    if entered is not None and event == "call":
        code = frame.f_code
        if f"{os.sep}lucius{os.sep}" in code.co_filename:
            entered.add((code.co_filename, code.co_qualname))
def begin(*ignored):
    global entered
    entered = set()
def end(*ignored):
    global entered
    found, entered = entered, None
    path = os.path.join(os.environ["MEASURE_TRACES"], str(os.getpid()))
    with open(path + ".part", "w") as file:
        file.writelines(f"{name}\\t{where}\\n" for where, name in sorted(found or ()))
    os.rename(path + ".part", path)
signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, end)
threading.setprofile(call)
sys.setprofile(call)
"""
"""Every Python process of the traced server runs this first. One signal begins the count, one ends it."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="measure", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--no-job", action="store_true", help="do not trace a job")
    chosen = parser.parse_args()
    counts = counted(ROOT) | ({} if chosen.no_job else way_of_one_job())
    if chosen.json:
        print(json.dumps(counts, indent=1))
        return
    width = max(map(len, counts))
    for name, value in counts.items():
        print(
            f"{name:{width}}  {value:,}" if isinstance(value, int) else f"{name:{width}}  {value}"
        )


# -- the tree --------------------------------------------------------------------------------


def counted(root: Path) -> Counts:
    source, tests = _python(root / "src"), _python(root / "tests")
    texts = {path: path.read_text(encoding="utf-8") for path in source}
    functions = [each for text in texts.values() for each in _functions(text)]
    sizes = [(each.end_lineno or each.lineno) - each.lineno + 1 for each in functions]
    lines = sum(text.count("\n") for text in texts.values())
    code, comments = map(sum, zip(*map(_code_and_comments, source), strict=True))
    return {
        "source files": len(source),
        "source lines": lines,
        "source lines of code": code,
        "comments and docstrings, % of code": round(100 * comments / code, 1),
        f"files under {SMALL} lines": sum(text.count("\n") < SMALL for text in texts.values()),
        "folders of the package": sum(each.is_dir() for each in _visible(root / "src" / "lucius")),
        "functions": len(functions),
        "lines of a function, median": int(median(sizes)),
        "lines of a function, p95": int(quantiles(sizes, n=20)[-1]),
        "test files": len(tests),
        "test lines": sum(_lines(path) for path in tests),
        "settings": len(ROWS),
        "words of documentation": sum(_words(each) for each in _pages(root)),
        "pages of documentation": len(_pages(root)),
        "words of the glossary": _rows(root / "docs" / "glossary.md"),
    }


def _python(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def _visible(folder: Path) -> list[Path]:
    return [each for each in folder.iterdir() if not each.name.startswith("_")]


def _pages(root: Path) -> list[Path]:
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def _words(page: Path) -> int:
    """What has a letter or a digit: bars of tables and brackets of examples are no words."""
    return sum(any(map(str.isalnum, each)) for each in page.read_text(encoding="utf-8").split())


def _lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def _functions(text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function):
            yield node


def _code_and_comments(path: Path) -> tuple[int, int]:
    """Lines with code, and lines of comments and of strings that stand alone."""
    comments = set(_prose(ast.parse(path.read_text(encoding="utf-8"))))
    code: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            where = range(token.start[0], token.end[0] + 1)
            if token.type == tokenize.COMMENT:
                comments.update(where)
            elif token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING):
                code.update(where)
    return len(code - comments), len(comments)


def _prose(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _rows(page: Path) -> int:
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return len(rows) - sum(line.startswith("| word ") for line in rows)


# -- one job ---------------------------------------------------------------------------------


def way_of_one_job() -> Counts:
    """Functions and files that a job of one step enters, from the request to its answer."""
    with tempfile.TemporaryDirectory(prefix="lucius-measure-") as name:
        server, *services = traced(Path(name))
    both = server.union(*services)
    return {
        "one job, functions of the server": len(server),
        "one job, files of the server": len({where for _, where in server}),
        "one job, functions with its service": len(both),
        "one job, files with its service": len({where for _, where in both}),
    }


def traced(folder: Path) -> list[set[tuple[str, str]]]:
    """Names and files of the functions that the second of two equal jobs enters, the server's first."""
    (folder / "sitecustomize.py").write_text(TRACER)
    (folder / "traces").mkdir()
    document = folder / "document.txt"
    document.write_text("a document")
    port = free_port()
    server = _server(folder, port)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, server)
        _run_job(url, document)
        processes = [server.pid, *_children(server.pid)]
        for process in processes:
            os.kill(process, signal.SIGUSR1)
        _run_job(url, document)
        for process in processes:
            os.kill(process, signal.SIGUSR2)
        return [_trace(folder / "traces" / str(process)) for process in processes]
    finally:
        server.kill()
        server.wait()


def _server(folder: Path, port: int) -> "subprocess.Popen[bytes]":
    command = [
        sys.executable,
        "-m",
        "lucius",
        "up",
        "--no-services",
        "--service",
        "bench.echo:ocr_committed",
    ]
    return subprocess.Popen(
        [*command, "--port", str(port), "--data", str(folder / "data")],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
            "MEASURE_TRACES": str(folder / "traces"),
            "LUCIUS_INPUT_ROOTS": str(folder),
            "LUCIUS_OUTPUT_ROOTS": str(folder),
            "LUCIUS_LOG_LEVEL": "ERROR",
        },
        stdout=subprocess.DEVNULL,
    )


def _wait_until_ready(url: str, server: "subprocess.Popen[bytes]") -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and server.poll() is None:
        try:
            with urlopen(f"{url}/readyz", timeout=5):
                return
        except OSError:  # not there yet, or too busy to answer in time
            time.sleep(0.1)
    raise RuntimeError("the server did not become ready")


def _run_job(url: str, document: Path) -> None:
    command = {
        "tenant_id": "acme",
        "request_type": "OCR",
        "schema_version": "v1",
        "input_ref": document.as_uri(),
        "output_ref": document.with_suffix(".json").as_uri(),
        "payload": {},
        "overwrite": True,
        "idempotency_key": str(time.monotonic_ns()),
    }
    request = Request(
        f"{url}/v1/orchestrate?wait_seconds=30",
        json.dumps(command).encode(),
        {"content-type": "application/json"},
    )
    with urlopen(request, timeout=60) as answer:
        job = json.load(answer)
    if job["state"] != "SUCCEEDED":
        raise RuntimeError(f"the job did not succeed: {job}")


def _children(pid: int) -> list[int]:
    """The Python processes that a process has started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in listed]


def _trace(path: Path) -> set[tuple[str, str]]:
    give_up_at = time.monotonic() + START_SECONDS
    while not path.exists():
        if time.monotonic() > give_up_at:
            raise RuntimeError("a process did not say what it entered")
        time.sleep(0.05)
    pairs = (line.split("\t") for line in path.read_text().splitlines())
    return {(name, where) for name, where in pairs}


if __name__ == "__main__":
    main()
