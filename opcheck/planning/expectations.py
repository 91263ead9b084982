"""Known failures: what an expectation applies to, and whether a failure meets it."""

from __future__ import annotations

import re
from typing import Literal

from opcheck.planning.selection import Selection, is_named
from opcheck.spec.claims import Expect
from opcheck.spec.device_profile import DeviceProfile, DeviceWhen
from opcheck.spec.library import Operator, names_of
from opcheck.spec.versions import torch_meets

Kind = Literal["failed", "error", "inconclusive", "blocked"]
"""The outcomes that are failures."""


def expectations_of(operator: Operator, device: DeviceProfile, wanted: Selection) -> tuple[Expect, ...]:
    """Return the known failures of an operator, in its spec and in the profile of a device, that apply to a run.

    An expectation may be limited to an engine, to settings of `derive` and to versions of torch.
    """
    both = (*operator.spec.expect, *(expect for expect in device.expect if is_for_operator(expect.when, operator)))
    return tuple(
        expect
        for expect in both
        if expect.when.matches(engine=wanted.engine, derive=wanted.derive)
        and (expect.when.torch is None or torch_meets(expect.when.torch, without=True))
    )


def is_for_operator(when: DeviceWhen, operator: Operator) -> bool:
    """Return whether a condition of a profile covers an operator."""
    return not when.operator or is_named(operator, when.listed("operator"))


def is_about(expect: Expect, sample: str | None) -> bool:
    """Return whether an expectation applies to a sample, by the name of the sample or of its grid.

    sample: None for the case as a whole.
    """
    if expect.when.sample is None:
        return True
    return sample is not None and any(expect.when.matches(sample=name) for name in names_of(sample))


def fits(expect: Expect, kind: Kind, text: str) -> bool:
    """Return whether a failure of a kind, with a message, meets an expectation."""
    wanted = "failed" if expect.outcome in ("fail", "flaky") else expect.outcome
    found = "failed" if kind == "blocked" else kind  # blocked: it fails, and so does a more basic check
    return wanted == found and (expect.match is None or bool(re.search(expect.match, text)))
