"""Random numbers start from a seed on the device of a case."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace

import numpy
import pytest
import torch

from opcheck.devices.device import CPU, Device
from opcheck.devices.generators import generators
from opcheck.spec.device_profile import DeviceProfile


@pytest.fixture(autouse=True)
def _put_back():
    before = [(one, one.read()) for one in generators()]
    yield
    for one, state in before:
        one.write(state)


def test_the_cpu_draws_what_it_draws_after_manual_seed():
    CPU.seed(7)
    drawn = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(3))


def test_python_and_numpy_draw_the_same_numbers_after_a_seed():
    drawn = []
    for _ in range(2):
        CPU.seed(7)
        drawn.append((random.random(), numpy.random.rand()))
    assert drawn[0] == drawn[1]


def test_devices_that_are_not_tested_are_left_alone(monkeypatch):
    monkeypatch.setattr("torch.cuda.manual_seed_all", lambda seed: pytest.fail("seeded"))
    CPU.seed(7)


@pytest.mark.parametrize("name", ["manual_seed_all", "manual_seed", None])
def test_another_device_is_seeded_as_well_if_it_can_be(name, monkeypatch):
    seeds = []
    module = SimpleNamespace(**{name: seeds.append} if name else {})
    monkeypatch.setattr("torch.get_device_module", lambda device: module)
    monkeypatch.setattr("torch.manual_seed", lambda seed: pytest.fail("it seeds all devices"))
    Device(DeviceProfile(name="cuda"), "cuda:0").seed(7)
    assert seeds == ([7] if name else [])


SEEDS = []


def test_the_function_that_a_profile_names_seeds_its_device(monkeypatch):
    module = SimpleNamespace(manual_seed_all=lambda seed: pytest.fail("seeded"))
    monkeypatch.setattr("torch.get_device_module", lambda device: module)
    monkeypatch.setitem(sys.modules, "opseeder", SimpleNamespace(seed=SEEDS.append))
    Device(DeviceProfile(name="cuda", seed="opseeder:seed"), "cuda:0").seed(7)
    assert SEEDS == [7]
