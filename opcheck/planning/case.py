"""One test: an operator in one variant, under one check, on one device, in one dtype."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from opcheck.spec.checks import CheckKind
from opcheck.spec.claims import Expect
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
    """How it is called: `kind` is function, method or inplace, `path` the dotted path of the callable."""
    kind: CheckKind
    """The check, with the claim that it tests."""
    device: DeviceProfile
    """The device, by its profile."""
    dtype: str
    """The name of the dtype, as in `float64`."""
    claims: DeviceClaims = field(repr=False)
    """What the spec claims on the device."""
    known: tuple[Expect, ...] = field(default=(), repr=False)
    """The known failures of the operator on the device, whatever cases they are about."""

    base_seed: int = 0
    """The number given by `--seed`."""

    @cached_property
    def id(self) -> str:
        """`torch.sin[inplace]::backward[cpu-float64]`, the same in the terminal, in JUnit, in JSON and for -k."""
        return f"{self.subject}::{self.kind.name}[{self.device.name}-{self.dtype}]"

    @property
    def subject(self) -> str:
        """`torch.sin[inplace]`: the operator and the variant."""
        return self.operator.id + ("" if self.variant.kind == "function" else f"[{self.variant.kind}]")

    @property
    def hazard(self) -> str:
        """`torch.sin on cpu`: what hangs, if a case does."""
        return f"{self.operator.id} on {self.device.name}"

    @property
    def check(self) -> str:
        """The name of the check."""
        return self.kind.name

    @cached_property
    def expectations(self) -> tuple[Expect, ...]:
        """The known failures that are about this case."""
        return self.expectations_about(self.check)

    def expectations_about(self, check: str) -> tuple[Expect, ...]:
        """Return the known failures that are about a check, of the same variant, on the device and in the dtype."""
        own = {"check": check, "variant": self.variant.kind, "device": self.device.name, "dtype": self.dtype}
        return tuple(expect for expect in self.known if expect.when.matches(**own))

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The samples meant for the dtype."""
        return tuple(sample for sample in self.operator.samples if sample.goes_with(self.dtype))

    def seed(self, sample: Sample) -> str:
        """Return the seed for the numbers in a sample.

        It names the operator, the dtype, the sample and the base seed, but not the check, the variant or the device:
        all of them get the same numbers, in any order and in any process.
        """
        return f"{self.operator.id}[{self.dtype}]#{sample.name}" + (f"@{self.base_seed}" if self.base_seed else "")

    def __str__(self) -> str:
        return self.id
