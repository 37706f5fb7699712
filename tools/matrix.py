"""`make check test-fast` on every Python that LUCIUS supports and that is installed here: `make matrix`.

It needs nothing but the Python that runs it. Each interpreter has an environment of its own below `.venvs`.
The last column is the CPU of a fixed piece of work, to see which build is fastest: a smaller one is better.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
VERSION: Final = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
WORK: Final = """
import json, time
def once():
    kept = {}
    for number in range(20000):
        kept[str(number % 997)] = {"number": number, "text": f"job-{number}", "steps": [number] * 5}
    return sum(len(each["steps"]) for each in json.loads(json.dumps(kept)).values())
once()
def spent():
    begun = time.process_time()
    for _ in range(5):
        once()
    return time.process_time() - begun
print(round(min(spent() for _ in range(5)) * 1000))
"""


def supported() -> list[str]:
    """Such as 3.12, as the classifiers of the project say."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = (re.fullmatch(r".* :: (\d\.\d+)", each) for each in project["classifiers"])
    return [match[1] for match in found if match]


def interpreters() -> Iterator[tuple[str, Path]]:
    """Each version once, and its path: those on the path, and those of pyenv."""
    folders = [Path(each) for each in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    folders += sorted(Path("~/.pyenv/versions").expanduser().glob("*/bin"))
    named = [folder / f"python{version}" for folder in folders for version in supported()]
    seen: set[str] = set()
    for path in named:
        if path.parent.name == "shims" or not path.exists():
            continue  # those of pyenv run whatever it is set to
        asked = subprocess.run([path, "-c", VERSION], capture_output=True, text=True, check=False)
        version = asked.stdout.strip()
        if asked.returncode == 0 and version not in seen:
            seen.add(version)
            yield version, path


def passes(python: Path, log: Path) -> bool:
    words = [
        "make",
        f"VENV={log.with_suffix('').relative_to(ROOT)}",
        f"PYTHON={python}",
        "check",
        "test-fast",
    ]
    with log.open("wb") as out:
        return subprocess.run(words, cwd=ROOT, stdout=out, stderr=out, check=False).returncode == 0


def main() -> int:
    failed = 0
    (ROOT / ".venvs").mkdir(exist_ok=True)
    for version, python in interpreters():
        work = subprocess.run([python, "-c", WORK], capture_output=True, text=True, check=True)
        log = ROOT / ".venvs" / f"{version}.log"
        good = passes(python, log)
        failed += not good
        outcome = "passes" if good else f"fails: {log.relative_to(ROOT)}"
        print(
            f"{version:<8} {outcome:<40} {work.stdout.strip():>5} ms  {python}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
