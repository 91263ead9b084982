"""Counts the cases that are not planned on a device because its profile, or the spec of an operator, excludes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opcheck.planning.planner import cases_on, rule_against
from opcheck.planning.selection import Selection
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.library import Library, Operator, Variant


class Rule(NamedTuple):
    """A reason to leave out cases on a device."""

    device: str
    """The name of the device."""
    reason: str
    """`deny` or `allow` (of the profile), `devices` or `torch` (of the operator's spec), or `lacks float64`."""


def left_out(library: Library, devices: Iterable[DeviceProfile], selection: Selection | None = None) -> Counter[Rule]:
    """Return the number of selected cases that each rule leaves out: cases that would be planned without the rule.

    If a rule excludes an operator from a device, its cases in the dtypes that the device has are counted under the
    rule. A case in a dtype that the device lacks is not counted if the check runs in another dtype instead: a
    derivative check runs in float32 where there is no float64.
    """
    wanted = selection or Selection()
    counts: Counter[Rule] = Counter()
    for device in devices:
        for operator in filter(wanted.takes_operator, library):
            if rule := rule_against(operator, device):
                counts[Rule(device.name, rule)] += len(_selected(operator, device, wanted))
            else:
                counts.update(Rule(device.name, f"lacks {dtype}") for dtype in _lacked(operator, device, wanted))
    return +counts


def _lacked(operator: Operator, device: DeviceProfile, wanted: Selection) -> Iterator[str]:
    """Yield the dtype of each selected case of an operator that would be planned if the device had the dtype."""
    claimed = operator.claims_on(device).dtypes.forward_names()
    if not device.lacks and all(map(device.has, claimed)):
        return
    whole = device.model_copy(update={"lacks": (), "dtypes": claimed})
    here, there = _selected(operator, device, wanted), _selected(operator, whole, wanted)
    instead = Counter(_claim(*case) for case in here if case not in there)
    for case in there:
        if case not in here:
            claim = _claim(*case)
            if instead[claim] <= 0:
                yield case[1]
            instead[claim] -= 1


def _selected(operator: Operator, device: DeviceProfile, wanted: Selection) -> dict[tuple[Variant, str, str], None]:
    """Return the selected cases of an operator, in order."""
    return {(case.variant, case.dtype, case.check): None for case in cases_on(operator, device, wanted)}


def _claim(variant: Variant, dtype: str, check: str) -> tuple[Variant, str, bool]:
    """Return the variant, the check, and whether the dtype is complex: equal for cases that can replace each other."""
    return variant, check, dtype.startswith("complex")
