"""The function that is tested: an operator at a sample, as a function of its leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from opcheck.samples.inputs import Inputs
from opcheck.samples.memory import writable
from opcheck.samples.outputs import names, select
from opcheck.samples.seeding import seed_device
from opcheck.spec.claims import Outputs


@dataclass(frozen=True, repr=False)  # torch.func asks for its name with each call, and prints tensors for long
class TestedFunction:
    """Leaves in, tensors out: what derivatives are taken of.

    Calling it fills the leaves into the sample's arguments (through their maps), calls the operator, and returns the
    outputs under test as a tuple. An in-place operator works on a clone. A random one starts from the same seed.
    """

    __test__ = False  # the name is no invitation to pytest

    operator: Callable[..., Any]
    inputs: Inputs
    outputs: Outputs = field(default_factory=Outputs)
    inplace: bool = False
    seed: int | None = None
    masked: bool = False
    device: str = "cpu"
    """torch's device string: where random numbers come from."""

    def __call__(self, *leaves: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs under test for some leaves, of the shapes and dtypes of the sample's own."""
        return self.tested(self.result(*leaves))

    def tested(self, result: Any) -> tuple[Tensor, ...]:
        """Return the outputs under test of what the operator returned. Raises Untestable where there are none."""
        return select(result, self.outputs, self.masked)

    def names(self, result: Any) -> tuple[str, ...]:
        """Return the names of the outputs under test; nothing where they have positions only."""
        return names(result, self.outputs)

    def result(self, *leaves: Tensor) -> Any:
        """Return what the operator itself returns; what it worked on where an in-place one returns nothing."""
        args, kwargs = self.inputs.fill(leaves or None)
        if self.inplace and args:
            args = (_writable(args[0]), *args[1:])
        self.reseed()
        returned = self.operator(*args, **kwargs)
        return args[0] if self.inplace and args and returned is None else returned

    def reseed(self) -> None:
        """Let random numbers start anew, where the operator draws any."""
        if self.seed is not None:
            seed_device(self.seed, self.device)


def _writable(item: Any) -> Any:
    if isinstance(item, Tensor):
        return writable(item)
    return type(item)(map(_writable, item)) if isinstance(item, (list, tuple)) else item
