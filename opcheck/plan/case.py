"""One test: an operator in one variant, under one check, on one device, in one dtype."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from opcheck.plan.kinds import CheckKind
from opcheck.spec.claims import Expect
from opcheck.spec.device import DeviceProfile
from opcheck.spec.library import DeviceClaims, Operator, Sample, Variant


@dataclass(frozen=True, eq=False)
class Case:
    """A test, planned before anything is imported or computed. Cases with the same id are the same test."""

    operator: Operator
    variant: Variant
    kind: CheckKind
    device: DeviceProfile
    dtype: str
    claims: DeviceClaims = field(repr=False)
    expectations: tuple[Expect, ...] = field(default=(), repr=False)
    """The known failures that are about this case."""

    @cached_property
    def id(self) -> str:
        """`torch.sin[inplace]::backward[cpu-float64]`, the same in the terminal, in JUnit, in JSON and for -k."""
        return f"{self.subject}::{self.kind.name}[{self.device.name}-{self.dtype}]"

    @property
    def subject(self) -> str:
        """`torch.sin[inplace]`: the operator and the variant."""
        return self.operator.id + ("" if self.variant.kind == "function" else f"[{self.variant.kind}]")

    @property
    def check(self) -> str:
        """The name of the check."""
        return self.kind.name

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples meant for the dtype."""
        return tuple(sample for sample in self.operator.samples if sample.goes_with(self.dtype))

    def seed(self, sample: Sample) -> str:
        """Return the seed for the numbers in a sample.

        It names the operator, the dtype and the sample, but not the check, the variant or the device: all of them get
        the same numbers, in any order and in any process.
        """
        return f"{self.operator.id}[{self.dtype}]#{sample.name}"

    def __str__(self) -> str:
        return self.id
