"""The sdist and the wheel: `make dist`. The same commit gives the same bytes, wherever they are built.

They are made of a copy, so that nothing which an earlier build left beside the sources gets in. The wheel
is made of the sdist, so the sdist is whole. Dates are SOURCE_DATE_EPOCH's; without it, that of the commit.
"""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PARTS: Final = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
BACKEND: Final = (
    "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
)


def tree(folder: Path) -> Path:
    """A copy of what a wheel is made of."""
    folder.mkdir(parents=True)
    for name in PARTS:
        shutil.copyfile(ROOT / name, folder / name)
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "*.result.json")
    shutil.copytree(ROOT / "src", folder / "src", ignore=left_out, copy_function=shutil.copyfile)
    return folder


def build(folder: Path, epoch: int) -> tuple[Path, Path]:
    """The sdist and the wheel, in a folder which has nothing else afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    old = os.umask(0o022)  # the modes of files are in the archives
    try:
        work = folder / "work"
        _backend(tree(work / "tree"), "build_sdist", folder, epoch)
        (sdist,) = folder.glob("*.tar.gz")
        sdist.write_bytes(_same(sdist, epoch))
        with tarfile.open(sdist) as packed:
            packed.extractall(work, filter="data")
        _backend(work / sdist.name.removesuffix(".tar.gz"), "build_wheel", folder, epoch)
    finally:
        os.umask(old)
    shutil.rmtree(work)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def _backend(tree: Path, what: str, folder: Path, epoch: int) -> None:
    """As `pip wheel --no-build-isolation` does, without a front end: the pins have none."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    subprocess.run(
        [sys.executable, "-c", BACKEND, what, str(folder.resolve())],
        cwd=tree,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _same(sdist: Path, epoch: int) -> bytes:
    """The archive in the order of its names, with one date and no owner."""
    packed = io.BytesIO()
    with (
        tarfile.open(sdist) as read,
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member in sorted(read, key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() else 0o644, {}
            written.addfile(member, read.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def epoch_of_the_commit() -> int:
    words = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    given = os.environ.get("SOURCE_DATE_EPOCH")
    for made in build(ROOT / "dist", int(given) if given else epoch_of_the_commit()):
        print(f"{made.relative_to(ROOT)}  {made.stat().st_size:,} bytes")
