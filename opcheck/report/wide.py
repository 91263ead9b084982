"""Says which operators are held to wider tolerances than the defaults: a pass means less there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def held_wider(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Return, for each operator, its wider tolerances as text, with the checks that they hold for."""
    found: dict[str, dict[str, list[str]]] = {}
    for record in records:
        wide = record.get("fields", {}).get("tolerance")
        if wide:
            text = ", ".join(f"{name} = {value:g}" for name, value in wide.items())
            checks = found.setdefault(record["operator"], {}).setdefault(text, [])
            if record["check"] not in checks:
                checks.append(record["check"])
    return found


def counted(records: Iterable[Mapping[str, Any]], how: str = "--wide") -> list[str]:
    """Return a line with the number of such operators; none if there are none. how: what lists them."""
    found = held_wider(records)
    held = "1 operator is" if len(found) == 1 else f"{len(found)} operators are"
    return [f"{held} held to wider tolerances: {how} lists them"] if found else []


def listed(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each operator and its wider tolerances."""
    return [
        f"{operator} is held to {text} in {', '.join(checks)}"
        for operator, own in held_wider(records).items()
        for text, checks in own.items()
    ]
