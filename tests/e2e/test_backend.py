"""A device of a vendor, as its README says: what is right passes on it, and each planted fault is found and named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from backends import needs_python_backend

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "backend"
BAD = ("failed", "error", "blocked", "xpassed")
LIBRARY = EXAMPLE.parent.parent / "specs"

pytestmark = [
    pytest.mark.nightly,
    needs_python_backend,
]


@pytest.fixture(scope="module")
def run(shared):
    """Run opcheck in a copy of the example, with variables in the environment. The result is kept under a name."""

    def do(name, *options, paths=("builtin",), files=(), **variables):
        def copied(project):
            shutil.rmtree(project.folder)
            shutil.copytree(EXAMPLE, project.folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
            shutil.copy(project.folder / "without_float64.toml", project.folder / "torch_sim" / "profiles")
            for file, text in files:
                project.write(file, text)
            return project.run("opcheck", "run", *paths, "--report-json", "report.json", *options)

        with pytest.MonkeyPatch.context() as environment:
            for variable, value in variables.items():
                environment.setenv(variable, value)
            return shared(name, copied)

    return do


def failures(finished):
    """The checks that failed or raised, by operator. `dtypes` aside, which repeats them in every dtype."""
    found = {}
    for record in finished.records.values():
        if record["outcome"] in ("failed", "error") and record["check"] != "dtypes":
            found.setdefault(record["operator"], {}).setdefault(record["check"], record)
    return found


RIGHT = ("torch.atan2", "torch.linalg.inv,torch.cumsum")


@pytest.fixture(scope="module", params=RIGHT)
def right(run, request):
    options = ("--device", "cpu,sim", "--operator", request.param, "--dtype", "float64,complex128")
    return run(f"backend_right_{request.param}", *options)


def test_the_right_backend_passes_as_the_cpu_does(right, request):
    operators = request.node.callspec.params["right"].split(",")
    on = {
        device: {case.replace(f"[{device}-", "["): o for case, o in right.outcomes.items() if f"[{device}-" in case}
        for device in ("cpu", "sim")
    }
    own = {case for case in on["sim"] if "::device_consistency[" in case}
    assert {case.partition("::")[0] for case in own} == set(operators)
    assert {on["sim"].pop(case) for case in own} == {"passed"}
    assert on["sim"] == on["cpu"]
    assert len(on["cpu"]) > 40 * len(operators)
    assert not set(on["cpu"].values()) & set(BAD)
    assert right.code == 0


def test_the_report_says_what_the_device_is_called(right):
    assert right.header["devices"] == ["cpu", "sim"]
    assert right.header["details"] == {"sim": "simulated on the CPU"}
    assert right.header["complete"] is True


FAULTS = {
    "missing": ("torch.erfinv", "aten.erfinv.default has no kernel on sim"),
    "gradient": ("torch.tanh", "the reverse-mode Jacobian is not the numerical one"),
    "noncontiguous": ("torch.atan", "those on the CPU for the same inputs"),
    "on_cpu": ("torch.logaddexp2", "output 0 is on cpu, not on sim:0"),
    "conj": ("torch.dot", "those on the CPU for the same inputs"),
    "float64": ("torch.sigmoid", "gradient of input"),
}
FEW = "backward,forward_ad,device_consistency"
CHECKS = (FEW, f"{FEW},accuracy,purity,dtypes,reference")


@pytest.fixture(scope="module", params=CHECKS)
def wrong(run, request):
    operators = ["torch.cos", *(operator for operator, _ in FAULTS.values())]
    options = ("--device", "sim", "--operator", ",".join(operators), "--check", request.param)
    return run(f"backend_wrong_{request.param}", *options, "--dtype", "float64,complex128", SIM_FAULTS=",".join(FAULTS))


@pytest.mark.parametrize(
    ("fault", "checks"),
    [
        ("missing", None),
        ("gradient", {"backward", "forward_ad"}),
        ("noncontiguous", {"device_consistency"}),
        ("on_cpu", {"device_consistency"}),
        ("conj", {"device_consistency"}),
        ("float64", {"device_consistency"}),
    ],
)
def test_a_planted_fault_fails_under_the_check_that_names_it(wrong, request, fault, checks):
    operator, text = FAULTS[fault]
    checks = checks or set(request.node.callspec.params["wrong"].split(",")) - {"dtypes"}
    found = failures(wrong)[operator]
    assert set(found) == checks
    named = found.get("device_consistency") or found["backward"]
    assert text in named["reason"]


def test_nothing_else_fails(wrong):
    assert set(failures(wrong)) == {operator for operator, _ in FAULTS.values()}
    assert wrong.code == 1
    own = [o for case, o in wrong.outcomes.items() if case.startswith("torch.cos")]
    assert set(own) == {"passed"}


def test_the_fault_of_conjugation_shows_only_in_complex_dtypes(wrong):
    bad = {case for case, outcome in wrong.outcomes.items() if case.startswith("torch.dot") and outcome != "passed"}
    assert bad
    assert all("complex128" in case for case in bad)


def test_an_assertion_on_the_device_costs_one_case_of_hundreds(run):
    broken = f"{LIBRARY}/reduction/scans.toml::torch.logcumsumexp::backward[sim-float64]"
    select = (broken, f"{LIBRARY}/unary/trigonometric.toml", "--device", "sim", "--dtype", "float64")
    finished = run("backend_assert", *select, SIM_FAULTS="assert", paths=())
    assert len(finished.records) > 200
    assert [case for case, outcome in finished.outcomes.items() if outcome in BAD] == [broken.partition("toml::")[2]]
    record = finished.records["torch.logcumsumexp::backward[sim-float64]"]
    assert record["outcome"] == "error"
    assert "the device sim is unusable since this case" in record["reason"]
    assert "sim error: device-side assert triggered" in record["reason"]


def test_no_double_precision_comes_near_a_device_that_has_none(run):
    operators = ("torch.sin", "torch.matmul")
    select = ("--device", "sim32", "--operator", ",".join(operators))
    finished = run("backend_float32", *select, SIM_LACKS="float64,complex128")
    bad = {record["id"]: record["reason"] for record in finished.records.values() if record["outcome"] in BAD}
    assert not bad
    for operator in operators:
        judged = {
            (record["check"], record["dtype"]) for record in finished.records.values() if record["operator"] == operator
        }
        assert ("backward", "float32") in judged
        assert not {dtype for _, dtype in judged} & {"float64", "complex128"}


def test_nor_where_a_large_jacobian_is_searched_for_slices(run):
    text = '[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [700] }] }]\n'
    select = ("--device", "sim32", "--check", "backward,forward_ad,low_precision_grad")
    lacks = "float64,complex128"
    finished = run("backend_large", *select, paths=("large.toml",), files=(("large.toml", text),), SIM_LACKS=lacks)
    assert set(finished.outcomes.values()) == {"passed"}
    fields = finished.records["torch.sin::backward[sim32-float32]"]["fields"]
    assert fields["jacobian"] == {"0": "structured"}
