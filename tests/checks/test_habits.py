"""What Jacobians at one point do not show is found under the check that is named for it; right twins pass all."""

from __future__ import annotations

import inspect

import pytest
import torch
from operators import habits

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
NEW = tuple(habits.FAULTS)


def target(name):
    found = getattr(habits, name)
    return f"operators.habits.{name}" + (".apply" if inspect.isclass(found) else "")


def arguments(name):
    found = getattr(habits, name)
    two = issubclass(found, habits.Product) if inspect.isclass(found) else len(inspect.signature(found).parameters) == 2
    return ", ".join(["{ shape = [2, 3], low = 0.5, high = 2 }"] * (2 if two else 1))


def spec(name):
    claims = "forward_ad = true" if "Tangent" in name else "forward_ad = false"
    return f"""
[[operator]]
name     = "{target(name)}"
supports = {{ {claims}, out = false, vmap = false, batched_grad = false }}
samples  = [{{ args = [{arguments(name)}] }}]
"""


@pytest.fixture(autouse=True)
def nothing_kept():
    """What functions keep for the whole process is from no other test."""
    habits.CachesByShape.cache.clear()
    habits.KNOWN.clear()


@pytest.fixture
def outcome_of(outcomes):
    def run(name, check, dtype):
        (outcome,) = outcomes(spec(name), checks=(check,), dtypes=(dtype,)).values()
        return outcome

    return run


FAULTS = [(check, name) for check, names in habits.FAULTS.items() for name in names]


@BOTH
@pytest.mark.parametrize(("check", "name"), FAULTS, ids=[f"{check}-{name}" for check, name in FAULTS])
def test_a_bad_habit_fails_under_its_check(outcome_of, check, name, dtype):
    outcome = outcome_of(name, check, dtype)
    assert outcome.outcome == "failed", f"{outcome.outcome}: {outcome.reason}"
    assert outcome.reason.startswith(check)


def torch_passes(name, dtype):
    """Whether both of torch's functions return True."""
    torch.manual_seed(0)
    count = arguments(name).count("shape")
    leaves = [(torch.rand(2, 3, dtype=getattr(torch, dtype)) + 0.5).requires_grad_() for _ in range(count)]
    found = getattr(habits, name)
    function = found.apply if inspect.isclass(found) else found
    forward = "Tangent" in name
    return torch.autograd.gradcheck(function, leaves, check_forward_ad=forward, raise_exception=False) and (
        torch.autograd.gradgradcheck(function, leaves, raise_exception=False)
    )


@BOTH
@pytest.mark.parametrize("name", [name for names in habits.FAULTS.values() for name in names])
def test_what_torch_sees_of_it_is_known(name, dtype):
    try:
        passed = torch_passes(name, dtype)
    except RuntimeError:
        passed = False
    assert passed == (name not in habits.SEEN_BY_TORCH)


@BOTH
@pytest.mark.parametrize("check", NEW)
@pytest.mark.parametrize("name", habits.TWINS)
def test_a_right_twin_passes(outcome_of, name, check, dtype):
    outcome = outcome_of(name, check, dtype)
    assert outcome.outcome == "passed", outcome.message


OTHERS = [
    (name, check, other)
    for check, name in FAULTS
    for other in (*NEW, "backward", "rev_over_rev", "grad_dtypes")
    if other != check
]


@pytest.mark.parametrize(("name", "check", "other"), OTHERS)
def test_a_bad_habit_fails_under_no_other_check(outcome_of, name, check, other):
    outcome = outcome_of(name, other, "float64")
    assert outcome.outcome in ("passed", "blocked"), outcome.message


@pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")
def test_torchscript_refuses_parameters_in_inference_mode_and_depends_on_nothing_else(verdict_of):
    assert verdict_of("operators.diagnosed.scripted", "context").outcome == "passed"


@pytest.mark.parametrize("check", ["context", "aliasing", "saved", "needs_input_grad", "linearity"])
def test_a_gradient_that_is_wrong_everywhere_is_left_to_backward(verdict_of, check):
    keys = "supports = { forward_ad = false }"
    assert verdict_of("operators.faulty.wrong_sign", check, keys=keys).outcome == "passed"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("SavesItsData.apply", "save tensors by ctx.save_for_backward, which notices a change"),
        ("multiplies_its_data", "use tensors themselves, not .data or other aliases without a graph"),
    ],
)
def test_how_to_save_a_tensor_depends_on_who_does(verdict_of, name, advice):
    outcome = verdict_of(f"operators.habits.{name}", "saved")
    assert outcome.outcome == "failed"
    assert advice in outcome.message


@pytest.mark.parametrize(("atol", "expected"), [("1e-9", "failed"), ("10.0", "passed")])
def test_a_tolerance_of_the_check_is_heeded(verdict_of, atol, expected):
    keys = f"supports = {{ forward_ad = false, vmap = false }}\ntolerance = {{ check.linearity = {{ atol = {atol} }} }}"
    samples = "samples = [{ args = [{ shape = [2, 3], low = 0.1, high = 0.2 }] }]"
    outcome = verdict_of("operators.habits.Clips.apply", "linearity", keys=keys, samples=samples)
    assert outcome.outcome == expected, outcome.message


class TestOutputs:
    """`supports.outputs` says which outputs have a derivative, and is held to it."""

    @pytest.mark.parametrize(
        ("name", "outputs", "outcome"),
        [
            ("detaches_the_second", "[0]", "passed"),
            ("detaches_the_second", "[0, 1]", "failed"),
            ("detaches_the_second", "[1]", "failed"),
            ("rounds_the_second", "true", "passed"),
            ("square", "true", "passed"),
            ("square", "false", "failed"),
            ("detaches_in_single", "true", "failed"),
            ("detaches_in_half", "[0]", "passed"),
        ],
    )
    def test_what_is_left_out_must_not_require_grad(self, verdict_of, name, outputs, outcome):
        keys = f"supports = {{ outputs = {outputs} }}"
        assert verdict_of(f"operators.habits.{name}", "detached", keys=keys).outcome == outcome

    @pytest.mark.parametrize(
        ("outputs", "what"),
        [("[0, 5]", 'unknown output "5"; expected one of 0, 1'), ("['logitz']", 'unknown output "logitz"; expected')],
    )
    def test_an_output_that_there_is_not_is_a_mistake(self, verdict_of, outputs, what):
        keys = f"supports = {{ outputs = {outputs} }}"
        outcome = verdict_of("operators.habits.detaches_the_second", "detached", keys=keys)
        assert (outcome.outcome, outcome.reason.partition(what)[0]) == ("error", "detached: supports.outputs: ")

    def test_what_differences_cannot_tell_is_no_pass(self, verdict_of):
        outcome = verdict_of("operators.habits.detaches_in_half", "detached")
        assert outcome.outcome == "error"
        assert "an input or output has dtype bfloat16, whose values are too coarse" in outcome.reason


@pytest.mark.parametrize("mapping", ["abs", "real", "finite", "gauge_invariant"])
@pytest.mark.parametrize(("check", "name"), [("saved", "KeepsItsOutput"), ("purity", "WritesToOutputInBackward")])
def test_the_memory_of_outputs_is_that_of_the_operator_whatever_is_compared(verdict_of, check, name, mapping):
    keys = f'outputs = {{ apply = "{mapping}" }}'
    assert verdict_of(f"operators.habits.{name}.apply", check, keys=keys).outcome == "failed"
    assert verdict_of("operators.right.square", check, keys=keys).outcome == "passed"


@pytest.mark.parametrize(
    ("claim", "name"),
    [
        ("purity", "counts_in_a_global"), ("context", "depends_on_threads"), ("saved", "KeepsOnContext.apply"),
        ("aliasing", "KeyedByTensor.apply"),
    ],
)  # fmt: skip
def test_a_disclaimer_is_right_where_the_check_would_fail_and_wrong_where_it_would_pass(verdict_of, claim, name):
    keys = f"supports = {{ {claim} = false }}"
    two = "samples = [{ args = [{ shape = [2] }, { shape = [2] }] }]" if "Keyed" in name else ""
    assert verdict_of(f"operators.habits.{name}", "unsupported", keys=keys, samples=two).outcome == "passed"
    outcome = verdict_of("operators.right.square", "unsupported", keys=keys)
    assert outcome.reason == f"unsupported: {claim} is disclaimed, but works on all samples"
