"""Large Jacobians are held against random directions: right ones pass, and one wrong row of hundreds is found."""

import pytest
import torch
from operators import faulty
from operators.asking import Request, ask_torch, check_claim
from operators.closed_forms import leaf, numbers

from opcheck.derivatives import Coverage
from opcheck.derivatives.cotangents import directions
from opcheck.derivatives.tolerances import DOUBLE

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")

REAL, COMPLEX = torch.float64, torch.complex128
BOTH = pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
JACOBIANS = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev")
PROJECTED = Coverage("projected")
SIZE = 600  # above what `auto` computes in full


def request(function, *leaves, **more):
    return Request(lambda *x: (function(*x),), leaves, DOUBLE, **{"coverage": PROJECTED, **more})


def ask(check, function, *leaves, **more):
    return check_claim(check, request(function, *leaves, **more))


@BOTH
@pytest.mark.parametrize("check", JACOBIANS)
@pytest.mark.parametrize(
    "function",
    [lambda x: x.sin(), lambda x: x.exp() * 1e3, lambda x: x * x.sum(), lambda x: x.prod().log(), faulty.square],
    ids=["sin", "1000exp", "x*sum", "to one number", "square"],
)
def test_a_right_function_passes(function, check, dtype):
    assert ask(check, function, leaf(SIZE, dtype=dtype)) is None


@pytest.mark.parametrize("check", JACOBIANS)
def test_a_right_function_of_several_inputs_passes(check):
    assert ask(check, lambda x, z: x * z.conj(), leaf(SIZE), leaf(SIZE, dtype=COMPLEX, seed=1)) is None


def squared(gradient, tangent=None):
    return faulty.function(faulty.square, lambda x, v: gradient(x, v), tangent)


def one_row(x, v):
    g = faulty.right_vjp(x, v).clone()
    g[7] = g[7] * 1.5
    return g


FAULTS = {
    "factor": lambda x, v: 1.01 * faulty.right_vjp(x, v),
    "sign": lambda x, v: -faulty.right_vjp(x, v),
    "nothing": lambda x, v: 0 * v,
    "one wrong row": one_row,
    "shifted": lambda x, v: faulty.right_vjp(x, v).roll(1),
    "no number": lambda x, v: faulty.right_vjp(x, v) / (x != x[0]).to(x.dtype),
}


@BOTH
@pytest.mark.parametrize("gradient", FAULTS.values(), ids=FAULTS)
def test_a_wrong_gradient_is_found(gradient, dtype):
    found = ask("backward", squared(gradient), leaf(SIZE, dtype=dtype))
    assert found.kind == "wrong"
    assert "v J u is" in found.text
    assert 'jacobian = "full"' in found.text


def test_the_numbers_shown_are_those_that_differ_most():
    x = leaf(SIZE)
    v, u = directions(SIZE, 8, "outputs"), directions(SIZE, 8, "inputs")
    jacobian = torch.diag(2 * x.detach())
    wrong = jacobian.clone()
    wrong[7] *= 1.5
    right, said = v @ jacobian @ u.T, v @ wrong @ u.T
    row, column = divmod(int((said - right).abs().argmax()), 8)
    text = ask("backward", squared(FAULTS["one wrong row"]), x).text
    assert f"for random directions {row} and {column}\n" in text
    assert f"{float(said[row, column]):.8g} analytically" in text


@BOTH
@pytest.mark.parametrize("tangent", [lambda x, t: 2.02 * x * t, lambda x, t: -2 * x * t, lambda x, t: 0 * t])
def test_a_wrong_tangent_is_found_by_forward_mode_alone(tangent, dtype):
    function = squared(faulty.right_vjp, tangent)
    assert ask("forward_ad", function, leaf(SIZE, dtype=dtype)).kind == "wrong"
    assert ask("backward", function, leaf(SIZE, dtype=dtype)) is None


@BOTH
@pytest.mark.parametrize(
    ("function", "checks"),
    [(faulty.second_order_wrong, {"rev_over_rev", "fwd_over_rev"}), (faulty.second_order_lost, {"rev_over_rev"})],
    ids=["wrong", "lost"],
)
def test_a_wrong_second_derivative_is_found(function, checks, dtype):
    x = leaf(SIZE, dtype=dtype)
    assert ask("backward", function, x) is None
    for check in checks:
        assert ask(check, function, x).kind == "wrong"


def test_a_conjugate_that_is_missing_is_found():
    assert ask("backward", faulty.missing_conjugate, leaf(SIZE, dtype=COMPLEX)).kind == "wrong"


def test_what_is_not_linear_is_found():
    function = squared(lambda x, v: faulty.right_vjp(x, v) * (1 + (v.ne(0).sum() > 1) * v[0].gt(0)))
    assert ask("backward", function, leaf(SIZE)).kind == "wrong"


def test_a_kink_is_inconclusive():
    x = numbers(SIZE)
    x[300] = 0
    assert ask("backward", torch.relu, x.requires_grad_()).kind == "inconclusive"


@BOTH
def test_functions_that_cannot_be_batched_are_judged_one_by_one(dtype):
    x = leaf(SIZE, dtype=dtype)
    assert ask("backward", faulty.not_batchable, x) is None
    assert ask("forward_ad", faulty.not_batchable_forward, x) is None
    assert ask("backward", faulty.wrong_batching_rule, x) is None
    wrong = squared(lambda x, v: 1.01 * faulty.right_vjp(x, v) if float(v.abs().sum()) >= 0 else v)
    assert ask("backward", wrong, x).kind == "wrong"


# how much


COVERAGES = [
    (Coverage("full"), "entries differ"),
    (Coverage("projected"), "v J u is"),
    (Coverage("auto"), "entries differ"),
]


@pytest.mark.parametrize(("coverage", "says"), COVERAGES, ids=["full", "projected", "auto"])
def test_of_a_small_jacobian_the_amount_decides_what_is_said(coverage, says):
    assert says in ask("backward", faulty.wrong_sign, leaf(6), coverage=coverage).text


@pytest.mark.parametrize(
    ("coverage", "says"),
    [(Coverage("full"), "entries differ"), (Coverage("auto"), "v J u is"), (Coverage(largest=SIZE), "entries differ")],
    ids=["full", "auto", "auto up to its size"],
)
def test_of_a_large_jacobian_of_slices_that_depend_on_others_auto_is_projected(coverage, says):
    def wrong(x):
        return faulty.wrong_sign(x).cumsum(0)

    assert says in ask("backward", wrong, leaf(SIZE), coverage=coverage).text


@BOTH
@pytest.mark.parametrize("projections", [2, 16])
def test_more_or_fewer_directions_may_be_asked_for(projections, dtype):
    coverage = Coverage("projected", projections=projections)
    assert ask("backward", lambda x: x.sin(), leaf(9, dtype=dtype), coverage=coverage) is None
    text = ask("backward", faulty.wrong_sign, leaf(9, dtype=dtype), coverage=coverage).text
    assert f"of {projections**2} such projections" in text


def test_a_budget_for_one_row_at_a_time_gives_the_same_answer():
    coverage = Coverage("projected", memory=1)
    assert ask("backward", lambda x: x.sin(), leaf(20), coverage=coverage) is None
    assert ask("backward", faulty.wrong_sign, leaf(20), coverage=coverage).kind == "wrong"


# beside torch's fast mode


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_percent_of_one_row_is_found_which_torchs_fast_mode_allows(seed):
    matrix = numbers(SIZE, SIZE)
    wrong = matrix.clone()
    wrong[7] *= 1.01
    asked = request(faulty.function(lambda x: matrix @ x, lambda x, v: wrong.T @ v), leaf(SIZE))
    torch.manual_seed(seed)
    assert ask_torch("backward", asked, fast_mode=True) is None
    assert check_claim("backward", asked).kind == "wrong"


# what a random direction does not see by itself


def clipped(v):
    """Clip a vector that is longer than a random direction, as gradients are clipped before a step."""
    return v * (20 / v.norm()).clamp(max=1)


@BOTH
@pytest.mark.parametrize("check", ["backward", "forward_ad"])
def test_what_is_right_in_each_random_direction_and_wrong_in_their_sum_is_found(check, dtype):
    gradient = (lambda x, v: faulty.right_vjp(x, clipped(v))) if check == "backward" else faulty.right_vjp
    tangent = (lambda x, t: faulty.right_jvp(x, clipped(t))) if check == "forward_ad" else faulty.right_jvp
    # A random direction of 2 * 200 coordinates has a length of about 12, the sum of eight of about 33.
    x = leaf(400 if dtype is REAL else 200, dtype=dtype)
    found = ask(check, squared(gradient, tangent), x, coverage=Coverage("projected"))
    assert found.kind == "wrong"
    assert "not linear" in found.text
    other = {"backward": "forward_ad", "forward_ad": "backward"}[check]
    assert ask(other, squared(gradient, tangent), x, coverage=Coverage("projected")) is None


@pytest.mark.parametrize("mode", ["backward", "forward_ad"])
@pytest.mark.parametrize(("factor", "found"), [(1 + 1e-4, False), (1 + 1e-2, True)])
def test_what_is_not_linear_within_the_tolerance_is_no_reason(mode, factor, found):
    def bent(v):
        return v * torch.where(v.norm() > 20, factor, 1.0)

    function = faulty.function(
        lambda x: 1e3 * x,
        (lambda x, v: 1e3 * bent(v)) if mode == "backward" else lambda x, v: 1e3 * v,
        (lambda x, t: 1e3 * bent(t)) if mode == "forward_ad" else lambda x, t: 1e3 * t,
    )
    disagreement = ask(mode, function, leaf(400), coverage=Coverage("projected"))
    assert (disagreement is not None) is found


def test_directions_of_inputs_and_of_outputs_have_nothing_to_do_with_each_other():
    # v^T E v is 0 for every antisymmetric E.
    generator = torch.Generator().manual_seed(0)
    off = torch.rand(20, 20, dtype=REAL, generator=generator)
    function = faulty.function(lambda x: x * 1, lambda x, v: v + (off - off.T) @ v)
    assert ask("backward", function, leaf(20), coverage=Coverage("projected", projections=1)).kind == "wrong"
