"""The checks there are: the built-in ones, those of plugins, those that a project registers.

A check names its implementation by import path. It is imported when a case runs, so that planning needs no torch. A
plugin adds a check with an entry point of the group `opcheck.checks` that refers to a CheckKind, a project with
`opcheck.register_check`.
"""

from __future__ import annotations

from functools import lru_cache

from opcheck.plan.builtin_kinds import BUILTIN
from opcheck.plan.kind import CheckKind


@lru_cache(maxsize=1)
def check_kinds() -> dict[str, CheckKind]:
    """Return all checks by name: the built-in ones, those of installed plugins, those that were registered."""
    from importlib.metadata import entry_points

    kinds = {kind.name: kind for kind in BUILTIN}
    for entry in entry_points(group="opcheck.checks"):
        kind = entry.load()
        kinds.setdefault(kind.name, kind)
    return kinds | REGISTERED


REGISTERED: dict[str, CheckKind] = {}
"""The checks registered in this process, by name."""


def register(kind: CheckKind) -> None:
    """Add a check to those of this process. It replaces one that was registered under the same name."""
    REGISTERED[kind.name] = kind
    check_kinds.cache_clear()
