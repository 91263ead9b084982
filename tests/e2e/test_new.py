"""`opcheck new` writes a spec that holds, but for what is wrong with the operators."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest
import tomli
from backends import needs_python_backend
from demo_project import Finished

ROOT = Path(__file__).resolve().parent.parent.parent

OPERATORS = '''
import os

import torch
from torch.autograd.function import once_differentiable


class Cube(torch.autograd.Function):
    """Differentiable once."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * 3 * x.conj() ** 2


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.sort(x)[0].sum() + 2 * x

    @staticmethod
    def backward(ctx, v):
        return 3 * v


cube = Cube.apply
wrong = Wrong.apply


def double(x, scale: float = 2.0):
    return scale * x


def double_(x, scale: float = 2.0):
    return x.mul_(scale)


def noise(x, p: float):
    return x * (torch.rand_like(x) > p)


def entropy(p):
    return -(p * p.log()).sum(-1)


def aborts(x):
    if x.dim() > 1:
        os.abort()
    return 2 * x


def text(x: str):
    return x


class Layer(torch.nn.Module):
    """Has state that training mode changes."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(out_features, in_features))
        self.register_buffer("mean", torch.zeros(in_features))

    def forward(self, x):
        y = (x - self.mean) @ self.weight.mT
        if self.training:
            with torch.no_grad():
                self.mean = 0.5 * self.mean + x.mean(0)
            y = 2 * y
        return y


class WrongLayer(torch.nn.Module):
    """Its weight gets three times its gradient."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * (3 * self.weight - 2 * self.weight.detach())


class Configured(torch.nn.Module):
    def __init__(self, config: dict):
        super().__init__()

    def forward(self, x):
        return x
'''

TESTS = """
import torch
from ours import double


def test_double():
    assert double(torch.ones(2), scale=3.0).sum() == 6
    assert double(torch.zeros(1000)).sum() == 0
"""

SETTINGS = "# ours\n[tool.opcheck]\nmodules = ['torch']  # allowed\n"


@pytest.fixture(scope="module")
def drafted(shared):
    """What `opcheck new` says about a module, and the files that it leaves, as `records`."""

    def draft(project):
        shutil.rmtree(project.folder / "specs")
        project.write("ours.py", OPERATORS)
        project.write("tests/test_ours.py", TESTS)
        project.write("pyproject.toml", SETTINGS)
        process = project.start("opcheck", "new", "ours", "--from-tests", "tests", "-n", "1")
        out, err = process.communicate(timeout=900)  # several runs in one
        found = Finished(process.returncode, out, err, {}, [], {})
        found.records = {name: (project.folder / name).read_text() for name in ("specs/ours.toml", "pyproject.toml")}
        run = project.run("opcheck", "run", "--device", "cpu", "--report-json", "report.json")
        found.junit = [record for record in run.records.values() if record["outcome"] not in ("passed", "skipped")]
        return found

    return shared("drafted", draft)


@pytest.fixture
def operators(drafted):
    found = tomli.loads(drafted.records["specs/ours.toml"])["operator"]
    return {operator["name"].removeprefix("ours."): operator for operator in found}


@pytest.mark.nightly
def test_each_function_and_class_of_modules_is_drafted(operators, drafted):
    functions = {"cube", "wrong", "double", "noise", "entropy", "aborts"}
    assert operators.keys() == functions | {"Layer", "WrongLayer"}
    assert "not drafted: ours.Configured: no guess for the parameter config: dict; pass" in drafted.out
    assert "not drafted: ours.text: it takes no tensor, so there is nothing to differentiate" in drafted.out


@pytest.mark.nightly
def test_what_is_wrong_is_said_first_and_left_to_fail(operators, drafted):
    said = drafted.out.splitlines()
    wrong = next(
        index for index, line in enumerate(said) if line.startswith("failed: ours.wrong::backward[cpu-float64]")
    )
    assert wrong < next(index for index, line in enumerate(said) if line.startswith(("not drafted", "wrote")))
    assert operators["wrong"]["supports"].keys() <= {"out", "forward_ad", "vmap"}
    assert drafted.code == 1
    begin = said.index("ours.wrong::backward[cpu-float64], in plain torch, without opcheck:")
    assert "    return [ours.wrong(x)]" in said[begin:]
    assert "all failures in plain torch: opcheck run --repro specs/ours.toml" in said[begin:]


@pytest.mark.nightly
def test_a_crash_is_said_and_its_sample_left_out(operators, drafted):
    crash = "the process crashed (SIGABRT), in the call { args = [{ shape = [2, 3] }] }"
    assert f"failed: ours.aborts: {crash}" in drafted.out
    assert operators["aborts"]["samples"] == [{"args": [{"shape": [3], "low": 0.1, "high": 0.9}]}]


@pytest.mark.nightly
def test_modules_are_constructed_and_each_mode_has_a_sample(operators):
    assert operators["Layer"]["module"] == {"args": [3, 2]}
    training, *_, evaluation = operators["Layer"]["samples"]
    assert evaluation == {**training, "module": {"train": False}}
    assert "supports" not in operators["Layer"]
    assert operators["WrongLayer"]["module"] == {}


@pytest.mark.nightly
def test_the_run_fails_for_what_is_wrong_alone(drafted):
    # The draft leaves out the sample that ends the process. Derived ones have its rank: no claim could be taken back.
    crashed = [record for record in drafted.junit if record["operator"] == "ours.aborts"]
    assert {(record["check"], record["outcome"]) for record in crashed} == {("derived", "error")}
    assert {record["operator"] for record in drafted.junit} == {"ours.wrong", "ours.WrongLayer", "ours.aborts"}
    assert {record["check"] for record in drafted.junit if record["outcome"] == "failed"} >= {"backward"}


@pytest.mark.nightly
def test_refusals_are_disclaimed_with_what_happened(operators, drafted):
    assert operators["cube"]["supports"] == {"forward_ad": False, "second_order": False, "vmap": False, "out": False}
    text = drafted.records["specs/ours.toml"]
    assert re.search(r"forward_ad = false  # .*jvp", text)
    assert re.search(r"second_order = false  # .*once_differentiable", text)
    assert re.search(r"# No forward pass in complex64, complex128: .*complex", text)


@pytest.mark.nightly
def test_variants_domains_and_randomness_are_found(operators):
    assert operators["double"]["variants"] == [{"kind": "inplace", "target": "ours.double_"}]
    assert operators["noise"]["reseed"] is True
    assert all(sample["args"][0]["low"] > 0 for sample in operators["entropy"]["samples"])


@pytest.mark.nightly
def test_calls_of_tests_become_small_samples(operators):
    expected = {"args": [{"shape": [2], "low": 0.5, "high": 1.011}], "kwargs": {"scale": 3.0}}
    assert operators["double"]["samples"] == [expected, {"args": [{"shape": [8]}]}]


@pytest.mark.nightly
def test_settings_keep_their_comments(drafted):
    text = drafted.records["pyproject.toml"]
    assert text.startswith("# ours\n[tool.opcheck]\n")
    assert "# allowed" in text
    assert tomli.loads(text)["tool"]["opcheck"] == {"modules": ["torch", "ours"], "specs": ["specs"]}


NETS = """
from enum import Enum

import torch


class Mode(Enum):
    SQUARE = 1
    CUBE = 2


class Mixer(torch.nn.Module):
    def __init__(self, width, heads, act):
        super().__init__()
        assert width % heads == 0
        self.linear, self.heads, self.act = torch.nn.Linear(width, width), heads, act

    def forward(self, x, mask):
        rows = self.act(self.linear(x)).view(*x.shape[:2], self.heads, -1)
        return rows.masked_fill(mask[:, :, None, None], 0.0).sum(-1)


def power(x, mode: Mode):
    return x**2 if mode is Mode.SQUARE else x**3
"""

CALLS = """
import torch
from nets import Mixer, Mode, power


def test_mixer():
    mask = torch.zeros(4, 10, dtype=torch.bool)
    assert Mixer(64, 8, torch.tanh)(torch.randn(4, 10, 64), mask).shape == (4, 10, 8)


def test_power():
    assert power(torch.randn(500), Mode.CUBE).shape == (500,)
"""


@pytest.mark.nightly
def test_large_calls_of_modules_become_small_samples(cli, project):
    project.write("nets.py", NETS)
    project.write("tests/test_nets.py", CALLS)
    run = cli("new", "nets", "--from-tests", "tests", "-n", "1")
    assert (run.code, run.err) == (0, "")
    mixer, power = tomli.loads((project.folder / "specs" / "nets.toml").read_text())["operator"]
    assert mixer["module"] == {"args": [4, 2, {"object": "torch.tanh"}]}
    assert mixer["samples"] == [{"args": [{"shape": [4, 2, 4]}, {"shape": [4, 2], "dtype": "bool"}]}]
    assert power["samples"] == [{"args": [{"shape": [8]}, {"object": "nets.Mode.CUBE"}]}]


class TestRequests:
    """What can be refused before anything is tried."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["demo.duble"], 'demo has no attribute "duble"; did you mean "demo.double"?'),
            (["nowhere.f"], 'no module named "nowhere"'),
            (["nowhere"], 'no module named "nowhere"'),
            (["torhc"], 'no module named "torhc"; did you mean "torch"?'),
            (
                ["demo.Wrong"],
                '"demo.Wrong" is a torch.autograd.Function; name its apply; did you mean "demo.Wrong.apply"?',
            ),
            (["demo.double", "--output", "specs/good.toml"], "specs/good.toml has [defaults], which would apply"),
            (
                ["demo.double", "--output", "demo.spec"],
                "--output demo.spec: expected a file whose name ends in .toml, or ",
            ),
            (["demo.wrong", "--args", "[{ shap = [2] }]"], "--args [{ shap = [2] }]: "),
            (["demo.double", "--module", "[3"], "--module [3: "),
            (["demo.raises"], " raised RuntimeError: not today; pass arguments with --args"),
        ],
    )
    def test_a_request_that_cannot_be_met_says_why(self, cli, project, arguments, message):
        before = (project.folder / "pyproject.toml").read_text()
        run = cli("new", *arguments)
        assert message in run.err
        assert (run.code, (project.folder / "pyproject.toml").read_text()) == (2, before)
        assert not (project.folder / "specs" / "demo.toml").exists()


def test_a_folder_gets_a_file_named_after_the_package(cli, project):
    run = cli("new", "demo.double", "--output", "drafts", "-n", "1")
    assert (run.code, run.err) == (0, "")
    (operator,) = tomli.loads((project.folder / "drafts" / "demo.toml").read_text())["operator"]
    assert operator["name"] == "demo.double"


ENDINGS = """
import os
import sys

import torch


class Attends(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x, context=None):
        return x * self.weight if context is None else x * self.weight + context


class Attended(Attends):
    '''Has an example that ends its process.

    >>> os._exit(3)
    '''


def leaves(x):
    sys.exit(3)


def interrupts(x):
    raise KeyboardInterrupt("mine")


def ends(x):
    print("Traceback (most recent call last):\\nValueError: not this one", file=sys.stderr)
    os._exit(3)


def pooled(x, rows):
    index = rows[:, 0].long()
    if index.min() < 0 or index.max() >= len(x):
        os.abort()
    return x[index].sum(-1) * rows[:, 1:].sum(-1)


class Unwilling:
    __name__ = "unwilling"

    def __call__(self, x):
        return 2 * x

    @property
    def __signature__(self):
        raise KeyError("no signature today")


unwilling = Unwilling()
"""


CUTS = """\
def weighed(x, weight):
    return x * weight.detach()
"""


def test_arguments_without_a_gradient_are_said_since_it_may_be_a_mistake(cli, project):
    project.write("demo.py", CUTS)
    run = cli("new", "demo.weighed", "--args", "[{ shape = [3] }, { shape = [3] }]")
    assert "demo.weighed has gradients of argument 0 only: if another" in run.out
    assert "backward = [0]  # the others: no output requires grad" in (project.folder / "specs/demo.toml").read_text()


class TestEndings:
    """What ends a probe is told apart: an exception of the operator, one of opcheck, a signal, a status."""

    @pytest.mark.nightly
    @pytest.mark.parametrize("name", ["demo.Attends", "demo.Attended"])
    def test_a_module_with_an_optional_argument_is_drafted_whatever_its_examples_do(self, cli, project, name):
        project.write("demo.py", ENDINGS)
        run = cli("new", name, "-n", "1")
        assert (run.code, run.err) == (0, "")
        (operator,) = tomli.loads((project.folder / "specs" / "demo.toml").read_text())["operator"]
        assert (operator["name"], operator["module"]) == (name, {})
        assert all(sample["args"] for sample in operator["samples"])

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("leaves", "demo.leaves: it ends its process by an exception: SystemExit: 3"),
            ("interrupts", "demo.interrupts: it ends its process by an exception: KeyboardInterrupt: mine"),
            ("ends", "demo.ends: the process exited, with status 3, in the call { args = [{ shape = [2] }] }"),
        ],
    )
    def test_what_an_operator_ends_its_process_by_is_said(self, cli, project, name, message):
        project.write("demo.py", ENDINGS)
        run = cli("new", f"demo.{name}", "--args", "[{ shape = [2] }]")
        assert message in run.err
        assert run.code == 2

    def test_after_a_crash_values_are_tried_that_are_zero_as_indices(self, cli, project):
        project.write("demo.py", ENDINGS)
        run = cli("new", "demo.pooled")
        assert "failed: demo.pooled: the process crashed (SIGABRT), in the call { args = [{ shape = [2, 3] }" in run.out
        (operator,) = tomli.loads((project.folder / "specs" / "demo.toml").read_text())["operator"]
        assert operator["samples"][0]["args"] == [{"shape": [2, 3], "low": 0.1, "high": 0.9}] * 2
        assert run.code == 1

    def test_an_exception_elsewhere_is_no_crash_of_the_operator(self, cli, project):
        project.write("demo.py", ENDINGS)
        run = cli("new", "demo.unwilling")
        assert re.search(
            r"demo\.unwilling: looking for its arguments failed, at \S+demo\.py:\d+: KeyError: 'no signature", run.err
        )
        assert "ends" not in run.err
        assert run.code == 2


TROUBLE = """
import os
import sys
import time

import torch


def bomb(x):
    parts = []
    while True:
        parts.append(torch.ones(2**27))


def crash(x):
    os.abort()


def good(x):
    return 2 * x


def hang(x):
    time.sleep(60)


def late(x):
    if torch.is_grad_enabled() and x.dtype == torch.float32:
        os.abort()
    return x.exp()


def prints(x):
    print('{"refusal": "no"}')
    print("nothing", file=sys.stderr)
    os.write(1, b"from C")
    return x.sin()
"""


@pytest.fixture(scope="module")
def troubled(shared):
    def draft(project):
        shutil.rmtree(project.folder / "specs")
        project.write("demo.py", TROUBLE)
        process = project.start("opcheck", "new", "demo", "-n", "1", "--budget", "10s")
        out, err = process.communicate(timeout=400)
        found = Finished(process.returncode, out, err, {}, [], {})
        found.records = {"specs": (project.folder / "specs/demo.toml").read_text()}
        return found

    return shared("troubled", draft)


class TestTrouble:
    """What an operator does to its process costs that operator, and is named."""

    @pytest.mark.nightly
    @pytest.mark.parametrize(
        "line",
        [
            r"not drafted: demo\.bomb: .*(can't allocate|MemoryError|out of memory|longer than)",
            r"not drafted: demo\.crash: the process crashed \(SIGABRT\), in the call \{ args = ",
            r"not drafted: demo\.hang: it takes longer than 10 s, in the call \{ args = ",
            r"failed: demo\.late: the process crashed \(SIGABRT\), in the case demo\.late::.*-float32\], at sample 0",
        ],
    )
    def test_it_is_named(self, troubled, line):
        assert re.search(line, troubled.out), troubled.out
        assert troubled.code == 1

    @pytest.mark.nightly
    def test_the_others_are_drafted(self, troubled):
        names = [operator["name"] for operator in tomli.loads(troubled.records["specs"])["operator"]]
        assert names == ["demo.good", "demo.late", "demo.prints"]
        assert "from C" not in troubled.out
        assert "nothing" not in troubled.err


SLOW = """
import time


def first(x):
    return 2 * x


def second(x):
    time.sleep(60)


def third(x):
    return 3 * x
"""


class TestInterrupts:
    @pytest.mark.nightly
    def test_what_is_done_is_written_and_the_next_call_goes_on(self, project):
        shutil.rmtree(project.folder / "specs")
        project.write("demo.py", SLOW)
        process = project.start("opcheck", "new", "demo", "-n", "1")
        assert process.stdout.readline().startswith("1 of 3: demo.first: ")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, "not tried: 2 operators" in out) == (2, True)
        assert [one["name"] for one in written_in(project)] == ["demo.first"]
        project.write("demo.py", SLOW.replace("60", "0"))
        again = project.run("opcheck", "new", "demo", "-n", "1")
        assert "specs/demo.toml has 1 operator of demo already" in again.out
        assert [one["name"] for one in written_in(project)] == ["demo.first", "demo.third"]

    def test_a_draft_ends_within_its_time(self, cli, project):
        run = cli("new", "demo", "-n", "1", "--within", "0.001s")
        assert (run.code, "nothing to draft" in run.err) == (2, True)


def written_in(project):
    return tomli.loads((project.folder / "specs/demo.toml").read_text())["operator"]


ON_SIM = '''
import torch


def kernel(x):
    """Runs on the device alone, in single precision."""
    if x.device.type == "cpu":
        raise RuntimeError("no kernel for the CPU")
    assert x.dtype == torch.float32
    return x * x


def both(x, w):
    return x * w + w
'''


@needs_python_backend
class TestOnADevice:
    @pytest.fixture
    def project(self, project):
        shutil.rmtree(project.folder / "specs")
        shutil.copytree(ROOT / "examples/backend/torch_sim", project.folder / "torch_sim")
        project.write("pyproject.toml", '[tool.opcheck]\nmodules = ["torch"]\ndevices = ["torch_sim/profiles"]\n')
        project.write("demo.py", ON_SIM)
        return project

    @pytest.mark.nightly
    def test_what_the_cpu_refuses_is_drafted_for_the_device(self, project):
        run = project.run("opcheck", "new", "demo.kernel", "--device", "sim")
        assert (run.code, "wrote 1 operator" in run.out) == (0, True), run.out + run.err
        (kernel,) = written_in(project)
        assert (kernel["devices"], kernel["dtypes"]) == (["sim"], {"forward": ["float32"]})

    @pytest.mark.nightly
    def test_what_the_cpu_takes_too_is_drafted_for_both(self, project):
        run = project.run("opcheck", "new", "demo.both", "--device", "sim")
        assert (run.code, "wrote 1 operator" in run.out) == (0, True), run.out + run.err
        (both,) = written_in(project)
        assert "devices" not in both

    def test_a_device_that_is_not_there_is_a_mistake(self, cli, project):
        run = cli("new", "demo", "--device", "cuda")
        assert (run.code, "the device cuda is not present: " in run.err) == (2, True)
        run = cli("new", "demo", "--device", "cpu,sim")
        assert (run.code, "operators are drafted on one device at a time" in run.err) == (2, True)
        run = cli("new", "demo", "--device", "simm")
        assert (run.code, 'did you mean "sim"?' in run.err) == (2, True)
