"""The state of the process: what a case needs, and what is put back."""

from __future__ import annotations

import random
import subprocess
import sys
from types import SimpleNamespace

import numpy
import pytest
import torch

from opcheck.running.process_state import applied, changes, for_cases, read, transform_is_open


def test_a_case_needs_gradients_and_one_thread_whatever_the_process_has():
    with torch.inference_mode(), torch.autograd.detect_anomaly(check_nan=False):
        state = for_cases(read())
    needed = {"grad mode": True, "inference mode": False, "anomaly mode": False, "threads": 1}
    assert {name: state[name] for name in needed} == needed


def test_cases_on_a_gpu_run_without_tf32_whatever_the_process_has():
    before = torch.backends.cudnn.allow_tf32
    try:
        for allowed in (True, False):
            torch.backends.cudnn.allow_tf32 = allowed
            with applied(read(), "cuda"):
                assert not torch.backends.cudnn.allow_tf32
            assert torch.backends.cudnn.allow_tf32 is allowed
    finally:
        torch.backends.cudnn.allow_tf32 = before


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="one setting holds for all of cuDNN")
def test_a_process_may_have_set_tf32_for_a_part_of_cudnn():
    code = (
        "import torch; from opcheck.running.process_state import applied, read\n"
        "cudnn = torch.backends.cudnn\n"
        "cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = 'ieee', 'tf32'\n"
        "with applied(read(), 'cuda') as left:\n"
        "    assert not cudnn.allow_tf32\n"
        "assert left == []\n"
        "assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == ('ieee', 'tf32')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_states_that_are_equal_have_no_changes():
    assert changes(read(), read()) == []


def test_an_open_transform_is_noticed():
    seen = []
    torch.func.vmap(lambda x: (seen.append(transform_is_open()), x)[1])(torch.ones(2))
    assert seen == [True]
    assert not transform_is_open()


def test_random_numbers_of_the_host_go_on_as_if_no_case_had_run():
    def draw():
        return torch.rand(1).item(), random.random(), numpy.random.rand()

    with applied(read()) as left:
        first = draw()
    assert draw() == first
    assert left == []


class TestGeneratorsOfOtherDevices:
    @pytest.fixture
    def module(self, monkeypatch):
        """A module of a device, whose generator has a number for a state."""
        module = SimpleNamespace(state=1)
        module.get_rng_state = lambda: module.state
        module.set_rng_state = lambda state: setattr(module, "state", state)
        monkeypatch.setattr(torch, "get_device_module", lambda device: module)
        return module

    def test_the_one_of_the_device_is_put_back(self, module):
        with applied(read(), "cuda:0"):
            module.state = 2
        assert module.state == 1

    def test_those_of_other_devices_are_left_alone(self, module):
        with applied(read()):
            module.state = 2
        assert module.state == 2

    @pytest.mark.parametrize("missing", ["get_rng_state", "set_rng_state"])
    def test_a_device_may_have_none(self, module, missing):
        delattr(module, missing)
        with applied(read(), "cuda") as left:
            module.state = 2
        assert left == []


def test_a_default_device_that_was_there_before_is_put_back():
    torch.set_default_device("meta")
    try:
        with applied(read()):
            torch.set_default_device("cpu")
        assert torch.get_default_device() == torch.device("meta")
    finally:
        torch.set_default_device(None)


CODE = """
import sys

import torch
from opcheck.running.process_state import preload_lazy_imports

preload_lazy_imports()
before = set(sys.modules)
x = torch.ones(2, 2, dtype=torch.float64)
with torch.autograd.forward_ad.dual_level():
    dual = torch.autograd.forward_ad.make_dual(x, x)
    ((dual + 1) * 2 @ x).exp().sum()
torch.func.vmap(lambda t: torch.func.jvp(torch.log1p, (x,), (t,))[1])(torch.ones(3, 2, 2, dtype=torch.float64))
torch.testing.assert_close(x, x + 0)
print(sorted(name for name in set(sys.modules) - before if name.startswith(("torch", "sympy"))))
"""


def test_what_torch_imports_late_is_there_before_and_no_warning_is_in_the_way():
    warns = torch.__version__ < "2.7"  # of a folder of torch, which is removed as the process ends
    options = ("-W", "error", *(("-W", "default::ResourceWarning") if warns else ()))
    done = subprocess.run([sys.executable, *options, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert "ResourceWarning" in done.stderr if warns else not done.stderr
