"""A hook of MkDocs, named in mkdocs.yml: makes the documents at the root of the repository pages of the site.

Links in documents are relative to the repository. They become links between pages. A link to a file or folder that is
no page, such as specs/, is replaced by its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""The documents outside docs/, with the names of their pages."""

CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages in `PAGES` to the site."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the links of a page by links of the site."""
    sources = {page: name for name, page in PAGES.items()}
    return with_links(markdown, sources.get(page.file.src_uri, f"docs/{page.file.src_uri}"))


def with_links(markdown: str, source: str) -> str:
    """Return the text of a document with the links of the site. Code blocks are not changed."""
    parts, end = [], 0
    for block in CODE.finditer(markdown):
        parts += [LINK.sub(lambda link: _linked(link, source), markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, LINK.sub(lambda link: _linked(link, source), markdown[end:])])


def _linked(link: re.Match[str], source: str) -> str:
    image, text, path, anchor = link[1], link[2], link[3], link[4] or ""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    page = PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else "")
    if page:
        return f"{image}[{text}]({page}{anchor})"
    if not (ROOT / target).exists():
        return link[0]  # broken: MkDocs reports it
    return text if text.startswith("`") else f"`{text}`"
