"""Limits on the specs of a project: allowed modules, known devices, the size of tensors, the number of samples.

Specs are compared with the limits before anything is imported or allocated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opcheck.spec.allow_list import not_importable, refused
from opcheck.spec.operator import LARGE, OperatorSpec, VariantTarget
from opcheck.spec.positions import KeyPath
from opcheck.spec.problems import Mistake, unknown
from opcheck.spec.recipe import Tensor
from opcheck.spec.values import CallValue, ObjectValue, parts

REFERENCE_MODULES = ("numpy", "scipy", "math", "torch._refs")
"""Modules always allowed for references. torch._refs implements torch's operators in terms of simpler ones."""


@dataclass(frozen=True)
class Limits:
    """The limits that a project sets."""

    modules: tuple[str, ...] = ("torch",)
    max_elements: int = 4096
    max_samples: int = 1000
    devices: Collection[str] | None = None
    """The names of all devices; None: unknown, so that names of devices are not checked."""

    def of_operator(self, spec: OperatorSpec) -> Iterator[Mistake]:
        """Yield the mistakes in the claims of an operator, except those in its samples."""
        targets = [one.target if isinstance(one, VariantTarget) else None for one in spec.variants]
        reference = spec.reference_in_full
        paths: dict[KeyPath, str | None] = {
            ("target",) if spec.target else ("name",): spec.callable_path,
            ("surrogate",): spec.surrogate_path,
            **{("aliases", index): alias for index, alias in enumerate(spec.aliases)},
            **{("variants", index, "target"): target for index, target in enumerate(targets)},
        }
        for place, path in paths.items():
            yield from _refused(place, path, self.modules)
        if reference is not None:
            place = ("reference",) if isinstance(spec.reference, str) else ("reference", "target")
            yield from _refused(place, reference.target, (*self.modules, *REFERENCE_MODULES))
        for index, module in enumerate(spec.imports):
            words = not_importable(module, self.modules)
            if words:
                yield Mistake(("imports", index), *words)
        if spec.module is not None:
            yield from self.of_parts(parts({"args": spec.module.args, "kwargs": spec.module.kwargs}, ("module",)))
        for index, claim in enumerate(spec.errors):
            yield from self.of_parts(parts({"args": claim.args, "kwargs": claim.kwargs}, ("errors", index)))
        if self.devices is not None:
            named: dict[KeyPath, str] = {("per_device", name): name for name in spec.per_device}
            listed: dict[KeyPath, Iterable[str] | None] = {("devices",): spec.devices}
            listed |= {("errors", index, "devices"): claim.devices for index, claim in enumerate(spec.errors)}
            named |= {(*at, index): name for at, names in listed.items() for index, name in enumerate(names or ())}
            for place, name in named.items():
                if name not in self.devices:
                    yield Mistake(place, *unknown("device", name, self.devices), key=place[0] == "per_device")

    def of_parts(self, listed: Iterable[tuple[KeyPath, Any]], *, large: bool | None = None) -> Iterator[Mistake]:
        """Yield the mistakes in parts of arguments: objects and calls that are not allowed, tensors that are too large.

        large: whether the arguments are those of a sample with `large = true`; None: they belong to no sample.
        """
        most = max(self.max_elements, LARGE) if large else self.max_elements
        for at, part in listed:
            if isinstance(part, ObjectValue):
                yield from _refused((*at, "object"), part.object, self.modules)
            elif isinstance(part, CallValue):
                yield from _refused((*at, "call"), part.call, self.modules)
            elif isinstance(part, Tensor) and part.numel > most:
                expected = f"at most {most} (max_elements of [tool.opcheck])"
                if large is False and part.numel <= LARGE:
                    expected += f", or large = true in the sample, for up to {LARGE}"
                yield Mistake(at, f"a tensor of {_amount(part.numel)} elements is too large", expected)

    def count(self, samples: int | None = None) -> tuple[str, str]:
        """Return the message for too many samples. samples: their number, or None if it is unknown."""
        count = f"more than {self.max_samples}" if samples is None else _amount(samples)
        return f"too many samples: {count}", f"at most {self.max_samples} (max_samples of [tool.opcheck])"


def _refused(place: KeyPath, path: str | None, modules: Sequence[str]) -> Iterator[Mistake]:
    words = refused(path, modules) if path is not None else None
    if words:
        yield Mistake(place, *words)


def _amount(count: int) -> str:
    return str(count) if count < 10**15 else "more than 10^15"
