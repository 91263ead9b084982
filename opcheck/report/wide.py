"""Says which operators are held to wider tolerances than the defaults: a pass means less there."""

from __future__ import annotations

from collections.abc import Iterable

from opcheck.report.model import Record


def counted(records: Iterable[Record], how: str = "--wide") -> list[str]:
    """Return a line with the number of such operators; none if there are none. how: what lists them."""
    count = len(_by_operator(records))
    held = "1 operator is" if count == 1 else f"{count} operators are"
    return [f"{held} held to wider tolerances: {how} lists them"] if count else []


def listed(records: Iterable[Record]) -> list[str]:
    """Return a line for each operator and its wider tolerances."""
    return [
        f"{operator} is held to {text} in {', '.join(checks)}"
        for operator, own in _by_operator(records).items()
        for text, checks in own.items()
    ]


def _by_operator(records: Iterable[Record]) -> dict[str, dict[str, dict[str, None]]]:
    """Return, for each operator, its wider tolerances as text, with the checks that they hold for."""
    operators: dict[str, dict[str, dict[str, None]]] = {}
    for record in records:
        if wide := record.fields.get("tolerance"):
            text = ", ".join(f"{name} = {value:g}" for name, value in wide.items())
            operators.setdefault(record.operator, {}).setdefault(text, {})[record.check] = None
    return operators
