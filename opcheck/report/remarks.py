"""Lines of a summary beside the outcomes: cases left out, operators with wider tolerances, and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from opcheck.planning.left_out import Rule
from opcheck.report.content import LeftOut
from opcheck.running.outcome import Outcome
from opcheck.text import counted


def left_out_lines(rules: Counter[Rule]) -> list[str]:
    """Return a line for each device: `left out on npu: 212 cases (deny), 30 (lacks float64)`."""
    parts: dict[str, list[str]] = {rule.device: [] for rule in rules}
    for row in left_out_rows(rules):
        own = parts[row.device]
        own.append(f"{row.cases if own else counted(row.cases, 'case')} ({row.reason})")
    return [f"left out on {device}: {', '.join(own)}" for device, own in parts.items()]


def left_out_rows(rules: Counter[Rule]) -> list[LeftOut]:
    """Return the number of cases that each rule leaves out, largest first, and ties in alphabetical order."""
    ordered = sorted(rules.items(), key=lambda item: (-item[1], item[0]))
    return [LeftOut(device=rule.device, reason=rule.reason, cases=count) for rule, count in ordered]


def wide_count(records: Iterable[Outcome], how: str = "--wide") -> list[str]:
    """Return a line with the number of operators that are held to wider tolerances than the defaults, if there are any.

    how: the option that lists them.
    """
    count = len(_wide(records))
    held = "1 operator is" if count == 1 else f"{count} operators are"
    return [f"{held} held to wider tolerances: {how} lists them"] if count else []


def wide_lines(records: Iterable[Outcome]) -> list[str]:
    """Return a line for each operator and tolerance wider than the default. A pass at such a tolerance means less."""
    return [
        f"{operator} is held to {text} in {', '.join(checks)}"
        for operator, own in _wide(records).items()
        for text, checks in own.items()
    ]


def note_lines(records: Iterable[Outcome]) -> list[str]:
    """Return a line for each operator with notes: the first note, and the number of others.

    A note is additional information, not a failure.
    """
    noted: dict[str, dict[str, None]] = {}
    for record in records:
        for own in record.fields.get("notes", {}).values():
            noted.setdefault(record.operator, {}).update(dict.fromkeys(own))
    return [
        f"{operator}: {next(iter(own))}" + (f", and {len(own) - 1} more" if len(own) > 1 else "")
        for operator, own in noted.items()
    ]


def _wide(records: Iterable[Outcome]) -> dict[str, dict[str, dict[str, None]]]:
    """Return, for each operator, its wider tolerances as text, with the checks that use them."""
    operators: dict[str, dict[str, dict[str, None]]] = {}
    for record in records:
        if wide := record.fields.get("tolerance"):
            # A report stores infinities and NaN as text.
            text = ", ".join(f"{name} = {float(value):g}" for name, value in wide.items())
            operators.setdefault(record.operator, {}).setdefault(text, {})[record.check] = None
    return operators
