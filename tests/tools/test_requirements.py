"""What may be installed is what is tested: the floor of every dependency is its pin."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
RUNTIME = PROJECT["project"]["dependencies"]
EXTRAS = PROJECT["project"]["optional-dependencies"]


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text("utf-8")
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {canonicalize_name(package): version for package, version in found}


def test_the_files_of_pins_agree() -> None:
    runtime, services, dev = pins("runtime.txt"), pins("services.txt"), pins("dev.txt")
    assert runtime.items() < services.items() < dev.items()
    assert {canonicalize_name(Requirement(text).name) for text in RUNTIME} <= runtime.keys()


def test_a_server_without_services_needs_none_of_their_libraries() -> None:
    heavy = {canonicalize_name(Requirement(text).name) for text in EXTRAS["services"]} | {"numpy"}
    assert not heavy & (pins("runtime.txt").keys() | pins("image.txt").keys())
    assert heavy <= pins("services.txt").keys()


def test_the_pins_need_no_graphics_libraries_of_the_system() -> None:
    """OpenCV with windows needs libGL."""
    assert "opencv-python" not in pins("dev.txt").keys() | pins("services.txt").keys()
