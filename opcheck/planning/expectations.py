"""Known failures: which cases an expectation is about, and what of a case is skipped because of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from opcheck.planning.case import Case
from opcheck.planning.selection import is_named
from opcheck.spec.claims import Expect
from opcheck.spec.device_profile import DeviceProfile, DeviceWhen
from opcheck.spec.library import Operator, Sample, names_of
from opcheck.spec.versions import torch_meets

Kind = Literal["failed", "error", "inconclusive", "blocked"]
"""The kinds of outcomes of failures."""
MET_BY: dict[str, Kind] = {
    "fail": "failed",
    "flaky": "failed",
    "error": "error",
    "inconclusive": "inconclusive",
}
"""The kind of failure that each expected outcome stands for; skip stands for none."""


def expectations_of(operator: Operator, device: DeviceProfile) -> tuple[Expect, ...]:
    """Return the expectations of an operator, and those of a device that are about the operator."""
    return (*operator.spec.expect, *(expect for expect in device.expect if is_for_operator(expect.when, operator)))


def is_for_operator(when: DeviceWhen, operator: Operator) -> bool:
    """Tell whether a condition of a profile covers an operator."""
    return not when.operators or is_named(operator, when.operators)


def matching(expects: Iterable[Expect], check: str, variant: str, device: str, dtype: str) -> tuple[Expect, ...]:
    """Return the expectations about a case that hold for the installed torch."""
    return tuple(
        expect
        for expect in expects
        if expect.when.matches(check=check, variant=variant, device=device, dtype=dtype)
        and (expect.when.torch is None or torch_meets(expect.when.torch, without=True))
    )


def expectations_about(case: Case, check: str) -> tuple[Expect, ...]:
    """Return the expectations about another check of a case."""
    every = expectations_of(case.operator, case.device)
    return matching(every, check, case.variant.kind, case.device.name, case.dtype)


def holding_in(expects: Sequence[Expect], conditions: Mapping[str, str]) -> tuple[Expect, ...]:
    """Return the expectations that hold in a run.

    conditions: what belongs to the run and not to a case: its `engine` and `derive`.
    """
    return tuple(expect for expect in expects if expect.when.matches(**conditions))


def is_about(expect: Expect, sample: str | None) -> bool:
    """Tell whether an expectation is about a sample, by the name of the sample or of its grid.

    sample: None for the case as a whole.
    """
    if expect.when.sample is None:
        return True
    return sample is not None and any(expect.when.matches(sample=name) for name in names_of(sample))


def fits(expect: Expect, kind: Kind, text: str) -> bool:
    """Tell whether an expectation is met by a failure of a kind, with a text."""
    kind = "failed" if kind == "blocked" else kind  # it follows from a failure
    return MET_BY.get(expect.outcome) == kind and (expect.match is None or bool(re.search(expect.match, text)))


def samples_to_run(case: Case) -> tuple[Sample, ...]:
    """Return the samples of a case, except those that an expectation skips by name."""
    return tuple(sample for sample in case.samples if not _skips(case, sample))


def reason_to_skip(case: Case) -> str:
    """Return why a case is not run, on whatever device; an empty string if it is."""
    for expect in case.expectations:
        if expect.outcome == "skip" and expect.when.sample is None:
            return expect.reason
    if case.check == "errors" or samples_to_run(case):
        return ""
    reasons = dict.fromkeys(expect.reason for sample in case.samples for expect in _skips(case, sample))
    return "; ".join(reasons) or f"no sample is meant for {case.dtype}"


def _skips(case: Case, sample: Sample) -> list[Expect]:
    named = [expect for expect in case.expectations if expect.outcome == "skip" and expect.when.sample is not None]
    return [expect for expect in named if is_about(expect, sample.name)]
