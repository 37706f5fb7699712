"""Writes the reference pages that are generated from the code: `python -m tools.generate [--check]`.

A page is a path and a function that renders it. `--check` writes nothing and fails if a page is out of date.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from lucius.app.settings import settings_page
from lucius.http import asyncapi
from tools.certificate_page import certificate_page
from tools.chart_secrets import chart_secrets
from tools.codes_pages import causes_page, errors_page
from tools.dashboard import dashboard_page
from tools.http_page import http_page
from tools.licences import notice
from tools.metrics_page import metrics_page
from tools.models_page import PAGES as MODEL_PAGES
from tools.models_page import filled
from tools.scale_page import scale_page
from tools.states_page import states_page

ROOT: Final = Path(__file__).resolve().parent.parent

PAGES: Final[dict[str, Callable[[], str]]] = {
    "NOTICE": notice,
    "deploy/chart/secrets.yaml": chart_secrets,
    "deploy/grafana/lucius.json": dashboard_page,
    "docs/reference/asyncapi.json": asyncapi.text,
    **{f"docs/reference/{page}": partial(filled, page) for page in MODEL_PAGES},
    "docs/reference/causes.md": causes_page,
    "docs/reference/certificate.md": certificate_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/http.md": http_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/scale.md": scale_page,
    "docs/reference/settings.md": settings_page,
    "docs/reference/states.md": states_page,
}


def outdated(root: Path = ROOT) -> list[str]:
    """The pages whose file is missing or says something else than the code."""
    return [path for path, render in PAGES.items() if _read(root / path) != render()]


def write(root: Path = ROOT) -> list[str]:
    """Bring every page up to date; the paths that changed."""
    changed = outdated(root)
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(PAGES[path](), encoding="utf-8")
    return changed


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="generate", description="Write the generated pages.")
    parser.add_argument("--check", action="store_true", help="only say what is out of date")
    if not parser.parse_args(arguments).check:
        for path in write(root):
            print(f"wrote {path}")
        return 0
    stale = outdated(root)
    for path in stale:
        print(f"{path} is out of date: run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
