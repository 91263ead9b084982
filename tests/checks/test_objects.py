"""Arguments that hold tensors (objects, dicts), one tensor in two places, and in-place variants by a keyword."""

from __future__ import annotations

import pytest

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
TENSOR = "{ shape = [2, 3] }"
RAYS = '{{ call = "operators.objects.Rays", args = [{{ shape = [2, 3] }}], kwargs = {{ direction = {}, far = 0.5 }} }}'
PAIR = '{ call = "operators.objects.Pair", args = [{ shape = [2, 3] }, { shape = [2, 3] }] }'
DICT = "{ mapping = { query = { shape = [2, 3] }, key = { shape = [2, 3] } } }"
CONFIG = '{ call = "operators.objects.Config", kwargs = { scale = 0.5 } }'
CUSTOM = "supports = { forward_ad = false, vmap = false, out = false }"
"""What autograd functions without further rules do not have."""


def spec(name, args, keys="supports = { out = false }"):
    return f"""
[[operator]]
name = "operators.objects.{name}"
{keys}
samples = [{{ args = [{args}] }}]
"""


def wrong(found):
    return {id: outcome.reason for id, outcome in found.items() if outcome.outcome not in ("passed", "skipped")}


@BOTH
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("ends", RAYS.format(TENSOR)),
        ("product", PAIR),
        ("attention", DICT),
        ("scaled", f"{TENSOR}, {CONFIG}"),
        ("applied", f'{TENSOR}, {{ object = "torch.sin" }}'),
        ("applied", f'{TENSOR}, {{ object = "operators.objects:scaler.scale" }}'),
        ("product", PAIR.replace("args", "kwargs").replace("[{ shape", "{ left = { shape").replace(
            "}, { shape", "}, right = { shape").replace("] }] }", "] } } }")),
    ],
)  # fmt: skip
def test_a_right_operator_passes_every_check(outcomes, name, args, dtype):
    found = outcomes(spec(name, args), dtypes=(dtype,))
    assert len(found) > 15
    assert wrong(found) == {}


def test_a_bound_method_is_an_operator(outcomes):
    text = spec("scaled", TENSOR).replace("operators.objects.scaled", "operators.objects:scaler.scale")
    found = outcomes(text, dtypes=("float64",))
    assert len(found) > 15
    assert wrong(found) == {}


@BOTH
@pytest.mark.parametrize(
    ("name", "args", "leaf"),
    [("wrong_product", PAIR, "pair[1]"), ("wrong_ends", RAYS.format(TENSOR), "rays['direction']")],
)
def test_a_wrong_gradient_of_a_tensor_in_an_object_is_found(outcomes, name, args, leaf, dtype):
    (outcome,) = outcomes(spec(name, args, CUSTOM), checks=("backward",), dtypes=(dtype,)).values()
    assert outcome.outcome == "failed"
    assert leaf in outcome.message


def test_an_object_that_an_operator_changes_is_found(outcomes):
    (outcome,) = outcomes(spec("spoiling_ends", RAYS.format(TENSOR)), checks=("purity",), dtypes=("float64",)).values()
    assert outcome.outcome == "failed"
    assert "argument rays.origin has other values" in outcome.reason


def test_a_callable_that_refuses_its_arguments_makes_no_sample(outcomes):
    text = spec("scaled", f"{TENSOR}, {CONFIG.replace('scale', 'scail')}")
    (outcome,) = outcomes(text, checks=("backward",), dtypes=("float64",)).values()
    assert outcome.outcome == "error"
    assert "the sample cannot be made: TypeError" in outcome.reason
    assert "scail" in outcome.reason


def test_what_cannot_be_called_makes_no_sample(outcomes):
    text = spec("scaled", f'{TENSOR}, {{ call = "operators.objects.scaler" }}')
    (outcome,) = outcomes(text, checks=("backward",), dtypes=("float64",)).values()
    assert outcome.outcome == "error"
    assert '"operators.objects.scaler" is not a function or class, but Scaler' in outcome.reason


def twice(name, keys=""):
    return f'[[operator]]\nname = "{name}"\nsamples = [{{ args = [{TENSOR}, {{ same = 0 }}] }}]\n{keys}\n'


@BOTH
@pytest.mark.parametrize(("name", "variants"), [("torch.mul", ["method"]), ("torch.add", ["method", "inplace"])])
def test_the_same_tensor_twice_has_the_gradient_of_both_places(outcomes, name, variants, dtype):
    found = outcomes(twice(name, f"variants = {variants}"), dtypes=(dtype,))
    assert len(found) > 20
    assert wrong(found) == {}


def test_the_same_tensor_twice_is_one_tensor_for_in_place_operators_too(outcomes):
    text = twice("torch.mul", 'variants = ["inplace"]')
    found = outcomes(text, checks=("backward",), dtypes=("float64",))
    # x.mul_(x) overwrites what its backward pass needs; x.mul_(y) does not.
    assert "modified by an inplace operation" in found["torch.mul[inplace]::backward[cpu-float64]"].reason


@BOTH
def test_the_same_tensor_twice_in_a_wrong_operator_is_found(outcomes, dtype):
    text = twice("operators.objects.wrong_factors", CUSTOM)
    (outcome,) = outcomes(text, checks=("backward",), dtypes=(dtype,)).values()
    assert outcome.outcome == "failed"


@BOTH
def test_a_keyword_can_make_the_in_place_variant(outcomes, dtype):
    variant = 'variants = [{ kind = "inplace", kwargs = { inplace = true } }]\nsupports = { out = false }'
    found = outcomes(spec("clamped", TENSOR, variant), dtypes=(dtype,))
    assert any("[inplace]::backward" in id for id in found)
    assert wrong(found) == {}
    (outcome,) = outcomes(spec("forgetful", TENSOR, variant), checks=("variants",), dtypes=(dtype,)).values()
    assert outcome.outcome == "failed"
    assert "operators.objects.forgetful(inplace=True)" in outcome.reason


def test_a_keyword_of_the_sample_does_not_undo_that_of_the_variant(outcomes):
    variant = 'variants = [{ kind = "inplace", kwargs = { inplace = true } }]\nsupports = { out = false }'
    text = spec("forgetful", TENSOR, variant).replace("}] }]", "}], kwargs = { inplace = false } }]")
    (outcome,) = outcomes(text, checks=("variants",), dtypes=("float64",)).values()
    assert outcome.outcome == "failed"


@BOTH
def test_outputs_with_operators_of_their_own_are_tensors_of_torch(outcomes, dtype):
    text = spec("as_rotation", TENSOR, "supports = { out = false, batched_grad = true }")
    assert wrong(outcomes(text, dtypes=(dtype, "float16"))) == {}
