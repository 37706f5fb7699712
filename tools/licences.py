"""NOTICE: the licence of every library that an installation may bring, as its package declares it.

What is not installed here, because it is for another system or another Python, keeps the line that it has.
"""

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SHIPPED: Final = ("image", "services")
HEAD: Final = """\
LUCIUS
Copyright (c) The LUCIUS authors

The wheel has the licence in the file LICENSE, and one file that others wrote: htmx, with its licence beside
it (lucius/http/console/assets). It brings no library: with all extras these, or newer ones, are installed
from their own packages. `make docs` writes this list.
Two of them have more to be read: opencv-python-headless has an FFmpeg library in it (LGPL-2.1), and the model
in wordllama was trained from token embeddings of LLaMA 2 and Phi 3, whose makers have licences of their own.

"""
ROW: Final = re.compile(r"^(\S+)  +(\S.*)$", re.MULTILINE)
SPELLINGS: Final = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd-3-clause, apache-2.0, dependency licenses": "BSD-3-Clause AND Apache-2.0",
    "dual license": "Apache-2.0 OR BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
"""Words that packages use for what SPDX has an identifier for."""
MIT: Final = "Permission is hereby granted, free of charge, to any person obtaining a copy"
ALLOWED: Final = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BlueOak-1.0.0", "CC0-1.0", "CNRI-Python",
    "ISC", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib",
}  # fmt: skip
"""Licences that ask for no source of what is built on them."""


def pinned(*files: str) -> list[str]:
    """The names in `requirements/FILE.txt`."""
    found = set()
    for file in files:
        text = (ROOT / "requirements" / f"{file}.txt").read_text("utf-8")
        found |= set(re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE))
    return sorted(re.sub(r"[-_.]+", "-", name).lower() for name in found)


def declared(name: str) -> str | None:
    """The SPDX expression of a package. None: it is not installed here, or its licence is not known."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    classifiers = (each.split(" :: ") for each in about.get_all("Classifier", []))
    named = [each[-1] for each in classifiers if each[0] == "License" and len(each) == 3]
    given = (*about.get_all("License-Expression", []), *about.get_all("License", []), *named)
    return next((text for text in map(_spdx, filter(None, given)) if text), None)


def _spdx(text: str) -> str | None:
    if MIT in " ".join(text.split()):
        return "MIT"
    first = text.strip().splitlines()[0].strip()
    spelled = SPELLINGS.get(first.lower(), first)
    return spelled if identifiers(spelled) <= ALLOWED else None


def identifiers(expression: str) -> set[str]:
    return set(re.split(r" (?:AND|OR) |[()]", expression)) - {""}


def stated() -> dict[str, str]:
    """What NOTICE says, by name."""
    page = ROOT / "NOTICE"
    below = page.read_text("utf-8").rpartition("\n\n")[2] if page.exists() else ""
    return dict(ROW.findall(below))


def _rows() -> Iterator[tuple[str, str]]:
    before = stated()
    for name in pinned(*SHIPPED):
        licence = declared(name) or before.get(name)
        if licence is None:
            raise SystemExit(
                f"{name} declares no licence that tools/licences.py allows: look at it"
            )
        yield name, licence


def notice() -> str:
    rows = list(_rows())
    width = max(len(name) for name, _ in rows) + 2
    return HEAD + "".join(f"{name:<{width}}{licence}\n" for name, licence in rows)
