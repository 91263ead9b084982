"""Samples from TOML, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from opcheck.planning import load
from opcheck.samples.inputs import Inputs
from opcheck.samples.realize import realize
from opcheck.settings import Settings
from opcheck.spec.library import Sample


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors of a few elements gain nothing from threads that wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def sample(tmp_path: Path) -> Callable[..., Sample]:
    """Make a sample of the TOML text that describes it."""

    def make(text: str, modules: tuple[str, ...] = ("torch",)) -> Sample:
        spec = tmp_path / "spec.toml"
        spec.write_text(f'[[operator]]\nname = "torch.sin"\n[[operator.samples]]\n{text}\n', encoding="utf-8")
        return load([spec], Settings(modules=modules)).operators[0].samples[0]

    return make


@pytest.fixture
def made(sample: Callable[..., Sample]) -> Callable[..., Inputs]:
    """Make the inputs of a sample of the TOML text of its arguments."""

    def make(*args: str, dtype: str = "float64", seed: str = "seed", **settings: Any) -> Inputs:
        return realize(sample(f"args = [{', '.join(args)}]"), dtype, "cpu", seed, **settings)

    return make
