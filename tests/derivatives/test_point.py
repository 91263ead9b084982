"""Evidence is the Jacobian, by whatever way it is had: batched, in small batches, one by one, and only once."""

import pytest
import torch
from operators import faulty
from operators.asking import Request
from operators.closed_forms import Counted, leaf, numbers, real_jacobian
from operators.faulty import not_batchable, not_batchable_forward, wrong_batching_rule
from operators.right import Square

from opcheck.derivatives import Coverage
from opcheck.derivatives.autodiff import Primal, Pullback, pushforward
from opcheck.derivatives.cotangents import directions, probe
from opcheck.derivatives.point import Point
from opcheck.derivatives.tolerances import DOUBLE

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")

REAL, COMPLEX = torch.float64, torch.complex128
STEP = 1e-6
ONE_AT_A_TIME = Coverage(memory=1)
COVERAGES = pytest.mark.parametrize(
    "coverage", [Coverage(), ONE_AT_A_TIME, Coverage(memory=3000)], ids=["all", "one", "some"]
)
MODES = pytest.mark.parametrize("mode", ["reverse", "forward"])


def evidence(function, *leaves, coverage=Coverage()):  # noqa: B008 - frozen
    return Point(Primal(function, tuple(range(len(function(*leaves))))), leaves, coverage=coverage)


def mixed(x, z):
    return (x[:, None] * z, (z.conj() * z).real.sum(), x.sin())


FUNCTIONS = {
    "several inputs and outputs": (mixed, (leaf(2), leaf(3, dtype=COMPLEX, seed=1))),
    "real": (lambda x: (x.sin() * x.sum(),), (leaf(2, 3),)),
    "complex": (lambda z: (z * z.abs(), z.prod()), (leaf(3, dtype=COMPLEX),)),
    "rank 0": (lambda x, y: (x * y,), (leaf(), leaf(4))),
    "to rank 0": (lambda x: (x.prod(),), (leaf(5),)),
    "empty": (lambda x: (x.sin(), x.sum()), (leaf(0, 2),)),
    "empty beside": (lambda x, y: (x.sin(), y * y.sum()), (leaf(0, 2), leaf(3))),
    "transposed": (lambda x: (x @ x,), (numbers(3, 3).t().requires_grad_(),)),
    "with gaps": (lambda x: (x.exp(),), (numbers(3, 4)[:, ::2].requires_grad_(),)),
    "channels last": (
        lambda x: (x * x.sum((2, 3), keepdim=True),),
        (numbers(1, 2, 2, 2).to(memory_format=torch.channels_last).requires_grad_(),),
    ),
    "conjugated": (lambda z: (z * z.abs(),), (numbers(3, dtype=COMPLEX).conj().requires_grad_(),)),
    "output is the input": (lambda x: (x,), (leaf(3),)),
    "output is a conjugated view": (lambda z: (z.t().conj(),), (leaf(2, 2, dtype=COMPLEX),)),
    "output is expanded": (lambda x: (x.expand(2, 3),), (leaf(3),)),
}
EACH = pytest.mark.parametrize(("function", "leaves"), FUNCTIONS.values(), ids=FUNCTIONS)


@EACH
@COVERAGES
def test_by_either_mode_and_numerically_it_is_the_jacobian(function, leaves, coverage):
    found, expected = evidence(function, *leaves, coverage=coverage), real_jacobian(function, leaves)
    assert found.size == expected.shape
    for _ in range(2):
        for mode in ("reverse", "forward"):
            own = found.analytical(mode)
            torch.testing.assert_close(own.jacobian, expected, rtol=1e-12, atol=1e-12)
            assert own.holds(1e-12)
        torch.testing.assert_close(found.numerical(STEP).jacobian, expected, rtol=0, atol=1e-7)
        found = found.without_batches()


@pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.jacfwd])
def test_it_is_what_torch_func_says(transform):
    function = lambda x: x.sin() * x.cumsum(0).exp()  # noqa: E731
    x = leaf(4)
    expected = transform(function)(x.detach())
    found = evidence(lambda x: (function(x),), x)
    torch.testing.assert_close(found.analytical("reverse").jacobian, expected)
    torch.testing.assert_close(found.analytical("forward").jacobian, expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_projected_it_is_the_jacobian_times_random_directions(name):
    function, leaves = FUNCTIONS[name]
    found, expected = evidence(function, *leaves, coverage=Coverage("projected")), real_jacobian(function, leaves)
    v, u = directions(found.size[0], 8, "outputs"), directions(found.size[1], 8, "inputs")
    for _ in range(2):
        reverse, forward = (found.analytical(mode) for mode in ("reverse", "forward"))
        torch.testing.assert_close(reverse.jacobian, v @ expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(forward.jacobian, expected @ u.T, rtol=1e-12, atol=1e-12)
        numerical = found.numerical(STEP).jacobian
        torch.testing.assert_close(numerical, expected @ u.T, rtol=0, atol=1e-7)
        assert reverse.holds(1e-12)
        assert forward.holds(1e-12)
        found = found.without_batches()


def test_ordinary_calls_are_products_with_a_random_vector():
    function, leaves = FUNCTIONS["several inputs and outputs"]
    found, jacobian = evidence(function, *leaves), real_jacobian(function, leaves)
    torch.testing.assert_close(found.product("reverse"), jacobian.T @ probe(found.size[0]))
    torch.testing.assert_close(found.product("forward"), jacobian @ probe(found.size[1]))


def test_the_rounding_unit_is_that_of_the_coarsest_leaf():
    assert evidence(lambda x, y: (x + y,), leaf(1), leaf(1, dtype=torch.float32)).unit == torch.finfo(torch.float32).eps
    assert evidence(lambda z: (z,), leaf(1, dtype=COMPLEX)).unit == torch.finfo(REAL).eps


@pytest.mark.parametrize(("coverage", "whole"), [
    (Coverage(), False), (Coverage("full"), True), (Coverage("projected"), False), (Coverage(largest=600), True),
])  # fmt: skip
def test_the_amount_says_whether_all_of_it_is_computed(coverage, whole):
    found = evidence(lambda x: (x.sum(),), leaf(600), coverage=coverage)
    assert (found.projections is None) is whole


def test_small_jacobians_are_whole_unless_projections_are_wished_for():
    assert evidence(lambda x: (x,), leaf(3)).projections is None
    assert evidence(lambda x: (x,), leaf(3), coverage=Coverage("projected", projections=5)).projections == 5


# batches


class Watched(torch.autograd.Function):
    """The identity in all modes, whose batching rule takes down how many rows there are."""

    sizes: list[int] = []  # noqa: RUF012 - emptied by each test

    @staticmethod
    def forward(x):
        return x * 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, v):
        return Watched.apply(v)

    @staticmethod
    def jvp(ctx, t):
        return Watched.apply(t)

    @staticmethod
    def vmap(info, in_dims, x):
        Watched.sizes.append(info.batch_size)
        return Watched.apply(x), in_dims[0]


def sizes_of(coverage, ask):
    found = evidence(lambda x: (Watched.apply(x),), leaf(12), coverage=coverage)
    Watched.sizes.clear()
    ask(found)
    return list(Watched.sizes)


ASKED = pytest.mark.parametrize(
    ("ask", "rows"),
    [
        (lambda found: found.numerical(STEP), [25]),
        (lambda found: found.analytical("reverse"), [12]),
        (lambda found: found.analytical("forward"), [12]),
        (lambda found: (found.numerical(STEP), found.analytical("reverse"), found.analytical("forward")), [25, 12]),
    ],
    ids=["numerical", "reverse", "forward", "all"],
)


@ASKED
def test_differences_make_one_batch_and_each_mode_another(ask, rows):
    assert list(dict.fromkeys(sizes_of(Coverage(), ask))) == rows


@ASKED
def test_a_budget_too_small_for_anything_gives_rows_one_at_a_time(ask, rows):
    sizes = sizes_of(ONE_AT_A_TIME, ask)
    assert set(sizes) == {1}
    assert len(sizes) >= sum(rows)


@ASKED
def test_no_batch_is_larger_than_the_budget(ask, rows):
    coverage = Coverage(memory=5 * 8 * 16 * 24)  # five points of 12 inputs and 12 outputs
    assert max(sizes_of(coverage, ask)) == 5


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_many_directions_at_one_point_keep_to_the_budget(mode):
    sizes = sizes_of(ONE_AT_A_TIME, lambda found: found.vmapped(mode, torch.eye(13, 12, dtype=REAL)))
    assert set(sizes) == {1}
    assert len(sizes) >= 13
    assert set(sizes_of(Coverage(), lambda found: found.vmapped(mode, torch.eye(13, 12, dtype=REAL)))) == {13}


@pytest.mark.parametrize(("coverage", "most"), [(Coverage(), 6), (ONE_AT_A_TIME, 1)], ids=["all", "one"])
def test_forward_over_forward_keeps_to_the_budget(coverage, most):
    function = pushforward(Primal(lambda x: (Watched.apply(x * x),), (0,)))
    found = Point(function, (leaf(3), leaf(3, seed=1)), coverage=coverage)
    assert found.size == (3, 6)
    Watched.sizes.clear()
    assert found.analytical("forward").batched
    assert max(Watched.sizes) == most


def test_projections_are_fewer_rows():
    assert set(sizes_of(Coverage("projected"), lambda found: found.numerical(STEP))) == {2 * 8 + 1}
    assert set(sizes_of(Coverage("projected"), lambda found: found.analytical("reverse"))) == {8}


class RefusesForward(Square):
    """x^2, whose forward mode takes down that it was asked for, and fails."""

    asked = 0

    @staticmethod
    def jvp(ctx, t):
        RefusesForward.asked += 1
        raise RuntimeError("no forward mode")


def refuses_forward(x):
    return (RefusesForward.apply(x),)


def test_a_mode_that_nobody_asks_for_is_not_taken():
    RefusesForward.asked = 0
    found = evidence(refuses_forward, leaf(4))
    assert found.analytical("reverse").batched
    found.numerical(STEP)
    assert RefusesForward.asked == 0
    with pytest.raises(RuntimeError, match="no forward mode"):
        found.analytical("forward")


# once


def test_asking_again_costs_no_call_of_the_function():
    function = Counted(lambda x: (x.sin() * x.sum(),))
    found = Point(Primal(function, (0,)), (leaf(4),))

    def ask():
        for mode in ("reverse", "forward"):
            found.analytical(mode)
        found.numerical(STEP)
        found.numerical(2 * STEP)
        return found.value, found.size, found.product("reverse"), found.product("forward"), function.calls

    first, again = ask(), ask()
    assert first[-1] == again[-1]
    assert all(one is other for one, other in zip(first[:-1], again[:-1], strict=True))


def test_all_evidence_needs_two_batched_calls_and_a_few_ordinary_ones():
    function = Counted(lambda x: (x.sin(),))
    found = Point(Primal(function, (0,)), (leaf(40),))
    found.analytical("reverse")
    assert function.calls == 2  # the outputs, whose graph has an ordinary backward pass, and a graph for the batch
    found.analytical("forward")
    assert function.calls == 4  # an ordinary call in forward mode, and a batch of them
    found.numerical(STEP)
    assert function.calls == 5
    looped = found.without_batches()
    looped.analytical("reverse")
    assert function.calls == 6  # a graph for all rows
    assert looped.without_batches() is looped
    assert found.without_batches() is looped
    assert found.analytical("reverse").batched
    assert not looped.analytical("reverse").batched


def test_an_empty_jacobian_needs_no_batch():
    function = Counted(lambda x: (x.sin(), x.sum()))
    found = Point(Primal(function, (0, 1)), (leaf(0, 2),))
    assert found.analytical("reverse").jacobian.shape == (1, 0)
    assert not found.analytical("reverse").batched
    assert found.numerical(STEP).jacobian.shape == (1, 0)


def test_another_step_is_other_evidence():
    found = evidence(lambda x: (x**3,), leaf(3))
    assert found.numerical(1e-2) is not found.numerical(1e-3)
    assert found.numerical(1e-2) is found.numerical(1e-2)


# captured tensors


@MODES
def test_where_a_function_writes_to_captured_tensors_the_graph_is_made_again(mode):
    scratch = torch.zeros(3, dtype=REAL)

    def on_scratch(x):
        scratch.copy_(x.detach())
        return (x * scratch.clone() * scratch,)

    x = leaf(3)
    expected = torch.diag(x.detach() ** 2)
    found = Point(Primal(on_scratch, (0,)), (x,))
    for _ in range(2):
        torch.testing.assert_close(found.analytical(mode).jacobian, expected)
        found = found.without_batches()
        on_scratch(x)  # somebody else's call, which spoils what the graph has saved
        torch.testing.assert_close(found.product("reverse", torch.ones(3, dtype=REAL)), x.detach() ** 2)


def test_errors_of_a_graph_just_made_are_passed_on_at_once():
    function = Counted(lambda x: (NoBackward.apply(x),))
    with pytest.raises(RuntimeError, match="no backward pass"):
        Point(Primal(function, (0,)), (leaf(3),)).product("reverse", torch.ones(3, dtype=REAL))
    assert function.calls <= 2


class NoBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, v):
        raise RuntimeError("no backward pass")


# batches that cannot be had, or are wrong


@pytest.mark.parametrize(
    ("function", "mode"), [(not_batchable, "reverse"), (not_batchable_forward, "forward")], ids=["reverse", "forward"]
)
@pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
def test_what_cannot_be_batched_is_had_one_by_one(function, mode, dtype):
    x = leaf(4, dtype=dtype)
    found = evidence(lambda x: (function(x),), x)
    torch.testing.assert_close(found.analytical(mode).jacobian, real_jacobian(lambda x: (x * x,), [x]))
    assert not found.analytical(mode).batched


def data_dependent(x):
    return x**3 if bool((x.real > -9).all()) else x


@MODES
@pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
def test_where_the_point_can_be_no_batch_its_directions_can(mode, dtype):
    function = Counted(lambda x: (data_dependent(x),))
    found = Point(Primal(function, (0,)), (leaf(9, dtype=dtype),))
    jacobian = found.analytical(mode)
    assert jacobian.batched
    assert function.calls <= 3  # outputs, an ordinary call, and one for the batch
    torch.testing.assert_close(jacobian.jacobian, found.without_batches().analytical(mode).jacobian)
    torch.testing.assert_close(jacobian.jacobian, real_jacobian(lambda x: (x**3,), found.leaves))


@MODES
@pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
def test_so_can_those_of_its_pullback(mode, dtype):
    x, v = leaf(4, dtype=dtype), leaf(4, dtype=dtype, seed=1)
    found = Point(Pullback(Primal(lambda x: (data_dependent(x),), (0,)), 1), (x, v))
    expected = real_jacobian(lambda x, v: (v * (3 * x**2).conj(),), (x, v))
    assert found.analytical(mode).batched
    torch.testing.assert_close(found.analytical(mode).jacobian, expected)


class TwiceInBatches(torch.autograd.Function):
    """v * x, with a batching rule that is wrong."""

    @staticmethod
    def forward(v, x):
        return v * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, v, x):
        return 2 * v * x, 0


def test_a_wrong_batching_rule_of_the_backward_pass_spoils_no_gradient():
    x = leaf(4)
    function = faulty.function(faulty.square, lambda x, v: TwiceInBatches.apply(v, 2 * x))
    found = evidence(lambda x: (function(x),), x)
    torch.testing.assert_close(found.vmapped("reverse", torch.eye(4, dtype=REAL)), torch.diag(4 * x.detach()))
    assert not found.analytical("reverse").batched
    torch.testing.assert_close(found.analytical("reverse").jacobian, torch.diag(2 * x.detach()))


def test_a_wrong_batching_rule_of_the_function_spoils_no_differences():
    x = leaf(4)
    expected = torch.diag(2 * x.detach())
    found = evidence(lambda x: (wrong_batching_rule(x),), x)
    torch.testing.assert_close(found.numerical(STEP).jacobian, expected, rtol=0, atol=1e-7)
    assert not found.numerical(STEP).batched


def test_an_ordinary_pass_that_says_otherwise_shows():
    class FewAreRight(torch.autograd.Function):
        """Right for cotangents with one element that is not zero."""

        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, v):
            return v * 2 * (v.ne(0).sum() == 1).to(v.dtype)

    found = evidence(lambda x: (FewAreRight.apply(x),), leaf(4)).analytical("reverse")
    torch.testing.assert_close(found.jacobian, 2 * torch.eye(4, dtype=REAL))
    assert not found.holds(1e-6)


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
def test_without_a_graph_all_that_could_have_a_derivative_is_compared(dtype):
    constants = torch.ones(2, dtype=dtype), torch.ones(2, dtype=torch.int64)
    assert Request(lambda x: constants, (leaf(3, dtype=dtype),), DOUBLE).point.function.chosen == (0,)
