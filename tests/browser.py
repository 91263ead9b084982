"""A browser for tests of pages: none may ask for anything but itself, or have the browser complain."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

AXE = Path(__file__).resolve().parent / "e2e" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def chromium():
    """A browser. Where COMPLETE is set, as in .ci/run, there has to be one."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    missing = {"playwright": sync_playwright, "Chromium": CHROMIUM, "axe-core (make browser)": AXE.exists() or None}
    absent = [name for name, found in missing.items() if found is None]
    if absent and os.environ.get("COMPLETE"):
        pytest.fail(f"not installed: {', '.join(absent)}; `make browser` installs it")
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, tmp_path):
    """Open pages. At the end nothing may have been asked for but these, and the browser may not have complained."""
    contexts, complaints, asked = [], [], set()

    def do(text, fragment="", **options):
        file = tmp_path / f"page{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.add(request.url.partition("#")[0]))
        page.goto(file.as_uri() + fragment)
        return page

    yield do
    for context in contexts:
        context.close()
    own = {(tmp_path / f"page{number}.html").as_uri() for number in range(len(contexts))}
    assert {url for url in asked if not url.startswith("data:")} == own
    assert complaints == []
