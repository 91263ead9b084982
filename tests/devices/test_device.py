"""How a device is seeded, waited for and asked for its memory."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from opcheck.devices.device import CPU, Device, availability, device_module, function
from opcheck.spec.device_profile import DeviceProfile


def cuda(string="cuda", **keys):
    return Device(DeviceProfile(name="cuda", **keys), string)


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

    function.cache_clear()
    yield make
    function.cache_clear()


def test_kinds_of_devices_without_a_module_have_none():
    assert device_module("cpu") is None
    assert device_module("meta") is None
    assert device_module("cuda:1") is torch.cuda


@pytest.mark.parametrize(("device", "called"), [("cuda", []), ("cuda:3", [3])])
def test_a_device_is_waited_for_by_torch(module, device, called):
    calls = []
    module(synchronize=lambda *index: calls.append([*index]))
    cuda(device).synchronize()
    assert calls == [called]


def test_a_device_is_waited_for_as_its_profile_says(module, backend):
    calls = []
    module(synchronize=lambda: pytest.fail("called"))
    backend(wait=lambda: calls.append("waited"))
    cuda(synchronize="opbackend:wait").synchronize()
    assert calls == ["waited"]


def test_a_device_without_any_of_it_is_left_alone(module):
    module()
    cuda().synchronize()
    cuda("cuda:1").make_current()
    cuda().free_caches()
    assert cuda().free_memory() is None
    CPU.synchronize()
    assert CPU.free_memory() is None


def test_memory_is_asked_for_by_index(module):
    module(mem_get_info=lambda index: (100 + index, 1000))
    assert [cuda(device).free_memory() for device in ("cuda", "cuda:2")] == [100, 102]

    def broken(index):
        raise RuntimeError("not supported")

    module(mem_get_info=broken)
    assert cuda().free_memory() is None


def test_a_function_is_found_by_either_way_to_write_it(backend):
    def wait():
        return 7

    backend(wait=wait, inner=SimpleNamespace(wait=wait), number=3)
    assert function("opbackend:wait") is function("opbackend.wait") is function("opbackend:inner.wait")
    with pytest.raises(ImportError, match="opbackend:number is not a function"):
        function("opbackend:number")


class TestProbe:
    def test_a_device_that_works_has_no_fault(self):
        assert CPU.fault() == ""

    def test_an_error_at_the_next_call_or_at_the_next_wait_is_one(self, backend):
        def wait():
            raise RuntimeError("device-side assert\nmore")

        backend(wait=wait)
        assert Device(DeviceProfile(name="cpu", synchronize="opbackend:wait"), "cpu").fault() == "device-side assert"
        assert Device(DeviceProfile(name="npu", torch="warp"), "warp").fault().startswith("Expected one of cpu, cuda")

    def test_so_is_a_wrong_result(self, monkeypatch):
        monkeypatch.setattr(torch, "ones", lambda size: torch.zeros(size))
        assert CPU.fault() == "a copy of two ones is [0.0, 0.0]"


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
