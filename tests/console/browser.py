"""A real Chromium for the tests, one for all of them. Where it cannot start, they fail and say why."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import (
    Browser,
    BrowserContext,
    Error,
    Page,
    async_playwright,
    expect,
)

FOLDER = Path(sys.prefix) / "browser"
PATIENCE_MS = 60_000
"""For everything that a page does, on a busy machine too."""
expect.set_options(timeout=PATIENCE_MS)
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
AXE = FOLDER / "node_modules/axe-core/axe.min.js"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    program = FOLDER / "chromium"
    assert program.exists(), f"{program} is missing: `make test` installs the browser of the tests"
    env: dict[str, str | float | bool] = {
        **os.environ,
        "LD_LIBRARY_PATH": str(FOLDER / "al2023/lib"),
        "FONTCONFIG_FILE": str(FOLDER / "fonts.conf"),
    }
    async with async_playwright() as playwright:
        try:
            browser = await playwright.chromium.launch(
                executable_path=program, args=list(OPTIONS), env=env
            )
        except Error as error:
            raise AssertionError(f"the browser of the tests does not start: {error}") from error
        try:
            yield browser
        finally:
            await browser.close()


class Visit:
    """One page of one visitor. What its scripts complain about is kept: a test ends with none of it."""

    def __init__(self, context: BrowserContext, page: Page, base: str) -> None:
        self.context = context
        self.page = page
        self.base = base
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._heard)
        page.on("dialog", lambda dialog: self.complaints.append(f"a dialog: {dialog.message}"))

    def _heard(self, message: Any) -> None:
        """A status that a page was answered with is no complaint: tests look at it themselves."""
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    async def to(self, path: str) -> int:
        answer = await self.page.goto(self.base + path)
        assert answer is not None
        return answer.status

    async def text(self, selector: str = "main") -> str:
        return await self.page.inner_text(selector)

    async def submit(self, button: str) -> None:
        """Press a button whose form leads to another page."""
        async with self.page.expect_navigation():
            await self.page.get_by_role("button", name=button, exact=True).click()

    async def sign_in(self, key: str) -> None:
        await self.to("/sign-in")
        await self.page.fill("input[name=key]", key)
        await self.submit("Sign in")

    async def order(self, label: str) -> None:
        """Open the order of a job and give it."""
        await self.page.get_by_text(f"{label}…", exact=True).click()
        await self.submit(f"{label} this job")

    async def faults(self) -> list[str]:
        """What axe-core finds wrong with the page as it is."""
        await self.page.evaluate(AXE.read_text())
        found = await self.page.evaluate(
            "rules => axe.run(document, {runOnly: rules})", list(RULES)
        )
        return [
            f"{each['id']}: {each['help']}: {[node['html'] for node in each['nodes']][:3]}"
            for each in found["violations"]
        ]


@asynccontextmanager
async def visiting(browser: Browser, base: str, **how: Any) -> AsyncIterator[Visit]:
    context = await browser.new_context(**how)
    context.set_default_timeout(PATIENCE_MS)
    try:
        visit = Visit(context, await context.new_page(), base)
        yield visit
        assert visit.complaints == []
    finally:
        await context.close()
