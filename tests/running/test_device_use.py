"""Which device of a kind a process takes, and what becomes of cases on a device that no longer works."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from opcheck.checks.verdict import HOLDS, fails
from opcheck.devices.device import function
from opcheck.devices.presence import Availability
from opcheck.running.runner import run
from opcheck.running.session import RunSession
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile


class Device:
    """A device that can be broken, on the CPU."""

    def __init__(self):
        self.broken = False
        self.late: list[str] = []
        """Errors that it reports once, when it is waited for."""
        self.seeds: list[int] = []

    def wait(self):
        if self.late:
            raise RuntimeError(self.late.pop())
        if self.broken:
            raise RuntimeError("device-side assert triggered\nand no more")


@pytest.fixture
def device(monkeypatch):
    found = Device()
    monkeypatch.setitem(sys.modules, "opdevice", SimpleNamespace(wait=found.wait, seed=found.seeds.append))
    function.cache_clear()
    yield found
    function.cache_clear()


NPU = DeviceProfile(name="npu", torch="cpu", synchronize="opdevice:wait", seed="opdevice:seed")


@pytest.fixture
def session():
    return RunSession(Settings(modules=("torch", "operators")))


@pytest.fixture
def tried(case_of, session):
    """Run a case on the device, whose check is the given function."""

    def run_with(check, profile=NPU, **keys):
        globals()["_check"] = check
        case = case_of(**keys)
        kind = replace(case.kind, implementation=f"{__name__}:_check")
        return run(replace(case, kind=kind, device=profile), session)

    return run_with


def holds(context):
    yield HOLDS


class TestLateErrors:
    def test_an_error_that_the_device_reports_late_belongs_to_the_case(self, tried, device, session):
        def check(context):
            device.late.append("illegal address")
            yield HOLDS

        outcome = tried(check)
        assert outcome.outcome == "error"
        assert outcome.reason == "the device npu reports an error: RuntimeError: illegal address"
        assert outcome.message.splitlines()[-1].startswith("run just this: opcheck run ")
        assert (tried(holds).outcome, session.lost_to) == ("passed", "")

    def test_a_failure_does_not_hide_it(self, tried, device):
        def check(context):
            device.late.append("illegal address")
            yield fails("the slope is wrong")

        assert tried(check).outcome == "error"

    @pytest.mark.skipif(not hasattr(torch, "AcceleratorError"), reason="this torch has no such exception")
    def test_an_error_of_the_device_is_no_defect_of_the_check(self, tried, device):
        def check(context):
            raise torch.AcceleratorError("illegal address")

        outcome = tried(check)
        assert outcome.reason == "the device npu reports an error: AcceleratorError: illegal address"
        assert "defect" not in outcome.message

    def test_it_may_be_expected(self, tried, device):
        def check(context):
            device.late.append("illegal address")
            yield HOLDS

        outcome = tried(check, text=EXPECTING)
        assert (outcome.outcome, outcome.reason) == ("xfailed", "known")


EXPECTING = """
[[operator]]
name    = "operators.right.square"
samples = [{ args = [{ shape = [2] }] }]
[[operator.expect]]
when    = { check = "backward" }
outcome = "error"
match   = "illegal address"
reason  = "known"
"""


class TestStickyErrors:
    def broken(self, device, *verdicts):
        def check(context):
            device.broken = True
            yield from verdicts

        return check

    @pytest.mark.parametrize("verdict", [HOLDS, fails("the slope is wrong")])
    def test_the_case_that_breaks_the_device_is_an_error(self, tried, device, session, verdict):
        outcome = tried(self.broken(device, verdict))
        assert outcome.outcome == "error"
        assert outcome.reason == "the device npu is unusable since this case: device-side assert triggered"
        assert session.lost_to == outcome.id

    def test_a_device_that_says_nothing_when_it_is_waited_for_is_asked_to_compute(self, tried, device, monkeypatch):
        def check(context):
            monkeypatch.setattr("opcheck.devices.device.torch.ones", refuse)
            yield HOLDS

        def refuse(size):
            raise RuntimeError("no more ones")

        assert tried(check).reason == "the device npu is unusable since this case: no more ones"

    def test_what_the_check_has_found_is_told_as_well(self, tried, device):
        def check(context):
            device.broken = True
            raise RuntimeError("index out of bounds")

        assert "index out of bounds" in tried(check).message

    def test_a_derived_sample_that_breaks_the_device_is_named(self, case_of, session, device, monkeypatch):
        def square(x):
            device.broken = device.broken or not x.dim()
            device.wait()
            return x * x

        square.__module__ = "operators.right"
        monkeypatch.setattr("operators.right.square", square)
        case = case_of(text=EXPECTING, check="derived")
        outcome = run(replace(case, device=NPU), session)
        assert outcome.reason == "the device npu is unusable since this case: device-side assert triggered"
        what = "derived: rank 0: the device stops working here\nat the sample { args = [{ shape = [] }] }"
        assert what in outcome.message

    def test_later_cases_on_the_device_are_not_run(self, tried, device):
        first = tried(self.broken(device, HOLDS))
        outcome = tried(lambda context: pytest.fail("run"))
        assert outcome.outcome == "error"
        assert outcome.reason == f"not run: the device npu is unusable since {first.id}"

    def test_those_on_other_devices_are(self, tried, device):
        tried(self.broken(device, HOLDS))
        assert tried(holds, profile=DeviceProfile(name="cpu")).outcome == "passed"

    def test_a_device_that_never_did_the_computation_is_not_judged_by_it(self, tried, device, session):
        device.broken = True
        session.device(NPU)
        device.broken = False
        assert tried(self.broken(device, HOLDS)).reason.startswith("the device npu reports an error")
        assert session.lost_to == ""


def test_the_device_is_seeded_by_its_own_function(tried, device):
    assert tried(holds).outcome == "passed"
    assert len(device.seeds) == 1


def test_an_error_frees_the_memory_of_the_device(tried, device, session, monkeypatch):
    freed = []
    monkeypatch.setattr("opcheck.devices.device.Device.free_caches", lambda device: freed.append(device.string))

    def check(context):
        raise torch.OutOfMemoryError("much")

    before = session.cache
    assert tried(check).reason == "out of memory: OutOfMemoryError: much"
    assert (freed, session.cache is before) == (["cpu"], False)
    assert tried(holds).outcome == "passed"
    assert freed == ["cpu"]


class TestSeveralDevices:
    @pytest.fixture
    def several(self, monkeypatch):
        """Pretend that torch has some devices of a kind. Return the indices that were made the current one."""
        current = []

        def pretend(count, free=1 << 40):
            module = SimpleNamespace(set_device=current.append, mem_get_info=lambda index: (free, free))
            monkeypatch.setattr("torch.get_device_module", lambda device: module)
            found = Availability(True, count=count)
            monkeypatch.setattr("opcheck.running.session.availability", lambda profile: found)
            return current

        return pretend

    def string(self, number, **keys):
        profile = DeviceProfile(name=keys.pop("name", "cuda"), **keys)
        return RunSession(Settings(), number=number).device(profile).string

    def test_processes_take_one_each_in_turn(self, several):
        current = several(2)
        assert [self.string(number) for number in range(4)] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
        assert current == [0, 1, 0, 1]

    def test_a_single_process_or_device_is_left_as_it_is(self, several):
        current = several(2)
        assert self.string(None) == "cuda"
        assert self.string(1, torch="cuda:0") == "cuda:0"
        assert self.string(1, name="cpu") == "cpu"
        several(1)
        assert self.string(1) == "cuda"
        assert current == []

    def test_a_batch_takes_a_part_of_the_memory_that_is_free(self, several, case_of):
        case = replace(case_of(), device=DeviceProfile(name="cuda"))
        for free, memory in ((1 << 40, 256 << 20), (1 << 20, 1 << 18), (0, 1)):
            several(1, free)
            session = RunSession(Settings())
            assert session.context(case).coverage.memory == memory
