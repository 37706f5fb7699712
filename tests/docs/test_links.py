"""Links lead to files and headings that are there, and files that pages name exist."""

import re
from pathlib import Path

import pytest

from lucius.app.settings.kinds import RESERVED
from lucius.app.settings.loading import ROWS

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|toml|json|html))(?::\w+)?`")
BESIDE = (ROOT, ROOT / "src/lucius", ROOT / "tests/simulation")
"""Where the folders begin that a page names."""
DEPLOYED = sorted(each for each in (ROOT / "deploy").rglob("*") if each.is_file())
SETTING = re.compile(r"\bLUCIUS_\w+")
NO_SETTINGS = {"LUCIUS_COMPILED", "LUCIUS_IMAGE", "LUCIUS_NAME"}
"""How wheels are built, the image in an example, and a word for any setting."""
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|^(?:ocr|embedding|sis)/|_redrives|^tests/test_service")


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    texts = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each).lower() for each in headings)
    return {re.sub(r"[^\w -]", "", text).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text("utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        led = page.parent / path if path else page
        assert led.exists(), f"{page.name} -> {target}"
        assert not anchor or anchor in anchors(led), f"{page.name} -> {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_are_there(page: Path) -> None:
    for name in NAMED.findall(page.read_text("utf-8")):
        there = any((folder / name).exists() for folder in (*BESIDE, page.parent))
        assert there or PLACEHOLDER.search(name), f"{page.name} names {name}"


def unknown_settings(text: str) -> set[str]:
    known = {row.env for row in ROWS.values()} | set(RESERVED) | NO_SETTINGS
    files = {f"{row.env}_FILE" for row in ROWS.values() if row.secret}
    return set(SETTING.findall(text)) - known - files


@pytest.mark.parametrize(
    "page", [*PAGES, *DEPLOYED], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_settings_that_a_page_names_exist(page: Path) -> None:
    assert not unknown_settings(page.read_text("utf-8"))


def test_a_setting_that_is_gone_is_found() -> None:
    assert unknown_settings("`LUCIUS_URL`, `LUCIUS_URL_FILE`, `LUCIUS_API_KEY_FILE`") == {
        "LUCIUS_URL_FILE"
    }


def test_a_link_to_a_heading_that_is_gone_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n[here](#one)\n```\n# Two\n```\n")
    test_links_lead_somewhere(page)
    page.write_text("# One\n[here](#two)\n```\n# Two\n```\n")
    with pytest.raises(AssertionError, match="two"):
        test_links_lead_somewhere(page)
