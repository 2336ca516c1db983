"""Headless Chromium for the tests of the console."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from pocketmq.client.access import PLAIN
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.server import ConsoleServer, ConsoleThread
from tests.patience import PATIENCE_S

SERIOUS = {"serious", "critical"}
_NAMES = ("chromium", "google-chrome", "chromium-browser")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the machine's Chromium. Without one the test is skipped; with CI=true it fails."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        reason = f"none of {', '.join(_NAMES)} is installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="module", name="browser")
def module_browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@contextmanager
def served(namesrv: str, timeout_s: int = 30) -> Iterator[str]:
    """Serve a console that may change things; give its address. `timeout_s`: how long it waits for a server."""
    config = ConsoleConfig(
        namesrv_addr=namesrv, console_port=0, console_write=True, console_request_timeout_seconds=timeout_s
    )
    thread = ConsoleThread(ConsoleServer(config, PLAIN))
    thread.start()
    yield thread.server.url
    thread.stop()


class Visitor:
    """A person with a browser: a page, and what a test wants to know about it."""

    def __init__(self, browser: Browser, url: str, **settings: Any) -> None:
        self.url = url.rstrip("/")
        self._context = browser.new_context(base_url=url, **{"locale": "en-US", "viewport": WIDE, **settings})
        self._context.set_default_timeout(PATIENCE_S * 1000)
        self.page: Page = self._context.new_page()
        self.problems: list[str] = []
        """Errors of scripts, and what the content security policy or the server refused."""
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)

    def open(self, path: str) -> Page:
        self.page.goto(path)
        return self.page

    def press(self, name: str) -> None:
        """Press the first button with a name."""
        self.page.get_by_role("button", name=name, exact=True).first.click()

    def follow(self, name: str | re.Pattern[str]) -> None:
        """Follow the first link with a name, and wait for all of its page."""
        with self.page.expect_navigation():
            self.page.get_by_role("link", name=name).first.click()

    def sees(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.page.get_by_text(text).first.wait_for()

    def is_attacked(self) -> bool:
        """Return whether text of a message or a name ran as a script."""
        return bool(self.page.evaluate("window.hacked === 1"))

    def barriers(self) -> list[str]:
        """Return the serious findings of axe-core on the page."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{self.page.url}: {one['id']}: {one['help']}: {[node['target'] for node in one['nodes']][:3]}"
            for one in found
            if one["impact"] in SERIOUS
        ]

    def tab_to(self, name: str, tries: int = 120) -> None:
        """Move the focus by the tab key to the element with a name."""
        for _ in range(tries):
            self.page.keyboard.press("Tab")
            if self.page.evaluate(_NAME_OF_FOCUS).strip() == name:
                return
        raise AssertionError(f"the tab key does not reach {name!r} on {self.page.url}")

    def close(self) -> None:
        self._context.close()


WIDE: Any = {"width": 1280, "height": 900}
NARROW: Any = {"width": 390, "height": 844}
_NAME_OF_FOCUS = """() => {
  const at = document.activeElement;
  return at.getAttribute("aria-label") || (at.labels && at.labels[0] && at.labels[0].textContent) || at.textContent || "";
}"""
