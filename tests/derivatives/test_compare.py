"""Wrong derivatives are told from kinks, from lost digits, and from batching rules that are broken."""

from dataclasses import replace

import pytest
import torch
from operators import awkward, faulty
from operators.asking import Request, check_claim, lost_digits
from operators.closed_forms import leaf, numbers
from operators.corpus import LOW_ACCURACY
from operators.corpus_numbers import SQUARE

from opcheck.derivatives.tolerances import BY_PRECISION, DOUBLE

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")

REAL, COMPLEX = torch.float64, torch.complex128
BOTH = pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
JACOBIANS = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev")


def ask(check, function, *leaves, derivative="backward", **more):
    request = Request(function, leaves, DOUBLE, **more)
    if check == "accuracy":
        return lost_digits(derivative, request)
    return check_claim(check, request)


def digits_lost(check, function, *leaves):
    request = Request(function, leaves, DOUBLE)
    return lost_digits(check, request)


def at(*values, dtype=REAL):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def one_input(forward, backward, jvp=None):
    function = faulty.function(forward, backward, jvp)
    return lambda x: (function(x),)


# wrong


@BOTH
@pytest.mark.parametrize("factor", [1.01, -1, 0])
def test_a_wrong_gradient_is_described_with_its_worst_entry_and_what_it_looks_like(factor, dtype):
    function = one_input(lambda x: x**3, lambda x, v: factor * v * (3 * x**2).conj())
    x = leaf(3, dtype=dtype)
    found = ask("backward", function, x)
    assert found.kind == "wrong"
    worst = found.worst[0]
    assert found.mismatch.worst.analytical == pytest.approx(factor * found.mismatch.worst.numerical, rel=1e-5, abs=1e-9)
    assert (worst.output, worst.leaf) == (found.mismatch.worst.output, found.mismatch.worst.leaf) == (0, 0)
    assert [finding.kind for finding in found.findings] == [{1.01: "factor", -1: "sign", 0: "zero"}[factor]]
    assert "it looks like this" in found.text


@pytest.mark.parametrize("check", ["backward", "forward_ad"])
def test_no_number_where_differences_give_one_is_wrong(check):
    function = one_input(lambda x: x * x, lambda x, v: v * x**2 / x * 2, lambda x, t: t * x**2 / x * 2)
    found = ask(check, function, at(0.0, 1.0, 2.0))
    assert found.kind == "wrong"
    assert found.findings[0].kind == "nan"
    assert found.mismatch.worst.analytical != found.mismatch.worst.analytical
    assert ask(check, function, at(0.5, 1.0, 2.0)) is None


def test_no_number_for_a_branch_not_taken_is_wrong_in_reverse_mode():
    function = lambda x: (torch.where(x == 0, torch.ones_like(x), x.sin() / x),)  # noqa: E731
    assert ask("backward", function, at(0.0, 1.0)).findings[0].kind == "nan"
    assert ask("forward_ad", function, at(0.0, 1.0)) is None


def test_an_infinite_gradient_is_wrong_where_differences_are_finite():
    function = one_input(lambda x: 2 * x, lambda x, v: v * 2 / (x - 1))
    assert ask("backward", function, at(1.0, 2.0)).kind == "wrong"


def test_curvature_alone_is_no_reason():
    for function in (lambda x: ((100 * x).exp(),), lambda x: (1e3 * x**2,)):
        for check in JACOBIANS:
            assert ask(check, function, at(0.05, 0.1, 0.2)) is None


@BOTH
def test_one_wrong_entry_of_many_is_found(dtype):
    found = ask("backward", lambda x: (faulty.one_wrong_entry(x),), leaf(3, 3, dtype=dtype))
    assert found.mismatch.worst.leaf_index == (2, 2)


# linearity


def few(v):
    """1 where at most one element of v is not zero, 2 otherwise."""
    return 1 + (v.ne(0).sum() > 1).to(v.dtype)


@BOTH
def test_a_backward_pass_that_is_not_linear_is_found(dtype):
    function = one_input(lambda x: 2 * x, lambda x, v: 2 * v * few(v), lambda x, t: 2 * t)
    found = ask("backward", function, leaf(4, dtype=dtype))
    assert found.kind == "wrong"
    assert "not linear in the cotangent" in found.text
    assert ask("forward_ad", function, leaf(4, dtype=dtype)) is None


@BOTH
def test_a_jvp_that_is_not_linear_is_found(dtype):
    function = one_input(lambda x: 2 * x, lambda x, v: 2 * v, lambda x, t: 2 * t * few(t))
    found = ask("forward_ad", function, leaf(4, dtype=dtype))
    assert found.kind == "wrong"
    assert "not linear in the tangent" in found.text
    assert ask("backward", function, leaf(4, dtype=dtype)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=["float32", "complex64"])
def test_what_is_not_linear_is_found_in_single_precision(dtype):
    function = one_input(lambda x: 2 * x, lambda x, v: 2 * v * few(v), lambda x, t: 2 * t * few(t))
    for check in ("backward", "forward_ad"):
        asked = Request(function, (leaf(4, dtype=dtype),), BY_PRECISION[dtype])
        assert "not linear" in check_claim(check, asked).text


def test_what_is_not_linear_within_the_tolerance_is_no_reason():
    function = one_input(lambda x: 2 * x, lambda x, v: 2 * v * (1 + 1e-6 * (few(v) - 1)))
    assert ask("backward", function, leaf(20)) is None


def test_errors_within_the_tolerance_for_each_unit_may_add_up():
    function = one_input(lambda x: x * 1, lambda x, v: v + 0.9 * DOUBLE.atol * v.sum())
    assert ask("backward", function, leaf(20)).kind == "wrong"  # differences are far better than atol
    assert ask("backward", one_input(lambda x: x * 1, lambda x, v: v + 0.9 * DOUBLE.rtol * v), leaf(20)) is None


def test_names_are_those_of_the_outputs_and_not_of_the_gradients_of_second_order():
    x = leaf(3)
    named = Request(lambda x: (faulty.second_order_wrong(x),), (x,), DOUBLE, output_names=(".loss",))
    found = check_claim("rev_over_rev", named)
    assert found.kind == "wrong"
    assert ".loss" not in found.text
    assert ".loss" in check_claim("backward", replace(named, function=lambda x: (faulty.wrong_sign(x),))).text


# kinks


@pytest.mark.parametrize("check", ["backward", "forward_ad"])
@pytest.mark.parametrize("function", [torch.abs, lambda x: -x.abs(), torch.relu, lambda x: x.clamp(min=0), torch.floor])
def test_at_a_kink_or_a_jump_nothing_can_be_said(function, check):
    found = ask(check, lambda x: (function(x),), at(0.5, 0.0, -0.25))
    assert found.kind == "inconclusive"
    assert "move the sample away from input 0[1] = 0" in found.text


@pytest.mark.parametrize("check", ["backward", "forward_ad"])
@pytest.mark.parametrize("function", [torch.sqrt, torch.log, lambda x: torch.asin(1 - x)])
def test_where_the_domain_ends_within_a_step_nothing_can_be_said(function, check):
    found = ask(check, lambda x: (function(x),), at(0.5, 1e-7))
    assert found.kind == "inconclusive"
    assert found.text.startswith("the domain of the function ends within a step (1e-06) of the sample")
    assert "move the sample away from input 0[1] = 1e-07" in found.text


def test_a_wrong_derivative_beside_the_end_of_the_domain_is_wrong():
    function = one_input(torch.sqrt, lambda x, v: v / x.sqrt())
    assert ask("backward", function, at(0.5, 1e-7)).kind == "wrong"


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("dtype", [torch.float32, REAL])
def test_a_kink_within_a_step_of_the_point_is_no_wrong_derivative(dtype, side):
    numbers, kinds = BY_PRECISION[dtype], []
    for part in torch.linspace(0, 1.2, 41).tolist():
        x = at(-side * part * numbers.eps, 0.7, dtype=dtype)
        found = check_claim("backward", Request(lambda x: (torch.relu(x),), (x,), numbers))
        kinds.append(found.kind if found else "")
    passed = kinds.count("")
    assert kinds == ["inconclusive"] * (41 - passed) + [""] * passed
    assert 7 <= passed <= 10  # from where the step no longer reaches the kink, or by less than the tolerance


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        (lambda x: (30 * x).exp(), lambda x, v: 31 * (30 * x).exp() * v),
        (lambda x: 1 / x, lambda x, v: -2 * v / x**2),
        (lambda x: 1e6 * x.relu() ** 2, lambda x, v: 1.0 * v),
        (lambda x: x.relu(), lambda x, v: 2.0 * (x > 0) * v),
    ],
    ids=["exp", "1/x", "a curve on one side", "relu"],
)
def test_a_wrong_derivative_of_a_curve_is_wrong(forward, backward):
    assert ask("backward", one_input(forward, backward), at(0.3, 0.01)).kind == "wrong"
    assert ask("backward", one_input(forward, backward), at(0.0001)).kind == "wrong"


def test_a_curve_needs_no_third_step_where_there_is_none():
    def curve(x):
        if bool((x < -2.5e-6).any()):
            raise ValueError("outside of the domain")
        return (3000 * x).exp()

    assert ask("backward", one_input(curve, lambda x, v: 3000 * (3000 * x).exp() * v), at(0.0)) is None
    assert ask("backward", one_input(curve, lambda x, v: 3100 * (3000 * x).exp() * v), at(0.0)).kind == "wrong"


def test_where_jacobians_differ_at_a_kink_they_are_shown():
    x = at(0.5, 0.0)
    assert ask("backward", lambda x: (x.relu(),), x).mismatch.worst.analytical == 0  # and 1/2 by central differences
    assert ask("backward", lambda x: (x.abs(),), x).mismatch is None


def test_at_a_jump_with_its_value_in_the_middle_nothing_can_be_said():
    assert ask("backward", lambda x: (x.sign(),), at(0.5, 0.0)).kind == "inconclusive"


@pytest.mark.parametrize("check", ["rev_over_rev", "fwd_over_rev"])
def test_a_kink_of_the_gradient_is_one_at_second_order_only(check):
    function = lambda x: (x * x.abs(),)  # noqa: E731
    x = at(0.5, 0.0)
    assert ask("backward", function, x) is None
    found = ask(check, function, x)
    assert found.kind == "inconclusive"
    assert "input 0[1] = 0" in found.text


def test_all_inputs_at_a_kink_are_named_with_their_values():
    function = lambda x, y: (torch.maximum(x, y),)  # noqa: E731
    text = ask("backward", function, at(0.5, 3.0), at(1.5, 3.0)).text
    assert "input 0[1] = 3, input 1[1] = 3" in text
    assert "[0]" not in text


def test_of_many_inputs_at_a_kink_the_first_are_named():
    text = ask("backward", lambda x: (x.abs(),), at(*[0.0] * 11)).text
    assert "input 0[7] = 0 and 3 more" in text
    assert "more" not in ask("backward", lambda x: (x.abs(),), at(*[0.0] * 8)).text


def test_complex_coordinates_are_named_by_their_part():
    text = ask("backward", lambda z: (z.abs(),), at(1 + 1j, 0, dtype=COMPLEX)).text
    assert "input 0[1].real = 0, input 0[1].imag = 0" in text


def test_what_is_wrong_beside_a_kink_is_wrong():
    assert ask("backward", lambda x: (awkward.wrong_abs(x),), at(0.0, 1.0)).kind == "wrong"


# low accuracy


COARSE = {"backward": awkward.coarse_gradient, "forward_ad": awkward.coarse_tangent}


@BOTH
@pytest.mark.parametrize("check", COARSE)
def test_a_factor_in_single_precision_loses_digits(check, dtype):
    function = lambda x: (COARSE[check](x),)  # noqa: E731
    assert ask(check, function, leaf(4, dtype=dtype)) is None
    found = digits_lost(check, function, leaf(4, dtype=dtype))
    assert found.kind == "low accuracy"
    assert "single precision" in found.text
    assert "d output 0[" in found.text


def entry(name):
    return next(entry for entry in LOW_ACCURACY if entry.name == name)


@BOTH
@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("gradient_in_single_precision", "backward"),
        ("tangent_in_single_precision", "forward_ad"),
        ("second_order_in_single_precision", "rev_over_rev"),
    ],
)
def test_all_of_a_derivative_in_single_precision_loses_digits(name, check, dtype):
    request = entry(name).request(dtype)
    assert check_claim(check, request) is None
    assert lost_digits(check, request).kind == "low accuracy"


@BOTH
@pytest.mark.parametrize("check", JACOBIANS)
@pytest.mark.parametrize(
    "function",
    [lambda x: (x.exp(),), lambda x: (1 / x,), lambda x: (1e3 * x.log(),), lambda x: (1e-4 * x.sin(),), SQUARE],
)
def test_full_precision_loses_none(function, check, dtype):
    assert ask(check, function, leaf(3, dtype=dtype)) is None
    assert digits_lost(check, function, leaf(3, dtype=dtype)) is None


@pytest.mark.parametrize("check", JACOBIANS)
def test_single_precision_of_the_leaves_themselves_loses_none(check):
    request = Request(lambda x: (x.exp(),), (leaf(3, dtype=torch.float32),), BY_PRECISION[torch.float32])
    assert check_claim(check, request) is None
    assert lost_digits(check, request) is None


def test_a_coarse_formula_in_single_precision_loses_digits():
    coarse = one_input(lambda x: x * x, lambda x, v: v * 2 * x * 1.005)
    request = Request(coarse, (leaf(4, dtype=torch.float32),), BY_PRECISION[torch.float32])
    assert check_claim("backward", request) is None
    assert lost_digits("backward", request).kind == "low accuracy"


# batching rules


class WrongRule(torch.autograd.Function):
    """Multiplies by 2; its batching rule by 3."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, v):
        return WrongRule.apply(v)

    @staticmethod
    def jvp(ctx, t):
        return WrongRule.apply(t)

    @staticmethod
    def vmap(info, in_dims, x):
        return 3 * x, in_dims[0]


class RaisingRule(WrongRule):
    """Multiplies by 2; its batching rule raises."""

    @staticmethod
    def backward(ctx, v):
        return RaisingRule.apply(v)

    @staticmethod
    def jvp(ctx, t):
        return RaisingRule.apply(t)

    @staticmethod
    def vmap(info, in_dims, x):
        raise ValueError("no rule")


@BOTH
@pytest.mark.parametrize("rule", [WrongRule, RaisingRule])
@pytest.mark.parametrize("check", JACOBIANS)
def test_no_jacobian_is_blamed_for_a_broken_batching_rule(rule, check, dtype):
    assert ask(check, lambda x: (rule.apply(x),), leaf(4, dtype=dtype)) is None


@BOTH
@pytest.mark.parametrize("check", ["batched_grad", "batched_forward_grad"])
def test_a_broken_batching_rule_is_reported_as_what_it_is(check, dtype):
    found = ask(check, lambda x: (WrongRule.apply(x),), leaf(4, dtype=dtype))
    assert found.kind == "wrong"
    assert "is not that of the loop" in found.text
    found = ask(check, lambda x: (RaisingRule.apply(x),), leaf(4, dtype=dtype))
    assert found.kind == "refused"
    assert "no rule" in found.text


# memory


OVERLAPPING = {
    "expanded": lambda x: (x[:, :1].expand(3, 2),),
    "unfolded": lambda x: (x[:, :3].unfold(1, 2, 1),),
}


@pytest.mark.filterwarnings("ignore:.*performance drop:UserWarning")
@pytest.mark.parametrize("function", OVERLAPPING.values(), ids=OVERLAPPING)
def test_an_output_that_is_a_view_of_part_of_the_input_with_shared_elements_is_right(function):
    assert ask("backward", function, leaf(3, 10)) is None


@pytest.mark.parametrize("function", OVERLAPPING.values(), ids=OVERLAPPING)
def test_a_leaf_with_shared_elements_and_gaps_is_a_leaf(function):
    (x,) = function(numbers(3, 10))
    assert ask("backward", lambda x: (x.sin(),), x.requires_grad_()) is None


# errors below atol


def small_sine(scale, sign):
    """scale * sin, with its gradient times a sign."""
    return one_input(
        lambda x: scale * x.sin(),
        lambda x, v: sign * scale * v * x.cos().conj(),
        lambda x, t: sign * scale * t * x.cos(),
    )


@BOTH
@pytest.mark.parametrize("check", ["backward", "forward_ad"])
@pytest.mark.parametrize("scale", [1e-6, 1e-7])
def test_a_small_gradient_with_the_wrong_sign_is_wrong(scale, check, dtype):
    assert ask(check, small_sine(scale, 1), leaf(4, dtype=dtype)) is None
    found = ask(check, small_sine(scale, -1), leaf(4, dtype=dtype))
    assert found.kind == "wrong"
    assert found.below_atol
    assert [finding.kind for finding in found.findings] == ["sign"]
    assert "the difference is below atol" in found.text


@pytest.mark.parametrize(("sign", "kind"), [(1, None), (-1, "wrong")])
def test_a_small_gradient_is_judged_by_projections_too(sign, kind):
    found = ask("backward", small_sine(1e-6, sign), leaf(600))
    assert (found and found.kind) == kind


@BOTH
@pytest.mark.parametrize("check", ["rev_over_rev", "fwd_over_rev"])
def test_a_small_second_derivative_is_wrong_too(check, dtype):
    small = lambda x: (1e-6 * faulty.second_order_wrong(x),)  # noqa: E731
    assert ask(check, small, leaf(3, dtype=dtype)).kind == "wrong"
    assert ask(check, lambda x: (1e-6 * x * x,), leaf(3, dtype=dtype)) is None


def test_of_a_block_only_the_small_entry_may_be_wrong():
    function = one_input(lambda x: x * 1e-6, lambda x, v: torch.cat([v[:1] * 1e-6, v[1:] * 1.1e-6]))
    beside = lambda x: (x.exp(), *function(x))  # noqa: E731
    found = ask("backward", beside, leaf(3))
    assert found.mismatch.worst.output == 1
    assert found.mismatch.wrong == 2


NOISY = {
    "a constant beside it": lambda x, at: 1e-6 * x.sin() + 1e3,
    "a constant added and taken away": lambda x, at: (1e-6 * x.sin() + 1e3) - 1e3,
    "a product with a large number": lambda x, at: (1e4 + 1e-7 * x).log() - torch.tensor(1e4, dtype=REAL).log(),
    "a larger constant": lambda x, at: (1e-9 * x.sin() + 1e5) - 1e5,
    "a probability of nearly one": lambda x, at: torch.log_softmax(torch.stack([30 * x, -5 * x]), 0),
    "a loss of nearly none": lambda x, at: torch.log_softmax(torch.stack([33 + x, -x]), 0)[0],
    "a loss of none": lambda x, at: torch.log_softmax(torch.stack([43 + x, -x]), 0)[0],
    "a saturated sigmoid": lambda x, at: 1 - torch.sigmoid(30 + x),
    "a sum with cancellation": lambda x, at: (1e4 * x).sum() - (1e4 * x.flip(0)).sum(),
    "a small kink": lambda x, at: 1e-6 * (x - at).abs(),
    "a small kink on one side": lambda x, at: 1e-6 * (x - at).relu(),
    "a small kink beside the point": lambda x, at: 1e-6 * (x - at - 1e-7).relu(),
    "a small kink a step away": lambda x, at: 1e-6 * (x - at - 3e-6).relu(),
    "a small jump": lambda x, at: 1e-12 * (x > at) + 0 * x,
    "an edge of the domain": lambda x, at: 1e-6 * (x - at + 1e-4).log(),
    "curvature": lambda x, at: 1e-6 * (1e3 * x).sin(),
    "a high power": lambda x, at: 1e-3 * (x - at) ** 3,
}


@pytest.mark.parametrize("check", ["backward", "forward_ad", "rev_over_rev", "accuracy"])
@pytest.mark.parametrize("name", NOISY)
def test_noise_and_kinks_below_atol_are_no_disagreement(name, check):
    x = leaf(4)
    point = x.detach().clone()
    function = lambda x: (NOISY[name](x, point),)  # noqa: E731
    found = digits_lost("backward", function, x) if check == "accuracy" else ask(check, function, x)
    assert found is None or (found.kind == "inconclusive" and check == "rev_over_rev")  # kinks of f are jumps of f'


def test_what_differences_cannot_tell_is_no_disagreement():
    wrong = one_input(lambda x: 1e-9 * x.sin() + 1e6, lambda x, v: -1e-9 * v * x.cos())
    assert ask("backward", wrong, leaf(3)) is None


def test_a_function_that_refuses_points_nearby_is_judged_by_atol():
    def refuses(x):
        if bool((x - 1).abs().max() > 1e-4):
            raise ValueError("too far")
        return x

    function = one_input(lambda x: 1e-6 * refuses(x).sin(), lambda x, v: -1e-6 * v * x.cos())
    assert ask("backward", function, at(1.0)) is None
