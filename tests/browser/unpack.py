"""Unpacks the Chromium of the npm package once: `python unpack.py FOLDER`, where npm has installed it."""

import io
import sys
import tarfile
from pathlib import Path

import brotli

PACKED = "node_modules/@sparticuz/chromium/bin"
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{folder}/font-cache</cachedir>
</fontconfig>
"""
"""Those of the package, so that there are some on every machine; a browser without fonts ends."""


def unpack(folder: Path) -> None:
    packed = folder / PACKED
    for name in ("al2023", "fonts"):
        content = brotli.decompress((packed / f"{name}.tar.br").read_bytes())
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(folder / name, filter="data")
    (folder / "fonts.conf").write_text(FONTS.format(folder=folder))
    program = folder / "chromium"
    program.write_bytes(brotli.decompress((packed / "chromium.br").read_bytes()))
    program.chmod(0o755)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]).absolute())
