"""How a device is seeded, waited for and asked for its memory."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from opcheck.devices import hooks
from opcheck.devices.hooks import availability
from opcheck.spec.device import DeviceProfile

CUDA = DeviceProfile(name="cuda")
CPU = DeviceProfile(name="cpu")


@pytest.fixture
def module(monkeypatch):
    """Make torch's module for any device."""

    def make(**functions):
        monkeypatch.setattr("torch.get_device_module", lambda device: SimpleNamespace(**functions))

    return make


@pytest.fixture
def backend(monkeypatch):
    """Make a module `opbackend` with some functions."""

    def make(**functions):
        monkeypatch.setitem(sys.modules, "opbackend", SimpleNamespace(**functions))

    hooks.function.cache_clear()
    yield make
    hooks.function.cache_clear()


def test_kinds_of_devices_without_a_module_have_none():
    assert hooks.device_module("cpu") is None
    assert hooks.device_module("meta") is None
    assert hooks.device_module("cuda:1") is torch.cuda


@pytest.mark.parametrize(("device", "called"), [("cuda", []), ("cuda:3", [3])])
def test_a_device_is_waited_for_by_torch(module, device, called):
    calls = []
    module(synchronize=lambda *index: calls.append([*index]))
    hooks.synchronize(CUDA, device)
    assert calls == [called]


def test_a_device_is_waited_for_as_its_profile_says(module, backend):
    calls = []
    module(synchronize=lambda: pytest.fail("called"))
    backend(wait=lambda: calls.append("waited"))
    hooks.synchronize(DeviceProfile(name="cuda", synchronize="opbackend:wait"), "cuda")
    assert calls == ["waited"]


def test_a_device_without_any_of_it_is_left_alone(module):
    module()
    hooks.synchronize(CUDA, "cuda")
    hooks.set_device("cuda:1")
    hooks.free_caches("cuda")
    assert hooks.free_memory("cuda") is None
    hooks.synchronize(CPU, "cpu")
    assert hooks.free_memory("cpu") is None


def test_memory_is_asked_for_by_index(module):
    module(mem_get_info=lambda index: (100 + index, 1000))
    assert [hooks.free_memory(device) for device in ("cuda", "cuda:2")] == [100, 102]

    def broken(index):
        raise RuntimeError("not supported")

    module(mem_get_info=broken)
    assert hooks.free_memory("cuda") is None


def test_a_function_is_found_by_either_way_to_write_it(backend):
    def wait():
        return 7

    backend(wait=wait, inner=SimpleNamespace(wait=wait), number=3)
    assert (
        hooks.function("opbackend:wait") is hooks.function("opbackend.wait") is hooks.function("opbackend:inner.wait")
    )
    with pytest.raises(ImportError, match="opbackend:number is no function"):
        hooks.function("opbackend:number")


class TestProbe:
    def test_a_device_that_works_has_no_fault(self):
        assert hooks.fault(CPU, "cpu") == ""

    def test_an_error_at_the_next_call_or_at_the_next_wait_is_one(self, backend):
        def wait():
            raise RuntimeError("device-side assert\nmore")

        backend(wait=wait)
        assert hooks.fault(DeviceProfile(name="cpu", synchronize="opbackend:wait"), "cpu") == "device-side assert"
        assert hooks.fault(DeviceProfile(name="npu", torch="warp"), "warp").startswith("Expected one of cpu, cuda")

    def test_so_is_a_wrong_result(self, monkeypatch):
        monkeypatch.setattr(torch, "ones", lambda size: torch.zeros(size))
        assert hooks.fault(CPU, "cpu") == "a copy of two ones is [0.0, 0.0]"


@pytest.mark.parametrize("key", ["seed", "synchronize"])
def test_a_device_whose_functions_are_not_there_is_absent(key, backend):
    backend(other=print)
    profile = DeviceProfile.model_validate({"name": "npu", "torch": "cpu", key: "opbackend:seed"})
    why = "AttributeError: 'types.SimpleNamespace' object has no attribute 'seed'"
    assert availability(profile).reason == f'{key} = "opbackend:seed" is not there: {why}'
    backend(seed=print)
    assert availability(profile).present


def test_a_module_that_ends_the_process_is_told(tmp_path, monkeypatch):
    (tmp_path / "opends.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    assert availability(DeviceProfile(name="npu", module="opends")).reason == "importing opends failed: SystemExit: 3"
