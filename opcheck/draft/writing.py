"""Writes drafts as TOML, with a comment for each claim that was taken back."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from opcheck.draft.draft import MAY_BE_REFUSED, Draft
from opcheck.spec.dtypes import KNOWN
from opcheck.spec.render import render
from opcheck.text import shortened

MOST = 100
"""The most characters of a comment."""


def written(drafts: Iterable[Draft]) -> str:
    """Return `[[operator]]` tables, separated by empty lines."""
    return "\n".join(map(_operator, drafts))


def _operator(draft: Draft) -> str:
    lines = ["[[operator]]", f"name = {render(draft.name)}"]
    if draft.variant:
        lines.append(f"variant = {render(draft.variant)}")
    if draft.module is not None:
        lines.append(f"module = {render(draft.module)}")
    if draft.variants:
        lines.append(f"variants = {render(draft.variants)}")
    lines += _dtypes(draft)
    if draft.reseed:
        lines += ["# Two calls with the same arguments give different results.", "reseed = true"]
    if draft.inplace:
        lines += ["# It changes its first argument, and gets a clone in each call.", "inplace = true"]
    lines += ["samples = [", *(f"  {render(sample)}," for sample in draft.samples), "]"]
    if draft.supports:
        lines += ["", "  [operator.supports]"]
        for key, (value, reason) in sorted(draft.supports.items(), key=lambda item: MAY_BE_REFUSED.index(item[0])):
            lines.append(f"  {key} = {render(value)}  # {comment(reason)}")
    return "\n".join(lines) + "\n"


def _dtypes(draft: Draft) -> list[str]:
    claimed = draft.dtypes()
    if not claimed:
        return []
    lines = []
    for what, refused in draft.refused.items():
        if refused:
            names = ", ".join(name for name in KNOWN if name in refused)
            lines.append(f"# No {what} pass in {names}: {comment(next(iter(refused.values())))}")
    return [*lines, f"dtypes = {render(claimed)}"]


def comment(text: str) -> str:
    """Return text that fits into a comment of one line."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return shortened(textwrap.shorten(line, MOST, placeholder=" ..."), MOST)
