"""Says how many cases the rules of device profiles leave out: in a terminal, and in a report."""

from __future__ import annotations

from collections import Counter

from opcheck.planning.left_out import Rule
from opcheck.report.model import LeftOut
from opcheck.text import n_cases


def lines(rules: Counter[Rule]) -> list[str]:
    """Return a line for each device: `left out on npu: 212 cases (deny), 30 (lacks float64)`."""
    parts: dict[str, list[str]] = {rule.device: [] for rule in rules}
    for row in rows(rules):
        own = parts[row.device]
        own.append(f"{row.cases if own else n_cases(row.cases)} ({row.reason})")
    return [f"left out on {device}: {', '.join(own)}" for device, own in parts.items()]


def rows(rules: Counter[Rule]) -> list[LeftOut]:
    """Return the counts, the largest first, and equal ones by the alphabet."""
    ordered = sorted(rules.items(), key=lambda item: (-item[1], item[0]))
    return [LeftOut(device=rule.device, reason=rule.reason, cases=count) for rule, count in ordered]
