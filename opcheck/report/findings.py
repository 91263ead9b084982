"""The faults of torch that come with the library: what is wrong, since when, and the text of each, ready to file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tomli

from opcheck.spec.load import shipped

KINDS = {
    "wrong": "Silently wrong",
    "crash": "Crashes",
    "integers": "Integers that wrap around or lose their fractions",
    "nan": "NaN, where there is a number",
    "refused": "Errors, where there should be none",
}
"""The files, from what hides most to what tells itself."""


@dataclass(frozen=True)
class Finding:
    """One fault of torch."""

    kind: str
    id: str
    title: str
    since: str
    """The oldest version of torch that it was seen in."""
    right: str
    """What would be right."""
    reasons: tuple[str, ...]
    """Those of the expectations that are there because of it."""
    reproduction: str
    """Plain torch, which sets `actual` and `expected`, raises an error or ends the process."""
    raises: str = ""
    """A part of the message of the error."""
    crashes: bool = False
    link: str = ""
    mended: str = ""
    """The first version of torch without it."""
    processors: str = ""
    """Those that show it; empty: all."""
    device: str = ""
    """The device that it was seen on, if it is not the CPU."""

    def text(self, version: str, seen: str) -> str:
        """Return what to file, with what a version of torch does instead of what is right; empty: it is right."""
        actual = seen or f"not seen in torch {version}"
        mended = f", mended in {self.mended}" if self.mended else ""
        processors = f"; on processors: {self.processors}" if self.processors else ""
        device = f", on {self.device}" if self.device else ""
        return (
            f"# {self.title}\n\n```python\n{self.reproduction}\n```\n\n## Actual\n\n```\n{actual}\n```\n\n"
            f"## Expected\n\n{as_markdown(self.right)}\n\n## Versions\n\ntorch {version}; "
            f"seen since {self.since} at least{device}{mended}{processors}.\n"
            + (f"\nSee {self.link}\n" if self.link else "")
        )


def folder() -> Path:
    """Return the folder of the findings."""
    return shipped("findings", "findings")


@cache
def findings() -> tuple[Finding, ...]:
    """Return all, the worst first."""
    return tuple(
        Finding(kind, **{**entry, "reasons": tuple(entry["reasons"]), "reproduction": entry["reproduction"].strip()})
        for kind in KINDS
        for entry in tomli.loads((folder() / f"{kind}.toml").read_text(encoding="utf-8"))["finding"]
    )


def as_markdown(text: str) -> str:
    """Return text with what Markdown would take for emphasis escaped."""
    return text.replace("*", "\\*").replace("_", "\\_")
