"""The site: it builds without a network, has every page, and every link and anchor of it leads somewhere."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tools.site import write_sources

ROOT = Path(__file__).parents[2]
LOADED = {("script", "src"), ("img", "src"), ("link", "href")}


class Page(HTMLParser):
    """What a page links to, what it loads, and what links to it may name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors = {""}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif (tag, name) in LOADED and value:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)


def built(folder: Path, *, good: bool = True) -> str:
    """A site of the docs below a folder."""
    mkdocs = Path(sys.executable).parent / "mkdocs"
    words = [str(mkdocs), "build", "--strict", "--config-file", "build/mkdocs.yml"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is good, done.stderr
    return done.stderr


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    write_sources(tmp_path / "build/docs")
    return tmp_path


def faults(site: Path) -> list[str]:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded:
                    found.append(f"{path.name} loads {link}")
                continue
            led = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            led = site / parts.path.lstrip("/") if parts.path.startswith("/") else led
            led = led / "index.html" if led.is_dir() else led
            if not led.exists() or (
                led in pages and unquote(parts.fragment) not in pages[led].anchors
            ):
                found.append(f"{path.name} -> {link}")
    return found


def test_every_page_is_in_it_and_every_link_leads_somewhere(sources: Path) -> None:
    built(sources)
    site = sources / "build/site"
    assert faults(site) == []
    docs = sources / "build/docs"
    pages = {path.relative_to(docs) for path in docs.rglob("*.md")}
    assert {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")} < pages
    assert all((site / page).with_suffix(".html").exists() for page in pages)
    index = (site / "search/search_index.json").read_text("utf-8")
    assert "Harbour Board" in index, "the search knows what the tutorial says"
    named = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text("utf-8"))
    assert {Path(each) for each in named} == pages


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("tutorial.md", "\n[a page that is gone](gone.md)\n"),
        ("tutorial.md", "\n[a heading that is gone](glossary.md#gone)\n"),
        ("forgotten.md", "# A page that is not in the navigation\n"),
    ],
)
def test_what_leads_nowhere_stops_the_build(sources: Path, page: str, text: str) -> None:
    with (sources / "build/docs" / page).open("a") as out:
        out.write(text)
    assert page in built(sources, good=False)
