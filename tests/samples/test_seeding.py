"""Random numbers start from a seed on the device of a case."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from opcheck.samples.seeding import seed_device


@pytest.fixture(autouse=True)
def _put_back():
    state = torch.random.get_rng_state()
    yield
    torch.random.set_rng_state(state)


def test_the_cpu_draws_what_it_draws_after_manual_seed():
    seed_device(7)
    drawn = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(3))


def test_devices_that_are_not_tested_are_left_alone(monkeypatch):
    monkeypatch.setattr("torch.cuda.manual_seed_all", lambda seed: pytest.fail("seeded"))
    seed_device(7)


@pytest.mark.parametrize("module", [True, False])
def test_another_device_is_seeded_as_well(module, monkeypatch):
    seeds = []
    found = SimpleNamespace(manual_seed_all=seeds.append) if module else SimpleNamespace()
    monkeypatch.setattr("torch.get_device_module", lambda device: found)
    monkeypatch.setattr("torch.manual_seed", seeds.append)
    seed_device(7, "cuda:0")
    assert seeds == [7]
