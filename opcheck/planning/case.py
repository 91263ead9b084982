"""One test: an operator in one variant, under one check, on one device, in one dtype."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from opcheck.planning.expectations import is_about
from opcheck.spec.checks import CheckKind
from opcheck.spec.claims import Expect, When
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.library import DeviceClaims, Operator, Sample, Variant


@dataclass(frozen=True, eq=False)
class Case:
    """A test, planned before anything is imported or computed. Cases with the same id are the same test.

    Example:
        >>> import opcheck
        >>> library = opcheck.load("builtin")
        >>> case, *others = opcheck.plan(library, operator="torch.sin", check="backward", device="cpu")
        >>> case.id, case.subject, case.check, case.dtype
        ('torch.sin::backward[cpu-float64]', 'torch.sin', 'backward', 'float64')
        >>> isinstance(case, opcheck.Case)
        True
    """

    operator: Operator
    """The operator, with its spec and its samples."""
    variant: Variant
    """The way to call it: `kind` is function, method or inplace, `path` the dotted path of the callable."""
    kind: CheckKind
    """The check, with the claim that it tests."""
    device: DeviceProfile
    """The profile of the device."""
    dtype: str
    """The name of the dtype, as in `float64`."""
    claims: DeviceClaims = field(repr=False)
    """The claims of the operator on the device."""
    known: tuple[Expect, ...] = field(default=(), repr=False)
    """The known failures of the operator on the device, including those of other cases."""

    base_seed: int = 0
    """The number given by `--seed`."""

    @cached_property
    def id(self) -> str:
        """The id, as in `torch.sin[inplace]::backward[cpu-float64]`, in the terminal, JUnit and JSON, and for -k."""
        return f"{self.subject}::{self.kind.name}[{self.device.name}-{self.dtype}]"

    @property
    def subject(self) -> str:
        """The operator and the variant, as in `torch.sin[inplace]`."""
        return self.operator.id + ("" if self.variant.kind == "function" else f"[{self.variant.kind}]")

    @property
    def hazard(self) -> str:
        """The operator and the device, as in `torch.sin on cpu`. Time-outs are counted for each such pair."""
        return f"{self.operator.id} on {self.device.name}"

    @property
    def check(self) -> str:
        """The name of the check."""
        return self.kind.name

    @cached_property
    def expectations(self) -> tuple[Expect, ...]:
        """The known failures that apply to this case."""
        return self.expectations_about(self.check)

    def expectations_about(self, check: str) -> tuple[Expect, ...]:
        """Return the known failures that apply to a check of the variant, device and dtype of this case."""
        return tuple(expect for expect in self.known if self.meets(expect.when, check))

    def meets(self, when: When, check: str = "") -> bool:
        """Return whether a condition covers this case, or the case of another check that is otherwise the same."""
        return when.matches(
            check=check or self.check, variant=self.variant.kind, device=self.device.name, dtype=self.dtype
        )

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The samples to run: those meant for the dtype, except those that an expectation skips by name."""
        return tuple(sample for sample in self._meant if not self._skipping(sample.name))

    @property
    def reason_to_skip(self) -> str:
        """Why the case is skipped even if its device is present; an empty string if it runs."""
        if whole := self._skipping(None):
            return whole[0].reason
        if self.check == "errors" or self.samples:
            return ""
        reasons = dict.fromkeys(expect.reason for sample in self._meant for expect in self._skipping(sample.name))
        return "; ".join(reasons) or f"no sample is meant for {self.dtype}"

    @property
    def _meant(self) -> list[Sample]:
        return [sample for sample in self.operator.samples if sample.goes_with(self.dtype)]

    def _skipping(self, sample: str | None) -> list[Expect]:
        """Return the expectations that skip a sample by its name; for None, those that skip the whole case."""
        skips = [expect for expect in self.expectations if expect.outcome == "skip"]
        return [one for one in skips if (one.when.sample is None) == (sample is None) and is_about(one, sample)]

    def seed(self, sample: Sample) -> str:
        """Return the seed for the random values of a sample, as text.

        The seed depends on the operator, the dtype, the sample and the base seed, but not on the check, the variant or
        the device, so that all of these get the same values, in any order and in any process.
        """
        return f"{self.operator.id}[{self.dtype}]#{sample.name}" + (f"@{self.base_seed}" if self.base_seed else "")

    def __str__(self) -> str:
        return self.id
