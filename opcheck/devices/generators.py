"""The global random number generators of the host that operators may draw from: torch's, Python's and NumPy's."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Generator:
    """A global random number generator."""

    name: str
    read: Callable[[], Any]
    """Returns its state."""
    write: Callable[[Any], object]
    seed: Callable[[int], object]
    remedy: str
    """What to use instead of seeding it."""

    def has_state(self, state: Any) -> bool:
        """Return whether it is in a state that was read before."""
        now = self.read()
        return torch.equal(now, state) if isinstance(now, Tensor) else bool(now == state)


TORCH = Generator(
    "torch's global random generator",
    torch.get_rng_state,
    torch.set_rng_state,
    torch.default_generator.manual_seed,  # torch.manual_seed is slow: see device.py
    "use a torch.Generator of its own, or torch.random.fork_rng()",
)
PYTHON = Generator(
    "the random generator of Python's random", random.getstate, random.setstate, random.seed,
    "use a random.Random of its own",
)  # fmt: skip


def generators() -> Iterator[Generator]:
    """Yield torch's generator, that of Python's `random`, and that of `numpy.random` if NumPy has been imported."""
    yield from (TORCH, PYTHON)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        yield Generator(
            "the global random generator of numpy.random",
            lambda: tuple(part.tolist() if hasattr(part, "tolist") else part for part in numpy.random.get_state()),
            lambda state: numpy.random.set_state(state),  # NumPy imports numpy.random when it is first used
            lambda number: numpy.random.seed(number % 2**32),
            "use a numpy.random.Generator of its own",
        )
