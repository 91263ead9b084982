"""Outputs in containers are tested under their names; a result without tensors is an error in every check."""

from __future__ import annotations

import pytest

from opcheck.spec.checks import BUILTIN

SAMPLES = "samples = [{ args = [{ shape = [2], low = 0.5 }] }]"
KEYS = "supports = { forward_ad = false, vmap = false, out = false }"
EVERY = [kind.name for kind in BUILTIN if kind.name not in ("masked", "errors", "buffers", "device_consistency")]


@pytest.mark.parametrize(
    ("operator", "name"),
    [
        ("in_dataclass", ".loss"),
        ("in_nested_dataclass", ".aux['parts'][1]"),
        ("in_dict", "['loss']"),
        ("in_mapping", "['loss']"),
        ("in_named_tuple", ".loss"),
        ("in_plain_namedtuple", ".loss"),
        ("in_attrs", ".loss"),
        ("in_model_output", "['loss']"),
    ],
)
def test_a_wrong_gradient_in_a_container_is_found_and_named(verdict_of, operator, name):
    outcome = verdict_of(f"operators.results.{operator}", "backward", keys=KEYS, samples=SAMPLES)
    assert (outcome.outcome, outcome.fields["name"], outcome.fields["worst"][0]["name"]) == (
        "failed",
        f"output{name}",
        f"output{name}",
    )
    assert f"output{name} with respect to x: 2 of 4 entries differ" in outcome.message
    assert f"worst entry: d output{name}[" in outcome.message
    assert f"output{name} with respect to x: the gradient is 2/3 times what it should be" in outcome.message


def test_outputs_of_plain_tuples_have_positions(verdict_of):
    outcome = verdict_of("operators.results.in_tuple", "backward", keys=KEYS, samples=SAMPLES)
    assert "output 1 with respect to x: 2 of 4 entries differ" in outcome.message
    assert (outcome.fields["name"], outcome.fields["leaf_name"]) == ("output 1", "x")


def test_values_are_compared_under_their_names(verdict_of):
    keys = f'{KEYS}\naliases = ["operators.results.second_is_wrong"]'
    outcome = verdict_of("operators.results.in_dataclass", "variants", keys=keys, samples=SAMPLES)
    assert (outcome.outcome, outcome.reason.split(" is not")[0]) == ("failed", "variants: output.loss")


@pytest.mark.parametrize("check", ["vmap", "reference"])
def test_right_values_in_a_container_pass(verdict_of, check):
    keys = 'reference = "operators.results.by_numpy"'
    assert verdict_of("operators.results.in_dataclass", check, keys=keys, samples=SAMPLES).outcome == "passed"


REFUSED = {
    "as_generator": "a generator; opcheck cannot look for tensors in it",
    "as_object": "an object of operators.results.Opaque; opcheck cannot look for tensors in it",
    "as_none": "None; it contains no tensor",
    "as_number": "3.5 (float); it contains no tensor",
    "as_empty_list": "an empty list; it contains no tensor",
    "as_dataclass_of_none": "an object of operators.results.Result; it contains no tensor",
    "as_set": "a set; opcheck cannot look for tensors in it",
    "beside_an_object": "an object of operators.results.Opaque at output[1]['rest']; "
    "opcheck cannot look for tensors in it",
}


@pytest.mark.parametrize("operator", REFUSED)
def test_a_result_without_tensors_is_an_error_in_every_check(outcomes, operator):
    text = f"""
[[operator]]
name = "operators.results.{operator}"
reference = "operators.results.by_numpy"
dtypes = {{ forward = ["float32", "float64"] }}
registered = true
orders = ["rev_over_fwd", "fwd_over_fwd", "scalarized_second_order", "rev_over_rev_over_rev"]
{SAMPLES}
"""
    found = {
        **outcomes(text, checks=tuple(EVERY), dtypes=("float64",)),
        **outcomes(text, checks=("low_precision_grad",), dtypes=("float32",)),
        **outcomes(f"{text}supports = {{ batched_grad = false }}", checks=("unsupported",), dtypes=("float64",)),
    }
    assert {outcome.check for outcome in found.values()} == set(EVERY)
    for outcome in found.values():
        assert (outcome.outcome, outcome.reason) == ("error", f"the operator returned {REFUSED[operator]}"), outcome.id
        assert "an operator must return tensors, alone or in tuples, lists, dicts" in outcome.message


def test_a_refused_dtype_is_not_one_in_which_no_tensor_is_returned(outcomes):
    text = (
        '[[operator]]\nname = "operators.results.as_none"\ndtypes = { forward = ["float64"], exact = true }\n' + SAMPLES
    )
    outcome = outcomes(text, checks=("dtypes",), dtypes=("float32",))
    assert [each.outcome for each in outcome.values()] == ["failed"]


@pytest.mark.parametrize("name", ["Scale", "Result", "Cube"])
def test_a_class_is_no_operator(outcomes, name):
    found = outcomes(f'[[operator]]\nname = "operators.results.{name}"\n{SAMPLES}\n', dtypes=("float64",))
    assert {outcome.outcome for outcome in found.values()} == {"error"}
    (reason,) = {outcome.reason for outcome in found.values()}
    assert f'spec.toml:2:8: "operators.results.{name}" is a ' in reason


def test_an_operator_that_returns_nothing_may_lack_a_key(verdict_of):
    outcome = verdict_of("operators.results.as_none", "backward", samples=SAMPLES)
    assert "if it returns nothing but changes its first argument, write inplace = true" in outcome.message
    assert "for others, inplace = [names]" in outcome.message


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
@pytest.mark.parametrize("check", ["backward", "masked", "linearity", "purity"])
def test_a_sparse_output_needs_a_key(verdict_of, check, layout):
    samples = f"samples = [{{ args = [{{ shape = [3, 3], layout = '{layout}' }}] }}]"
    found = verdict_of("torch.neg", check, keys="supports = { forward_ad = false }", samples=samples)
    assert (found.outcome, found.reason) == ("error", f"output 0 has the layout torch.{layout}")
    assert 'write outputs = { apply = "to_dense" }' in found.message
