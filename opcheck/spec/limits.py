"""The limits that a project sets: allowed modules, the size of tensors, the number of samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opcheck.spec.names import refused
from opcheck.spec.operator import LARGE, SampleSpec
from opcheck.spec.positions import Path
from opcheck.spec.recipe import Tensor
from opcheck.spec.values import CallValue, ObjectValue, parts


@dataclass(frozen=True)
class Limits:
    """Compares values with the limits, before anything is imported or allocated."""

    modules: tuple[str, ...] = ("torch",)
    max_elements: int = 4096
    max_samples: int = 1000

    def of_sample(self, spec: SampleSpec) -> Iterator[tuple[Path, str, str, str]]:
        """Yield the path and the text of each mistake in the values of a sample."""
        yield from self.of_values(spec.args, ("args",), large=spec.large)
        for key in ("kwargs", "grid", "grad_outputs"):
            if getattr(spec, key):
                yield from self.of_values(getattr(spec, key), (key,), large=spec.large)

    def of_values(self, value: Any, place: Path, *, large: bool | None = None) -> Iterator[tuple[Path, str, str, str]]:
        """Yield the path and the text of each mistake in a value.

        large: whether it is part of a sample that may be large; None: it is no part of a sample.
        """
        most = max(self.max_elements, LARGE) if large else self.max_elements
        for at, part in parts(value, place):
            if isinstance(part, (ObjectValue, CallValue)):
                key, path = ("object", part.object) if isinstance(part, ObjectValue) else ("call", part.call)
                words = refused(path, self.modules)
                if words:
                    yield ((*at, key), *words)
            elif isinstance(part, Tensor) and part.numel > most:
                what = f"a tensor of {_amount(part.numel)} elements is too large"
                more = (
                    f", or large = true in the sample, for up to {LARGE}"
                    if large is False and part.numel <= LARGE
                    else ""
                )
                yield (at, what, f"at most {most} (max_elements of [tool.opcheck]){more}", "")

    def count(self, samples: int | None = None) -> tuple[str, str]:
        """Return the message for too many samples. `samples` is None if they were not all counted."""
        count = f"more than {self.max_samples}" if samples is None else _amount(samples)
        return f"too many samples: {count}", f"at most {self.max_samples} (max_samples of [tool.opcheck])"


def _amount(count: int) -> str:
    return str(count) if count < 10**15 else "more than 10^15"
