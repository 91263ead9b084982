"""The documents at the root of the repository as pages of the site: their links lead to pages."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
tool = runpy.run_path(str(ROOT / "tools" / "site_pages.py"))
with_links, PAGES, LINK, CODE = (tool[name] for name in ("with_links", "PAGES", "LINK", "CODE"))
DOCUMENTS = [*PAGES, *(f"docs/{path.name}" for path in sorted(ROOT.glob("docs/*.md")))]


@pytest.mark.parametrize(
    ("source", "text", "there"),
    [
        ("README.md", "[the checks](docs/checks.md)", "[the checks](checks.md)"),
        ("README.md", "[more](docs/spec-format.md#editors)", "[more](spec-format.md#editors)"),
        ("README.md", "![a run](docs/run.svg)", "![a run](run.svg)"),
        (
            "README.md",
            "[how](ARCHITECTURE.md) and [who](CONTRIBUTING.md)",
            "[how](architecture.md) and [who](contributing.md)",
        ),
        ("docs/checks.md", "[the format](spec-format.md#expect)", "[the format](spec-format.md#expect)"),
        ("docs/performance.md", "[ARCHITECTURE.md](../ARCHITECTURE.md)", "[ARCHITECTURE.md](architecture.md)"),
    ],
)
def test_links_between_documents_become_links_between_pages(source, text, there):
    assert with_links(text, source) == there


def test_a_link_to_what_is_no_page_becomes_its_text():
    assert with_links("The [specs/](specs) and [`tools`](tools).", "README.md") == "The `specs/` and `tools`."


@pytest.mark.parametrize(
    "text", ["[torch](https://pytorch.org)", "[above](#samples)", "[lost](docs/lost.md)", "[lost](lost)"]
)
def test_other_links_stay(text):
    assert with_links(text, "README.md") == text.replace("(docs/", "(")


def test_code_stays():
    block = "```python\nkernel[grid](docs)\n```"
    assert (
        with_links(f"[a](docs/api.md)\n{block}\n[b](docs/api.md)", "README.md") == f"[a](api.md)\n{block}\n[b](api.md)"
    )


@pytest.mark.parametrize("source", DOCUMENTS)
def test_each_link_of_each_page_leads_to_a_page(source):
    files = {*PAGES.values(), *(path.name for path in ROOT.glob("docs/*"))}
    text = CODE.sub("", with_links((ROOT / source).read_text(encoding="utf-8"), source))
    assert {link[3] for link in LINK.finditer(text)} <= files


def test_each_page_has_a_place_in_the_navigation():
    named = set(re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert named == {*PAGES.values(), *(path.name for path in ROOT.glob("docs/*.md"))}
