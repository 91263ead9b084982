"""An operator with an in-place form alone gets a clone, and its derivatives are tested, of zero as well."""

from __future__ import annotations

import pytest
import torch
from operators import written

import opcheck

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
CLOSE = ("backward", "forward_ad", "rev_over_rev", "purity", "linearity", "vmap", "aliasing", "variants", "errors")


def spec(name, keys="inplace = true"):
    samples = "samples = [{ args = [{ shape = [2, 3] }] }]"
    errors = "errors = [{ args = [1], raises = 'Exception', match = '' }]"
    return f'[[operator]]\nname = "{name}"\n{keys}\nsupports = {{ out = false }}\n{samples}\n{errors}\n'


@BOTH
@pytest.mark.parametrize(
    "name", ["torch.Tensor.zero_", "torch.Tensor.sin_", "operators.right.turned_", "operators.right.scaled_"]
)
def test_a_right_one_passes(outcomes, name, dtype):
    found = outcomes(spec(name), checks=CLOSE, dtypes=(dtype,))
    assert {id: one.message for id, one in found.items() if one.outcome != "passed"} == {}
    assert len(found) >= len(CLOSE) - 1


@BOTH
@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("zeroed_behind_autograd_", "backward", "is not the numerical one"),
        ("turned_of_twice_the_gradient_", "backward", "is not the numerical one"),
        ("square_out_of_place_", "variants", "does not return its first argument\n"),
        ("unmarked_double_", "variants", "does not return its first argument\n  it returns another tensor in the same"),
    ],
)
def test_a_wrong_one_is_caught(outcomes, name, check, words, dtype):
    (outcome,) = outcomes(spec(f"operators.faulty.{name}"), checks=(check,), dtypes=(dtype,)).values()
    assert outcome.outcome == "failed"
    assert words in outcome.message


def test_the_message_says_which_key_is_missing(outcomes):
    found = outcomes(spec("torch.Tensor.zero_", ""), checks=("backward", "dtypes"), dtypes=("float64",))
    assert {one.outcome for one in found.values()} == {"blocked", "failed"}
    assert all("write inplace = true: it returns its first argument" in one.message for one in found.values())


def test_an_in_place_operator_of_the_dispatcher_is_registered_rightly(outcomes):
    (outcome,) = outcomes(spec("torch.ops.aten.zero_.default"), checks=("registration",), dtypes=("float64",)).values()
    assert outcome.outcome == "passed", outcome.message


@BOTH
def test_what_is_written_to_is_not_passed_twice(outcomes, dtype):
    text = spec("torch.Tensor.mul_").replace("[2, 3] }]", "[2, 3] }, { shape = [2, 3] }]", 1)
    (outcome,) = outcomes(text, checks=("aliasing",), dtypes=(dtype,)).values()
    assert outcome.outcome == "passed", outcome.message


def test_a_batch_is_written_only_into_what_has_a_batch(outcomes):
    text = spec("torch.Tensor.eq_").replace("[2, 3] }]", "[2, 3] }, { shape = [3] }]", 1)
    (outcome,) = outcomes(text, checks=("vmap",), dtypes=("float64",)).values()
    assert outcome.outcome == "passed", outcome.message


def test_the_message_says_how_an_operator_refuses_inputs_that_require_grad(outcomes):
    text = spec("operators.faulty.counts_in_its_second_", "").replace("[2, 3] }]", "[2, 3] }, { shape = [2, 3] }]")
    (outcome,) = outcomes(text, checks=("backward",), dtypes=("float64",)).values()
    assert "it refuses inputs that require grad (RuntimeError: a leaf Variable that requires grad" in outcome.message


def writing(name, listed, reference, sizes, more=""):
    """Return the spec of an operator that changes the listed arguments."""
    samples = f"samples = [{{ args = [{', '.join(f'{{ shape = {size} }}' for size in sizes)}] }}]"
    own = f"inplace = {listed}\nreference = {{ target = 'operators.written.{reference}', differentiable = true }}"
    return f'[[operator]]\nname = "operators.written.{name}"\n{own}\n{samples}\n{more or "supports.out = false"}\n'


ADDED = (["x", "residual"], "add_and_scale", [[2, 3], [2, 3], [3]])
CACHED = ([1], "sum_and_cache", [[2, 3], [4, 3]])


@pytest.mark.parametrize(("name", "own"), [("add_and_scale_", ADDED), ("sum_of_cache", CACHED)])
def test_one_that_changes_several_arguments_or_a_later_one_passes(outcomes, name, own):
    found = outcomes(writing(name, *own))
    assert {id: one.message for id, one in found.items() if one.outcome not in ("passed", "skipped")} == {}
    assert {"backward", "forward_ad", "derived", "reference", "vmap", "purity"} <= {one.check for one in found.values()}


@BOTH
@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("add_and_scale_in_blocks_", "derived", "reference: output['residual'] is not that of"),
        ("add_and_scale_behind_autograd_", "backward", "output['residual'] with respect to x"),
        ("add_and_scale_and_clear_", "purity", "changes what it is given: argument weight has other values"),
    ],
)
def test_one_that_changes_them_wrongly_is_caught(outcomes, name, check, words, dtype):
    (outcome,) = outcomes(writing(name, *ADDED), checks=(check,), dtypes=(dtype,)).values()
    assert outcome.outcome == "failed"
    assert words in outcome.message


def test_what_it_returns_is_compared_beside_what_it_changes(outcomes):
    text = writing("sum_of_cache", *CACHED).replace("sum_and_cache", "sum_of_cache")
    (outcome,) = outcomes(text, checks=("reference",), dtypes=("float64",)).values()
    assert outcome.outcome == "failed"
    assert "reference: 2 outputs, not 1 as those of operators.written.sum_of_cache" in outcome.message


@pytest.mark.parametrize(("name", "expected"), [("add_signs_", "passed"), ("add_signs_unstated_", "failed")])
def test_the_schema_of_a_registered_one_is_tested(outcomes, name, expected):
    disclaimed = "registered = true\nsupports = { backward = false, forward_ad = false, vmap = false, out = false }"
    text = writing(name, ["x", "residual"], "add_signs", [[2, 3], [2, 3]], disclaimed)
    (outcome,) = outcomes(text, checks=("registration",)).values()
    assert outcome.outcome == expected, outcome.message


def test_a_registered_one_cannot_refuse_backward(outcomes):
    disclaimed = "registered = true\nsupports = { backward = false, forward_ad = false, vmap = false, out = false }"
    text = writing("add_signs_", ["x", "residual"], "add_signs", [[2, 3], [2, 3]], disclaimed)
    (outcome,) = outcomes(text, checks=("unsupported",), dtypes=("float64",)).values()
    assert "backward is disclaimed, but gives wrong numbers instead of an error" in outcome.message
    advice = "autograd ignores what an operator writes to its arguments in torch.library or under torch.no_grad()"
    assert f"{advice}: expect this failure, with when = " in outcome.message
    known = 'expect = [{ when = { check = "unsupported" }, outcome = "fail", reason = "torch.library" }]'
    found = outcomes(text.replace("reference =", f"{known}\nreference ="))
    assert {one.outcome for one in found.values()} == {"passed", "xfailed"}


def test_a_registered_one_is_checked_from_python():
    given = [torch.rand(2, 3), torch.rand(2, 3)]
    report = opcheck.check(written.add_signs_, *given, checks=["registration", "purity"])
    assert [one.outcome for one in report.outcomes] == ["passed"] * 2
    with pytest.raises(opcheck.CheckError, match="Argument residual is not defined as mutable but was mutated"):
        opcheck.check(written.add_signs_unstated_, *given, checks=["registration"])


def test_an_argument_that_does_not_exist_is_a_mistake(outcomes):
    text = writing("add_and_scale_", ["x", "residuum"], *ADDED[1:])
    (outcome,) = outcomes(text, checks=("backward",), dtypes=("float64",)).values()
    assert outcome.outcome == "error"
    assert 'unknown argument "residuum"; expected one of x, residual, weight' in outcome.message
    assert 'did you mean "residual"?' in outcome.message


def test_who_says_twice_that_there_is_no_derivative_is_told_to_say_it_once(outcomes):
    disclaimed = "registered = true\nsupports = { backward = false, forward_ad = false, vmap = false, out = false }"
    text = writing("add_signs_", ["x", "residual"], "add_signs", [[2, 3], [2, 3]], disclaimed)
    found = outcomes(
        text.replace("[2, 3]", "[2, 3], grad = false"), checks=("purity", "unsupported"), dtypes=("float64",)
    )
    assert {one.outcome for one in found.values()} == {"error"}
    assert all("leave out grad = false" in one.message for one in found.values())


def test_a_fused_optimizer_passes(outcomes):
    text = f"""[[operator]]
name = "operators.awkward_right.momentum_step_"
dtypes = "floating"
inplace = ["weight", "momentum"]
supports = {{ backward = false, vmap = false }}
samples = [{{ args = [{", ".join(["{ shape = [2, 3] }"] * 3)}] }}]
expect = [{{ when = {{ check = "unsupported" }}, outcome = "fail", reason = "it writes under torch.no_grad()" }}]
"""
    found = outcomes(text)
    assert {case: one.message for case, one in found.items() if one.outcome not in ("passed", "xfailed")} == {}
    assert {one.check for one in found.values()} > {"forward_ad", "variants", "dtypes", "unsupported"}
