"""The known faults of torch that ship with the library, and the text of an issue about each."""

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
"""The files and their titles, from faults that are hard to notice to those that are obvious."""


@dataclass(frozen=True)
class Finding:
    """One fault of torch."""

    kind: str
    id: str
    title: str
    since: str
    """The oldest version of torch in which it was seen."""
    right: str
    """The correct behavior."""
    reasons: tuple[str, ...]
    """The reasons of the expectations (`expect`) that specs have because of this fault."""
    reproduction: str
    """A script of plain torch that sets `actual` and `expected`, raises an error or ends the process."""
    raises: str = ""
    """A part of the message of the error that it raises; empty: it raises none."""
    crashes: bool = False
    link: str = ""
    mended: str = ""
    """The first version of torch without it."""
    processors: str = ""
    """The processors on which it was seen; empty: all."""
    device: str = ""
    """The device on which it was seen; empty: the CPU."""

    def text(self, version: str, seen: str) -> str:
        """Return the text of an issue, as Markdown.

        version: the installed version of torch. seen: its wrong behavior; empty: it does not have the fault.
        """
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
    """Return the folder of the files with the findings."""
    return shipped("findings", "findings")


@cache
def findings() -> tuple[Finding, ...]:
    """Return all findings, in the order of `KINDS`."""
    return tuple(
        Finding(kind, **{**entry, "reasons": tuple(entry["reasons"]), "reproduction": entry["reproduction"].strip()})
        for kind in KINDS
        for entry in tomli.loads((folder() / f"{kind}.toml").read_text(encoding="utf-8"))["finding"]
    )


def as_markdown(text: str) -> str:
    """Return text with `*` and `_` escaped, which Markdown would take for emphasis."""
    return text.replace("*", "\\*").replace("_", "\\_")
