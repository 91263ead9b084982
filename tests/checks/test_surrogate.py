"""A gradient that is meant to differ from the derivative is held against that of a surrogate."""

from __future__ import annotations

import pytest
import torch
from operators import surrogates

from opcheck.checks.jacobian.compare import OF_NO_GRAD
from opcheck.derivatives.autodiff import Primal, Pullback, Pushforward, gradient_sum, with_surrogate
from opcheck.samples.surrogate import Held, Unlike

ONE = "samples = [{ args = [{ shape = [2, 3], low = 0.3, high = 1.4 }] }]"
TWO = "samples = [{ args = [{ shape = [3], low = 0.3, high = 1.4 }, { shape = [3], low = 0.3, high = 1.4 }] }]"
BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
JACOBIANS = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev", "rev_over_fwd", "accuracy", "context")

RIGHT = {
    "through": "identity",
    "as_written": "as_written",
    "reversal": "negated",
    "smooth": "torch.sin",
    "product": "product_as_written",
}
WRONG = {
    "through_scaled": ("identity", ("backward", "forward_ad")),
    "reversal_forgotten": ("negated", ("backward", "forward_ad")),
    "smooth_scaled": ("torch.sin", ("backward", "forward_ad")),
    "smooth_at_first": ("torch.sin", ("rev_over_rev",)),
    "product_forgets": ("product_as_written", ("backward", "forward_ad")),
}


def spec(name, surrogate="", keys=""):
    samples = TWO if name.startswith("product") else ONE
    path = surrogate if "." in surrogate else f"operators.surrogates.{surrogate}"
    key = f'surrogate = "{path}"\n' if surrogate else ""
    own = name if "." in name else f"operators.surrogates.{name}"
    return f'[[operator]]\nname = "{own}"\n{key}{keys}\n{samples}\n'


def failing(found):
    return {outcome.check for outcome in found.values() if outcome.outcome == "failed"}


@BOTH
@pytest.mark.parametrize("name", RIGHT)
def test_the_gradient_that_is_meant_passes(outcomes, name, dtype):
    found = outcomes(spec(name, RIGHT[name]), dtypes=(dtype,))
    assert {id: one.message for id, one in found.items() if one.outcome not in ("passed", "skipped")} == {}
    assert {"backward", "forward_ad", "rev_over_rev", "fwd_over_rev"} <= {one.check for one in found.values()}


@BOTH
@pytest.mark.parametrize("name", WRONG)
def test_another_gradient_does_not(outcomes, name, dtype):
    surrogate, checks = WRONG[name]
    found = outcomes(spec(name, surrogate), checks=JACOBIANS, dtypes=(dtype,))
    assert failing(found) >= set(checks)
    assert not failing(found) - {*checks, "context"}


@BOTH
@pytest.mark.parametrize(
    ("name", "expected"), [("held_constant", "passed"), ("held_constant_in_reverse_mode", "failed")]
)
def test_what_no_grad_holds_constant_moves_in_forward_mode(outcomes, name, expected, dtype):
    found = outcomes(spec(name, name), checks=("backward", "forward_ad"), dtypes=(dtype,))
    outcome = {one.check: one for one in found.values()}
    assert (outcome["backward"].outcome, outcome["forward_ad"].outcome) == ("passed", expected)
    assert expected == "passed" or OF_NO_GRAD in outcome["forward_ad"].message


CONSTANT = 'surrogate = "constant"'


@BOTH
@pytest.mark.parametrize("name", ["constant", "constant_in_part"])
def test_a_gradient_that_is_meant_to_be_zero_passes(outcomes, name, dtype):
    found = outcomes(spec(name, keys=CONSTANT), checks=JACOBIANS, dtypes=(dtype,))
    assert {id: one.message for id, one in found.items() if one.is_bad} == {}
    assert "backward" in {one.check for one in found.values()}


@BOTH
@pytest.mark.parametrize(
    ("name", "check"), [("constant_but_for_a_part", "backward"), ("constant_at_first", "rev_over_rev")]
)
def test_one_that_is_not_zero_is_caught(outcomes, name, check, dtype):
    found = outcomes(spec(name, keys=CONSTANT), checks=(check,), dtypes=(dtype,))
    assert failing(found) == {check}


def test_what_is_drawn_at_random_may_be_a_constant(outcomes):
    text = (
        '[[operator]]\nname = "torch.normal"\nreseed = true\nKEY\nsupports = { vmap = false }\ndtypes = ["float64"]\n'
        + TWO
    )
    found = outcomes(text.replace("KEY", CONSTANT), checks=JACOBIANS)
    assert {id: one.message for id, one in found.items() if one.is_bad} == {}
    found = outcomes(text.replace("KEY", ""), checks=("backward",))
    assert failing(found) == {"backward"}


@BOTH
@pytest.mark.parametrize("name", RIGHT)
def test_without_a_surrogate_the_message_names_the_key(outcomes, name, dtype):
    found = outcomes(spec(name), checks=("backward",), dtypes=(dtype,))
    (outcome,) = found.values()
    assert outcome.outcome == "failed"
    assert "write surrogate = " in outcome.message


@pytest.mark.parametrize(
    ("surrogate", "words"),
    [
        ("of_another_shape", "the surrogate returns float64[], the operator float64[2, 3]"),
        ("of_another_dtype", "the surrogate returns float32[2, 3], the operator float64[2, 3]"),
        ("of_two_outputs", "the surrogate returns float64[2, 3], float64[2, 3], the operator float64[2, 3]"),
        ("raising", "the surrogate raised ValueError: not for me"),
    ],
)
def test_a_surrogate_that_is_none_is_an_error(outcomes, surrogate, words):
    (outcome,) = outcomes(spec("through", surrogate), checks=("backward",), dtypes=("float64",)).values()
    assert outcome.outcome == "error"
    assert words in outcome.message
    assert "expected a function of the same arguments" in outcome.message


def test_a_surrogate_is_an_allowed_name(outcomes):
    from opcheck.spec.problems import SpecError

    with pytest.raises(SpecError, match=r"spec.toml:3:\d+.*os.system"):
        outcomes(spec("through", "os.system"))


def test_what_is_detached_is_held_constant():
    x = torch.linspace(0.3, 1.4, 5, dtype=torch.float64)
    held = Held(surrogates.as_written)
    assert torch.equal(held(x), surrogates.rounded(x).double())
    assert torch.allclose(held(x + 0.01) - held(x), torch.full_like(x, 0.01))
    rows = torch.func.vmap(held)(torch.stack([x, x + 1]))
    assert torch.allclose(rows[1] - rows[0], torch.ones_like(x))


def test_data_is_held_as_well_and_may_be_written_to():
    def function(x):
        constant = x.data
        return x + constant.mul_(2)

    held, x = Held(function), torch.ones(2)
    assert torch.equal(held(x.clone()), 3 * x)
    assert torch.equal(held(2 * x), 3 * x + 1)


def test_what_is_computed_without_grad_mode_is_held():
    buffer = torch.zeros(())

    def function(x):
        with torch.no_grad():
            largest, _ = x.max(-1)
            buffer.lerp_(x.mean(), 0.5)
            count = x.numel()
        return x * largest + buffer, count

    held, x = Held(function), torch.tensor([1.0, 3.0])
    assert torch.equal(held(x)[0], torch.tensor([4.0, 10.0]))
    for _ in range(2):
        values, count = held(2 * x)
        assert torch.equal(values, torch.tensor([7.0, 19.0]))
        assert (float(buffer), count) == (1.0, 2)


def test_the_inside_of_an_autograd_function_is_not():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.no_grad():
                return x.detach() * x

        @staticmethod
        def backward(ctx, v):
            return v

    held, x = Held(Square.apply), torch.ones(2)
    held(x)
    assert torch.equal(held(3 * x), 9 * x)


def test_what_is_detached_must_be_the_same_each_time():
    held, x = Held(surrogates.detaches_more_and_more), torch.ones(2)
    held(x)
    with pytest.raises(Unlike, match="must detach the same number of tensors"):
        held(x)


@BOTH
def test_large_samples_are_compared_along_directions(outcomes, dtype):
    samples = "samples = [{ args = [{ shape = [40, 30], low = 0.3, high = 1.4 }] }]"
    for name, surrogate, expected in (("smooth", "torch.sin", set()), ("smooth_scaled", "torch.sin", {"backward"})):
        text = spec(name, surrogate).replace(ONE, samples)
        assert failing(outcomes(text, checks=("backward",), dtypes=(dtype,))) == expected


@pytest.mark.parametrize(("name", "passes"), [("QuantizedLinear", True), ("WrongLinear", False)])
def test_the_surrogate_of_a_module_is_a_module(outcomes, name, passes):
    text = spec(name, "QuantizedLinear", "module = {}\ndtypes = ['float64']")
    found = outcomes(text, checks=("backward", "rev_over_rev"))
    assert (failing(found) == set()) is passes


@pytest.mark.parametrize(("name", "passes"), [("through", True), ("through_scaled", False)])
def test_derived_samples_know_it(outcomes, name, passes):
    found = outcomes(spec(name, "identity"), checks=("derived",), dtypes=("float64",))
    (outcome,) = found.values()
    assert (outcome.outcome == "passed") is passes, outcome.message


def test_torch_is_not_asked_about_it(outcomes):
    from operators.asking import Request, ask_torch

    from opcheck.derivatives.by_torch import CannotAsk
    from opcheck.derivatives.tolerances import DOUBLE

    def function(x):
        return (x.clone(),)

    function.surrogate = function
    request = Request(function, (torch.ones(2, dtype=torch.float64, requires_grad=True),), DOUBLE)
    with pytest.raises(CannotAsk, match="surrogate"):
        ask_torch("backward", request)
    assert ask_torch("undefined_grad", request) is None


def test_a_derivative_of_a_surrogate_is_a_derivative_of_the_same_kind():
    def sine(x):
        return (x.sin(),)

    sine.surrogate = torch.cos
    for derivative in (
        lambda primal: primal,
        lambda primal: Pullback(primal, 1),
        lambda primal: Pushforward(Pullback(primal, 1)),
        lambda primal: gradient_sum(primal, (), 1),
    ):
        plain, function = derivative(Primal(torch.sin, (0,))), derivative(Primal(sine, (0,)))
        assert with_surrogate(plain) is plain
        assert with_surrogate(function) == derivative(Primal(torch.cos, (0,)))


@BOTH
@pytest.mark.parametrize("masked", ["true", "false"])
@pytest.mark.parametrize(("name", "passes"), [("through_sparse", True), ("through_sparse_scaled", False)])
def test_inputs_may_be_sparse(outcomes, name, passes, masked, dtype):
    sparse = "{ shape = [2, 3], low = 0.3, high = 1.4, layout = 'sparse_coo' }"
    samples = f"samples = [{{ args = [{sparse}, {masked}] }}]"
    text = spec(name, "dense", f"masked = {masked}").replace(ONE, samples)
    (outcome,) = outcomes(text, checks=("backward",), dtypes=(dtype,)).values()
    assert (outcome.outcome == "passed") is passes, outcome.message


def test_a_surrogate_that_is_missing_is_a_mistake_at_its_place(write):
    from opcheck.planning import load
    from opcheck.running.session import RunSession
    from opcheck.settings import Settings

    path = write('[[operator]]\nname = "torch.round"\nsurrogate = "torch.nn.functional.hardtan"\n' + ONE)
    settings = Settings()
    (problem,) = RunSession(settings).prepare(load([path], settings))
    assert "spec.toml:3:" in str(problem)
    assert 'did you mean "torch.nn.functional.hardtanh"' in str(problem)
