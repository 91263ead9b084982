"""reference, vmap, errors and registration: values, batching, refusals, and torch.library."""

import pytest

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])


@BOTH
def test_values_of_a_right_reference_agree(verdict_of, dtype):
    assert verdict_of("torch.sin", "reference", dtype, 'reference = "numpy.sin"').outcome == "passed"


@BOTH
def test_values_of_another_function_are_told_apart(verdict_of, dtype):
    outcome = verdict_of("torch.sin", "reference", dtype, 'reference = "numpy.cos"')
    assert outcome.outcome == "failed"
    assert "output 0 is not that of numpy.cos" in outcome.reason
    assert "Mismatched elements" in outcome.message


@pytest.mark.parametrize("place", ["", "per_device.cpu."])
def test_tolerances_of_values_are_those_of_the_spec_or_of_the_device(verdict_of, place):
    keys = f'reference = "numpy.cos"\n{place}tolerance.check.reference = {{ atol = 2.0 }}'
    assert verdict_of("torch.sin", "reference", keys=keys).outcome == "passed"
    assert verdict_of("torch.sin", "reference", keys=keys.replace("2.0", "0.01")).outcome == "failed"


def test_keywords_of_a_reference_can_have_other_names(verdict_of):
    keys = 'reference = { target = "numpy.sum", rename = { dim = "axis", keepdim = "keepdims" } }'
    samples = "samples = [{ args = [{ shape = [2, 3] }], kwargs = { dim = 1, keepdim = true } }]"
    assert verdict_of("torch.sum", "reference", keys=keys, samples=samples).outcome == "passed"


@pytest.mark.parametrize(("eps", "verdict"), [(0.5, "passed"), (0.25, "failed")])
def test_a_reference_gets_what_the_constructor_of_a_module_gets(verdict_of, eps, verdict):
    kwargs = f"{{ normalized_shape = [3], eps = {eps} }}"
    keys = (
        "module = { args = [[3]], kwargs = { eps = 0.5 } }\n"
        f'reference = {{ target = "torch.nn.functional.layer_norm", kwargs = {kwargs} }}'
    )
    assert verdict_of("torch.nn.LayerNorm", "reference", keys=keys).outcome == verdict


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("raises", "raised ZeroDivisionError: no such luck"),
        ("returns_none", "returned None; expected tensors, arrays or numbers"),
        ("returns_text", "returned str; expected tensors, arrays or numbers"),
        ("returns_nothing", "returned tuple; expected tensors, arrays or numbers"),
    ],
)
def test_a_reference_at_fault_is_an_error_that_names_it(verdict_of, name, says, dtype):
    keys = f'reference = {{ target = "operators.references.{name}", differentiable = true }}'
    outcome = verdict_of("torch.sin", "reference", dtype, keys)
    assert (outcome.outcome, outcome.reason) == ("error", f"reference: operators.references.{name} {says}")
    assert "fix the reference" in outcome.message


@pytest.mark.parametrize("differentiable", ["", ", differentiable = true"])
@pytest.mark.parametrize(("name", "verdict"), [("tripled", "passed"), ("same", "failed")])
def test_what_a_reference_writes_to_its_arguments_does_not_reach_the_operator(outcomes, name, verdict, differentiable):
    text = (
        f'[[operator]]\nname = "operators.references.{name}"\nsupports = {{ out = false }}\n'
        f'reference = {{ target = "operators.references.tripled_in_place"{differentiable} }}\n'
        "samples = [{ args = [{ shape = [2, 3] }] }, { args = [{ shape = [2], grad = false }] }]\n"
    )
    found = outcomes(text, checks=("reference", "derived"), dtypes=("float32", "float64", "complex128", "bfloat16"))
    assert {one.outcome for one in found.values() if one.check == "reference"} == {verdict}
    assert {one.outcome for one in found.values() if one.check == "derived"} == {"passed"}


@pytest.mark.parametrize(
    ("target", "reference", "sample"),
    [
        ("product", "product_of_pair", '{ call = "operators.objects.Pair", args = [T, T] }'),
        ("attention", "product_of_dict", "{ mapping = { query = T, key = T } }"),
        ("ends", "ends_of_rays", '{ call = "operators.objects.Rays", args = [T, T] }'),
    ],
)
def test_a_reference_gets_arrays_in_objects_and_mappings_too(verdict_of, target, reference, sample):
    samples = f"samples = [{{ args = [{sample.replace('T', '{ shape = [2, 3], low = 0.5 }')}] }}]"
    keys = 'reference = "operators.references.{}"\nsupports = {{ out = false }}'
    outcome = verdict_of(f"operators.objects.{target}", "reference", keys=keys.format(reference), samples=samples)
    assert outcome.outcome == "passed", outcome.message


@pytest.mark.parametrize("derive", ["standard", "thorough"])
@pytest.mark.parametrize(("name", "written"), [("Softplus", "beta = 2.0"), ("ELU", "alpha = 0.75")])
def test_a_reference_is_not_asked_where_the_constructor_has_got_other_values(outcomes, name, written, derive):
    """The reference does not get them: see `kwargs` in its table."""
    text = (
        f'[[operator]]\nname = "torch.nn.{name}"\ndtypes = ["float64"]\nmodule = {{ kwargs = {{ {written} }} }}\n'
        f'reference = {{ target = "torch.nn.functional.{name.lower()}", kwargs = {{ {written} }} }}\n'
        "samples = [{ args = [{ shape = [4, 3] }] }]\n"
    )
    (found,) = outcomes(text, checks=("derived",), overrides={"derive": derive}).values()
    assert found.outcome == "passed", found.message


@pytest.mark.parametrize("name", ["sin_of_tensors", "sin_beside_zeros", "size_in_words"])
def test_a_reference_of_tensors_that_gets_arrays_is_an_error_with_the_key_to_add(verdict_of, name):
    outcome = verdict_of("torch.sin", "reference", keys=f'reference = "operators.references.{name}"')
    assert outcome.outcome == "error"
    assert "it gets NumPy arrays; for tensors, write reference = { target = ..., differentiable = true }" in (
        outcome.message
    )
    keys = f'reference = {{ target = "operators.references.{name}", differentiable = true }}'
    expected = "failed" if name == "size_in_words" else "passed"
    assert verdict_of("torch.sin", "reference", keys=keys).outcome == expected


def test_a_reference_that_does_not_exist_is_an_error_with_the_nearest_name(verdict_of):
    outcome = verdict_of("torch.sin", "reference", keys='reference = "numpy.sinn"')
    assert outcome.outcome == "error"
    assert 'did you mean "numpy.sin"?' in outcome.message


@BOTH
def test_vmap_of_a_right_operator_equals_the_loop(verdict_of, dtype):
    samples = "samples = [{ args = [{ shape = [2, 3] }, { shape = [3] }] }]"
    assert verdict_of("torch.mul", "vmap", dtype, samples=samples).outcome == "passed"


@BOTH
def test_a_wrong_batching_rule_is_caught(verdict_of, dtype):
    outcome = verdict_of("operators.faulty.wrong_batching_rule", "vmap", dtype)
    assert outcome.outcome == "failed"
    assert outcome.reason.startswith("vmap: output 0 is not that of the loop")


def test_an_operator_without_a_batching_rule_fails_with_the_remedy(verdict_of):
    outcome = verdict_of("operators.right.first_order_only", "vmap")
    assert outcome.outcome == "failed"
    assert "set supports.vmap = false" in outcome.message


ERROR = '[[operator.errors]]\nargs = [{{ shape = [2, 3] }}]\nraises = "{raises}"\nmatch = "{match}"\n'


def errors_of(outcomes, name, raises, match):
    text = f'[[operator]]\nname = "{name}"\nsamples = [{{ args = [{{ shape = [3, 3] }}] }}]\n'
    found = outcomes(text + ERROR.format(raises=raises, match=match), checks=("errors",))
    return next(iter(found.values()))


def test_a_stated_error_that_is_raised_passes(outcomes):
    assert errors_of(outcomes, "torch.linalg.inv", "RuntimeError", "must be batches of square").outcome == "passed"


def test_an_input_that_only_another_device_refuses_is_skipped_with_a_reason(outcomes):
    outcome = errors_of(outcomes, "torch.linalg.inv", "RuntimeError", 'any"\ndevices = ["cuda"] # "')
    assert (outcome.outcome, outcome.reason) == ("skipped", "no listed input is refused on cpu")


def test_another_message_fails(outcomes):
    outcome = errors_of(outcomes, "torch.linalg.inv", "RuntimeError", "no such words")
    assert outcome.outcome == "failed"
    assert 'the message does not match "no such words"' in outcome.reason


def test_another_exception_fails(outcomes):
    outcome = errors_of(outcomes, "torch.linalg.inv", "IndexError", "must be")
    assert outcome.outcome == "failed"
    assert "expected IndexError, got RuntimeError" in outcome.reason


def test_an_input_that_is_accepted_fails(outcomes):
    outcome = errors_of(outcomes, "operators.faulty.accepts_anything", "RuntimeError", "any")
    assert outcome.outcome == "failed"
    assert "the input is accepted" in outcome.reason


def test_of_several_overloads_the_message_asks_for_one(verdict_of):
    outcome = verdict_of("torch.ops.aten.sinc", "registration")
    assert outcome.outcome == "failed"
    assert 'name one of them, such as "torch.ops.aten.sinc.default"' in outcome.message
    assert verdict_of("torch.ops.aten.sinc.default", "registration").outcome == "passed"


def test_a_function_that_calls_a_registered_operator_is_not_registered_itself(verdict_of):
    keys = 'registered = true\ndtypes = "real"'
    outcome = verdict_of("operators.registered.calls_right_half", "registration", keys=keys)
    assert outcome.outcome == "failed"
    assert "torch.library does not register operators.registered.calls_right_half" in outcome.reason
    assert "not a function that calls it, or write registered = false" in outcome.message


@pytest.mark.parametrize(("operator", "expected"), [("right_half", "passed"), ("wrong_fake", "failed")])
def test_registration_is_put_to_torch_library(verdict_of, operator, expected):
    keys = 'registered = true\ndtypes = { forward = ["float32", "float64"] }'
    outcome = verdict_of(f"operators.registered.{operator}", "registration", keys=keys)
    assert outcome.outcome == expected
    if expected == "failed":
        assert "test_faketensor" in outcome.reason
