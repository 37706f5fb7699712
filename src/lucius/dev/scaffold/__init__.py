"""A project for a platform service, to be forked: `lucius service new`.

The files below `project` are templates: `$name`, `$class_name`, `$step_type` and the like are filled in.
"""

import keyword
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Final

from lucius import __version__
from lucius.core.errors import LuciusError

NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
"""As names of services in protocol files and in the Helm chart."""
STEP_TYPE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
PACKAGED: Final = ("OCR", "EMBEDDING", "SIS")
USED: Final = ("BaseModel", "FatalError", "Field", "Output", "Payload", "Service", "SyncTask")
"""What `service.py` of a project has already."""
SUFFIX: Final = ".tmpl"


class ProjectError(LuciusError):
    """A project that cannot be written; the message says why."""


def write_project(folder: Path, step_type: str) -> list[Path]:
    """Write a project into a folder of that name, which must not be there. The paths of its files."""
    name = folder.resolve().name
    _check(name, step_type)
    words = _words(name, step_type)
    if folder.exists() or folder.is_symlink():
        raise ProjectError(f"{folder} is there already: name another folder, or remove it")
    written = []
    for path, text in _templates():
        target = folder / Template(path.removesuffix(SUFFIX)).substitute(words)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(Template(text).substitute(words), "utf-8")
        written.append(target)
    return sorted(written)


def _check(name: str, step_type: str) -> None:
    if not NAME.fullmatch(name):
        raise ProjectError(
            f"{name!r} cannot name a service: it takes up to 32 small letters, digits and hyphens, begins"
            " with a letter and ends without a hyphen, such as page-counter"
        )
    if not STEP_TYPE.fullmatch(step_type):
        hint = step_type.upper().replace("-", "_")
        meant = f" (did you mean {hint}?)" if STEP_TYPE.fullmatch(hint) else ", such as PAGE_COUNT"
        raise ProjectError(
            f"{step_type!r} is no step type: it takes up to 64 capitals, digits and underscores, and"
            f" begins with a letter{meant}"
        )


def _words(name: str, step_type: str) -> dict[str, str]:
    return {
        "name": name,
        "class_name": _class_name(name),
        "step_type": step_type,
        "step_id": step_type.lower(),
        "protocols": "protocols" if step_type in PACKAGED else "packaged,protocols",
        "version": __version__,
    }


def _class_name(name: str) -> str:
    """`page-counter` is PageCounter. What means something else in the project's code is made longer."""
    made = "".join(part.capitalize() for part in re.split("-+", name))
    return f"{made}Service" if keyword.iskeyword(made) or made in USED else made


def _templates() -> Iterator[tuple[str, str]]:
    """Every template, by its path inside the project."""

    def below(place: Traversable, path: str) -> Iterator[tuple[str, str]]:
        for each in sorted(place.iterdir(), key=lambda found: found.name):
            here = f"{path}{each.name}"
            if each.is_dir():
                yield from below(each, f"{here}/")
            elif each.name.endswith(SUFFIX):
                yield here, each.read_text("utf-8")

    yield from below(files(__name__) / "project", "")
