"""Whether a device is there, and the reason why not."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from opcheck.devices.device import availability
from opcheck.devices.presence import Availability
from opcheck.spec.device_profile import DeviceProfile, profiles


def profile(name="ghost", **keys):
    return DeviceProfile.model_validate({"name": name, **keys})


def test_the_cpu_is_always_there():
    found = availability(profiles()["cpu"])
    assert (found.present, found.reason, found.count) == (True, "", 1)
    assert found.detail.endswith("threads")


def test_a_build_without_cuda_says_so(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert availability(profiles()["cuda"]) == Availability(False, "this build of torch has no CUDA")


def test_a_build_with_cuda_but_no_device_says_so(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert availability(profiles()["cuda"]) == Availability(False, "torch.cuda.is_available() is False")


def test_a_device_that_refuses_a_tensor_is_absent_with_its_own_words(monkeypatch):
    def refuse(*arguments, **keys):
        raise RuntimeError("out of order\nsecond line")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", refuse)
    assert availability(profiles()["cuda"]) == Availability(False, "out of order")


def test_a_device_that_cannot_be_described_is_absent(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("driver too old")

    monkeypatch.setattr(torch, "meta", SimpleNamespace(is_available=lambda: True, device_count=broken), raising=False)
    assert availability(profile(torch="meta")) == Availability(False, "driver too old")


def test_a_device_is_counted_and_described(monkeypatch):
    module = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 3, get_device_name=lambda device: "Imaginary 9"
    )
    monkeypatch.setattr(torch, "meta", module, raising=False)
    assert availability(profile(torch="meta")) == Availability(True, "", 3, "Imaginary 9")


def test_a_device_without_a_module_of_torch_can_be_present():
    assert availability(profile(torch="meta")) == Availability(True, "", 1, "")


def test_a_name_that_torch_does_not_know_is_told():
    found = availability(profile(torch="warp"))
    assert not found.present
    assert found.reason.startswith("torch knows no device 'warp': ")
    assert "\n" not in found.reason


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (None, "importing ghost_backend failed: ModuleNotFoundError: No module named 'ghost_backend'"),
        ("raise OSError('libghost.so is missing')", "importing ghost_backend failed: OSError: libghost.so is missing"),
    ],
)
def test_a_backend_that_cannot_be_imported_is_told(tmp_path, monkeypatch, source, reason):
    if source is not None:
        (tmp_path / "ghost_backend.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert availability(profile(torch="meta", module="ghost_backend")) == Availability(False, reason)


def test_the_module_of_a_backend_is_imported_first(tmp_path, monkeypatch):
    (tmp_path / "early_backend.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert availability(profile(torch="meta", module="early_backend")).present
    assert "early_backend" in sys.modules
