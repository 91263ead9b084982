"""The message of a failure names the mistake that was made, and no other."""

import re

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")

ONE = "samples = [{ args = [{ shape = [], low = 0.5 }] }, { args = [{ shape = [4], low = 0.5 }] }]"
SHAPES = ONE[:-1] + ", { args = [{ shape = [2, 3], low = 0.5 }] }]"
TWO = "samples = [{ args = [{ shape = [3], low = 0.5 }, { shape = [3], low = 0.5 }] }]"
NAMED = "samples = [{ args = [{ shape = [3], low = 0.5 }], kwargs = { weight = { shape = [3], low = 0.5 } } }]"
LISTED = "samples = [{ args = [[{ shape = [3], low = 0.5 }, { shape = [3], low = 0.5 }]] }]"
SQUARE = "samples = [{ args = [{ shape = [3], low = 0.5 }] }]"
ROWS = "samples = [{ args = [{ shape = [4, 3] }, { shape = [3] }] }]"
ROW = "samples = [{ args = [{ shape = [2, 3], low = 0.5 }] }]"
WEIGHED = "samples = [{ args = [{ shape = [3], low = 0.5 }, { shape = [3], low = 0.5, grad = false }] }]"
WITH_ZERO = "samples = [{ args = [{ values = [0.0, 1.0, 2.0] }] }]"
AT_THE_EDGE = "samples = [{ args = [{ values = [1e-7, 1.0] }] }]"

FACTOR, DETACH, LOST, MEMORY = "times what it should be", "detach", "without a graph", "memory of the cotangent"

DIAGNOSES = [
    # operator, check, samples, what the message says, what it does not say
    ("faulty.wrong_sign", "backward", SHAPES, "the gradient has the wrong sign", [FACTOR, DETACH]),
    ("diagnosed.tiny", "backward", SHAPES, "the gradient has the wrong sign", [FACTOR, "1e-05"]),
    ("diagnosed.wrong_tangent_sign", "forward_ad", SHAPES, "has the wrong sign", [FACTOR, DETACH]),
    ("diagnosed.constant", "backward", SHAPES, "in 2 of 3 samples: .*is 2.686 times what it should be", [DETACH]),
    ("diagnosed.uneven", "backward", SHAPES, "16 entries differ", [FACTOR, "it looks like this"]),
    ("diagnosed.mean_for_sum", "backward", SHAPES, "is divided by the number of elements of the input", [DETACH]),
    ("diagnosed.halves", "backward", SHAPES, "1/2 times what it should be", ["is zero"]),
    ("diagnosed.zeros", "backward", SHAPES, "backward function on the way returns zeros", [DETACH, LOST]),
    (
        "diagnosed.cuts_weight", "backward", TWO,
        "with respect to weight: the gradient is zero: the graph is cut",
        [LOST],
    ),
    ("diagnosed.none_for_weight", "backward", TWO, "with respect to weight: .*backward returns None", [LOST]),
    ("faulty.forgets_tangent", "forward_ad", SHAPES, "the tangent is zero: a jvp on the way", [DETACH, LOST]),
    ("diagnosed.forgets_weight", "forward_ad", TWO, "with respect to weight: the tangent is zero", [DETACH, LOST]),
    ("diagnosed.triple_weight", "backward", NAMED, "with respect to weight: the gradient is 3 times", ["input 1"]),
    (
        "diagnosed.triple_second", "backward", LISTED,
        r"with respect to tensors\[1\]: the gradient is 3 times",
        ["input 1"],
    ),
    (
        "diagnosed.random_backward", "backward", SHAPES,
        "not judged, since nondeterminism: Backward is not reentrant",
        [LOST, MEMORY, FACTOR],
    ),
    ("diagnosed.random_backward", "rev_over_rev", SHAPES, "since nondeterminism", [LOST, MEMORY, FACTOR]),
    (
        "diagnosed.random_forward", "backward", SHAPES,
        "the function is random: .*reseed = true makes",
        [LOST, MEMORY, FACTOR],
    ),
    (
        "diagnosed.random_forward", "forward_ad", SHAPES,
        "the function is random: .*reseed = true makes",
        [LOST, DETACH, "it looks like this", "surrogate"],
    ),
    ("diagnosed.random_jvp", "forward_ad", SHAPES, "the jvp is random", [LOST, MEMORY, FACTOR]),
    (
        "faulty.second_order_lost", "rev_over_rev", SHAPES,
        "the second derivative is zero: the backward pass uses",
        ["tangent"],
    ),
    (
        "diagnosed.norm_saved", "rev_over_rev", ROW,
        r"the second derivative lacks a part: NormSavedBackward uses a tensor of shape \[2, 1\] that forward computed",
        [FACTOR, "look like no known"],
    ),
    (
        "diagnosed.weight_saved", "rev_over_rev", WEIGHED,
        "gradient of x with respect to x: [0-9]+ of [0-9]+ entries differ",
        ["lacks a part"],
    ),
    (
        "diagnosed.third_order_lost", "rev_over_rev_over_rev", SHAPES,
        "the third derivative is zero",
        ["second derivative"],
    ),
    (
        "diagnosed.tangent_from_data", "rev_over_fwd", SHAPES,
        "the second derivative is zero: the jvp uses",
        ["backward pass"],
    ),
    ("faulty.second_order_wrong", "rev_over_rev", SHAPES, "gradient of x with respect to x: .*3/2 times", ["input 0"]),
    ("diagnosed.scripted", "fwd_over_rev", SHAPES, "TorchScript compiled", [LOST, DETACH]),
    ("diagnosed.scripted", "rev_over_fwd", SHAPES, "TorchScript compiled", [LOST, DETACH]),
    ("diagnosed.scripted_in_part", "fwd_over_rev", SHAPES, "TorchScript compiled", ["is zero", "no known"]),
    ("diagnosed.scripted_in_part", "rev_over_fwd", SHAPES, "TorchScript compiled", ["is zero", "no known"]),
    ("diagnosed.scripted_and_cut", "forward_ad", SHAPES, "forward-mode Jacobian is not the numeric", ["TorchScript"]),
    (
        "diagnosed.hidden_by_where", "backward", WITH_ZERO,
        "(?s)the function is finite there: the formula takes 0/0.*let it raise an error",
        [FACTOR, DETACH, "surrogate"],
    ),
    (
        "diagnosed.not_a_number", "backward", SHAPES,
        "the function itself is NaN or infinite at the sample",
        [FACTOR, "random"],
    ),
    ("diagnosed.not_transposed", "backward", SQUARE, "the Jacobian is transposed", [FACTOR]),
    (
        "torch.linalg.cholesky", "backward",
        'samples = [{ args = [{ shape = [3, 3], structure = "positive_definite" }] }]',
        'the gradient is that of a symmetric matrix; .* write through = "symmetrize"', [FACTOR, "look like no known"],
    ),
    ("diagnosed.bias_of_first_row", "backward", ROWS, "the sum over a broadcast dim is missing", [FACTOR]),
    ("diagnosed.ones_for_undefined", "undefined_grad", SQUARE, "the cotangent of output 1 is undefined", [MEMORY]),
    (
        "faulty.wrong_for_noncontiguous_cotangents", "backward", SHAPES,
        "gradient of x depends on the " + MEMORY,
        ["random"],
    ),
]  # fmt: skip


def diagnosed(verdict_of, operator, check, samples, dtype):
    """Return the outcome of a check that fails."""
    path = operator if operator.startswith("torch.") else f"operators.{operator}"
    keys = ""
    if check in ("backward", "undefined_grad", "rev_over_rev"):
        keys = "supports = { forward_ad = false }"
    outcome = verdict_of(path, check, dtype, keys, samples)
    assert outcome.outcome in ("failed", "blocked"), outcome.message
    return outcome


@pytest.mark.parametrize(
    ("operator", "check", "samples", "says", "never"), DIAGNOSES, ids=[f"{row[0]}-{row[1]}" for row in DIAGNOSES]
)
def test_a_mistake_is_called_by_its_name(verdict_of, operator, check, samples, says, never):
    outcome = diagnosed(verdict_of, operator, check, samples, "float64")
    assert re.search(says, outcome.message), outcome.message
    for text in never:
        assert text not in outcome.message, outcome.message


ONLY_REAL = ("uneven", "tiny", "scripted", "scripted_in_part", "wrong_tangent_sign", "cholesky")
"""Functions that fail in another way for complex inputs. In TorchScript, `needs_input_grad` fails, since second
derivatives depend on what requires grad. The diagonal of a Cholesky factor is real, so its gradient is not that of a
symmetric matrix.
"""
COMPLEX = [row for row in DIAGNOSES if row[1] != "rev_over_rev_over_rev" and row[0].rpartition(".")[2] not in ONLY_REAL]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("operator", "check", "samples", "says", "never"), COMPLEX, ids=[f"{row[0]}-{row[1]}" for row in COMPLEX]
)
def test_so_it_is_for_complex_inputs(verdict_of, operator, check, samples, says, never):
    outcome = diagnosed(verdict_of, operator, check, samples, "complex128")
    assert re.search(says, outcome.message), outcome.message
    for text in never:
        assert text not in outcome.message, outcome.message


def test_a_complex_derivative_that_is_not_conjugated(verdict_of):
    keys = "supports = { forward_ad = false }"
    outcome = verdict_of("operators.faulty.missing_conjugate", "backward", "complex128", keys, SHAPES)
    assert "a conj() too few or too many" in outcome.message


def test_a_sample_at_the_end_of_the_domain_is_no_mistake_of_the_operator(verdict_of):
    outcome = verdict_of("torch.sqrt", "backward", samples=AT_THE_EDGE)
    assert outcome.outcome == "inconclusive"
    assert "the domain of the function ends within a step (1e-06) of the sample" in outcome.message
    assert "move the sample away from input[0] = 1e-07" in outcome.message
    assert FACTOR not in outcome.message
    assert DETACH not in outcome.message


@pytest.mark.parametrize("check", ["backward", "batched_grad"])
def test_a_backward_pass_that_is_random_within_the_tolerance_is_left_to_nondeterminism(verdict_of, check):
    keys = "supports = { forward_ad = false, second_order = false }"
    operator = "operators.diagnosed.slightly_random_backward"
    assert verdict_of(operator, check, keys=keys, samples=SHAPES).outcome == "passed"
    assert verdict_of(operator, "nondeterminism", keys=keys, samples=SHAPES).outcome == "failed"


def test_the_sample_that_tells_most_comes_first(verdict_of):
    keys = "supports = { forward_ad = false }"
    outcome = verdict_of("operators.diagnosed.constant", "backward", keys=keys, samples=SHAPES)
    assert outcome.fields["entries"] == 36
    assert re.findall(r"^sample (\d)", outcome.message, re.MULTILINE) == ["2", "1", "0"]
    assert "times" not in outcome.message.split("sample 0")[1]


def test_a_factor_that_is_the_size_of_something_is_named_by_it(verdict_of):
    keys = "supports = { forward_ad = false }"
    samples = "samples = [{ args = [{ shape = [2, 2] }] }, { args = [{ shape = [2, 3] }] }]"
    outcome = verdict_of("operators.diagnosed.mean_for_sum", "backward", keys=keys, samples=samples)
    assert (
        "in 2 of 2 samples: output 0 with respect to x: the gradient is divided by the number of elements of the input"
        in outcome.message
    )
