"""The system's Chromium, and the pages of a command that runs as its users start it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

REBOUND = "rebound.example"  # a name that leads here, as after DNS rebinding
NAMES = ("chromium", "chromium-browser", "google-chrome")
# The sandbox wants a user other than root. Nothing but this test's own server is ever visited.
ARGUMENTS = ["--no-sandbox", f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; the test is skipped where there is none, and fails where CI has none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        reason = "no Chromium on this machine: run `make chromium`"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def running(name: str, *options: str, directory: Path | None = None) -> Iterator[str]:
    """The address that `cmf NAME` printed, run in `directory`, until the end of the block; it ends on Ctrl-C."""
    command = [sys.executable, "-c", "from pipeline.cli import main; main()", name, "--port", "0", *options]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        printed = process.stdout.readline()
        wanted = rf"{name}: http://127\.0\.0\.1:\d+/[#?]t=[\w-]{{32}}\n"
        assert re.fullmatch(wanted, printed), printed + process.communicate()[1]
        yield printed.split()[1]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0
        assert "Traceback" not in errors, errors
    finally:
        process.kill()
        process.communicate()


def origin(address: str) -> str:
    """The address without what is behind the host."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


@dataclass
class Watch:
    """What must not happen on a page: messages of its console, dialogs, requests that go elsewhere."""

    address: str
    wrong: list[str] = field(default_factory=list)

    def on(self, page: Page) -> Page:
        """`page`, watched."""
        own = origin(self.address) + "/"
        page.on("console", lambda message: self.wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda sent: sent.url.startswith(own) or self.wrong.append(f"request: {sent.url}"))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => console.error(event.violatedDirective))"
        )
        return page


@contextmanager
def context(browser: Browser, *, width: int = 1280, scheme: str = "light") -> Iterator[BrowserContext]:
    """A profile of its own, with a clipboard that may be written."""
    opened = browser.new_context(
        viewport={"width": width, "height": 860},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    opened.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.set_default_timeout(15_000)
    yield opened
    opened.close()
