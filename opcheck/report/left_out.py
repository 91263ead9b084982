"""Tells how many cases the rules of device profiles leave out: in a terminal, and in the JSON report."""

from __future__ import annotations

from collections import Counter
from typing import Any

from opcheck.plan.left_out import Rule
from opcheck.report.model import LeftOut
from opcheck.text import n_cases


def lines(found: Counter[Rule]) -> list[str]:
    """Return a line for each device: `left out on npu: 212 cases (deny), 30 (lacks float64)`."""
    parts: dict[str, list[str]] = {rule.device: [] for rule in found}
    for rule, count in _ordered(found):
        own = parts[rule.device]
        own.append(f"{count if own else n_cases(count)} ({rule.reason})")
    return [f"left out on {device}: {', '.join(own)}" for device, own in parts.items()]


def rows(found: Counter[Rule]) -> list[LeftOut]:
    """Return the counts for the header of a JSON report."""
    return [LeftOut(device=rule.device, reason=rule.reason, cases=count) for rule, count in _ordered(found)]


def _ordered(found: Counter[Rule]) -> list[tuple[Rule, int]]:
    """Return the largest counts first, and equal ones by the alphabet."""
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))


def sent(found: Counter[Rule]) -> list[list[str | int]]:
    """Return the counts as plain data, for another process."""
    return [[*rule, count] for rule, count in found.items()]


def received(data: list[list[Any]]) -> Counter[Rule]:
    """Return the counts that another process has sent."""
    return Counter({Rule(device, reason): count for device, reason, count in data})
