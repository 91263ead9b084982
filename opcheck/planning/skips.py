"""What a spec leaves out of a case, and why: samples, or the whole case."""

from __future__ import annotations

from opcheck.planning.case import Case
from opcheck.planning.expectations import about
from opcheck.spec.claims import Expect
from opcheck.spec.library import Sample


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
    return [expect for expect in named if about(expect, sample.name)]
