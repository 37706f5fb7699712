"""What the site is made of, in build/docs: `make site` writes it, and builds the site from it.

The pages are those of the repository. Fences keep their language alone, because more on their line makes a
generator take them for text; pages of the root stand beside those of `docs`.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
OWN: Final = """INHERIT: ../mkdocs.yml
docs_dir: docs
site_dir: site
theme:
  name: mkdocs
  highlightjs: false # it would be loaded from another host
"""
"""What MkDocs alone needs; other generators have themes of their own."""
BESIDE: Final = ("CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY", "SUPPORT")
FENCE: Final = re.compile(r"^```(\w+) .+$", re.MULTILINE)
TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)
DECISIONS: Final = """# Decisions

Each answers one question that a newcomer will ask: question, decision, why, cost, guard.

"""


def write_sources(folder: Path, root: Path = ROOT) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "docs", folder)
    for name in BESIDE:
        text = (root / f"{name}.md").read_text("utf-8")
        (folder / f"{name}.md").write_text(text.replace("](docs/", "]("), "utf-8")
    shutil.copy(root / "NOTICE", folder)
    decided = sorted((folder / "decisions").glob("[0-9]*.md"))
    rows = (f"- [{title(page)}]({page.name})\n" for page in decided)
    (folder / "decisions/index.md").write_text(DECISIONS + "".join(rows), "utf-8")
    for page in folder.rglob("*.md"):
        text = FENCE.sub(r"```\1", page.read_text("utf-8"))
        page.write_text(text.replace("](decisions)", "](decisions/index.md)"), "utf-8")
    about = yaml.safe_load((root / "mkdocs.yml").read_text("utf-8"))
    (folder / "llms.txt").write_text(llms_text(about, folder), "utf-8")
    (folder.parent / "mkdocs.yml").write_text(OWN, "utf-8")


def title(page: Path) -> str:
    found = TITLE.search(page.read_text("utf-8"))
    return found[1] if found else page.stem


def llms_text(about: dict[str, Any], folder: Path) -> str:
    """The pages in the order of the site, for programs that read."""
    lines = [f"# {about['site_name']}", "", f"> {about['site_description']}", ""]
    for section in about["nav"]:
        ((name, content),) = section.items()
        lines += [f"## {name}", ""]
        lines += [f"- [{title(folder / page)}]({page})" for page in pages(content)]
        lines.append("")
    return "\n".join(lines)


def pages(content: Any) -> Iterator[str]:
    """The paths below an entry of the navigation."""
    match content:
        case str():
            yield content
        case dict():
            for each in content.values():
                yield from pages(each)
        case list():
            for each in content:
                yield from pages(each)


if __name__ == "__main__":
    write_sources(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build/docs")
