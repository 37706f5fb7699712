"""What LUCIUS is built on, and what tests need, has licences that ask for no source; NOTICE lists them."""

import json
from importlib import metadata
from pathlib import Path

import pytest

from tools.licences import ALLOWED, SHIPPED, declared, identifiers, pinned, stated

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "tests").glob("*/package-lock.json"))
WORDS = {"http://geraintluff.github.io/tv4/LICENSE.txt": "0BSD"}
"""The library tv4 is in the public domain, and says so at an address."""


def installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def test_every_library_that_is_pinned_has_a_licence_that_is_allowed() -> None:
    assert [name for name in pinned("dev") if installed(name) and not declared(name)] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.parent.name)
def test_so_has_every_package_of_the_tests(lock: Path) -> None:
    packages = json.loads(lock.read_text())["packages"]
    for path, about in packages.items():
        said = about.get("license", "")
        assert not path or identifiers(WORDS.get(said, said)) <= ALLOWED, f"{path}: {said}"


def test_notice_lists_what_an_installation_brings() -> None:
    assert list(stated()) == pinned(*SHIPPED)
    assert all(identifiers(each) <= ALLOWED for each in stated().values())


@pytest.mark.parametrize(
    ("field", "said", "licence"),
    [
        ("License-Expression", "MIT AND GPL-3.0-only", None),
        ("License", "GPL", None),
        ("Classifier", "License :: OSI Approved :: GNU Affero General Public License v3", None),
        ("License", "Copyright somebody", None),
        ("Summary", "declares nothing", None),
        ("Classifier", "License :: OSI Approved :: MIT License", "MIT"),
        ("License-Expression", "MIT AND (0BSD OR ISC)", "MIT AND (0BSD OR ISC)"),
    ],
)  # fmt: skip
def test_what_is_allowed_is_an_identifier_that_is_known(
    field: str, said: str, licence: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "planted-1.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.4", "Name: planted", "Version: 1", f"{field}: {said}", ""]
    (folder / "METADATA").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert declared("planted") == licence
