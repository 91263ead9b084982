"""Functions that cannot be batched get a full verdict: right ones pass, and each fault that is planted is found."""

from types import FunctionType

import pytest
import torch
from operators import faulty
from operators.asking import Request, check_claim
from operators.closed_forms import leaf

from opcheck.derivatives import point as point_module
from opcheck.derivatives.autodiff import Primal
from opcheck.derivatives.point import Point
from opcheck.derivatives.tolerances import DOUBLE

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")

REAL, COMPLEX = torch.float64, torch.complex128
BOTH = pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])


def batchable(forward, backward, jvp):
    return faulty.function(forward, backward, jvp)


def unbatchable(forward, backward, jvp):
    """An autograd function of the old form, for which vmap has no rule."""

    class Old(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, v):
            return backward(ctx.saved_tensors[0], v)

    Old.jvp = staticmethod(lambda ctx, t: jvp(ctx.saved_tensors[0], t))
    return lambda x: Old.apply(x)


def squaring(make, gradient=2, tangent=2, second=2):
    """x * x; the three numbers are 2 in its gradient, in its tangent, and in the derivatives of the gradient."""
    double = make(lambda x: gradient * x, lambda x, v: second * v, lambda x, t: second * t)
    return make(lambda x: x * x, lambda x, v: v * double(x).conj(), lambda x, t: tangent * x * t)


@pytest.mark.parametrize("method", ["batched", "differences"])
def test_a_mistake_of_opcheck_is_not_taken_for_a_function_that_cannot_be_batched(monkeypatch, method):
    def broken(*_, **__):
        return no_such_name  # noqa: F821

    code = broken.__code__.replace(co_filename=point_module.__file__)
    monkeypatch.setattr(point_module, method, FunctionType(code, {}))
    point = Point(Primal(lambda x: (x * x,), (0,)), (leaf(3),))
    with pytest.raises(NameError):
        point.numerical(1e-6)


class First(torch.autograd.Function):
    """Twice the first number, with a rule for batches that returns twice all numbers."""

    @staticmethod
    def forward(x):
        return 2 * x[:1]

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.like = torch.zeros_like(x)

    @staticmethod
    def backward(ctx, v):
        return torch.cat([2 * v, ctx.like[1:]])

    @staticmethod
    def vmap(info, in_dims, x):
        return 2 * x, 0


@BOTH
def test_a_batch_of_another_shape_is_not_used(dtype):
    assert check_claim("backward", Request(lambda x: (First.apply(x),), (leaf(3, dtype=dtype),), DOUBLE)) is None


def data_dependent(square):
    return lambda x: (square(x) if float(x.detach().abs().sum()) > 0 else x,)


def on_captured_memory(square):
    scratch = {}

    def function(x):
        own = scratch.setdefault(x.dtype, torch.zeros(2, 2, dtype=x.dtype))
        own.copy_(1 + 0 * x.detach())
        return (square(x) * own,)

    return function


def random(square):
    def function(x):
        torch.manual_seed(3)
        return (square(x) * torch.rand(2, 2, dtype=REAL),)

    return function


def contiguous_only(square):
    def function(x):
        if not x.is_contiguous():
            raise RuntimeError("only contiguous input")
        return (square(x),)

    return function


def in_python_numbers(square):
    return lambda x: (square(x) + 0 * sum(map(abs, x.detach().reshape(-1).tolist())),)


AWKWARD = {
    "no batching rule": lambda **wrong: lambda x: (squaring(unbatchable, **wrong)(x),),
    "data-dependent": lambda **wrong: data_dependent(squaring(batchable, **wrong)),
    "in place on captured memory": lambda **wrong: on_captured_memory(squaring(batchable, **wrong)),
    "in python numbers": lambda **wrong: in_python_numbers(squaring(batchable, **wrong)),
    "random": lambda **wrong: random(squaring(batchable, **wrong)),
    "contiguous only": lambda **wrong: contiguous_only(squaring(batchable, **wrong)),
}
CHECKS = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev", "undefined_grad")

WRONG = {
    "right": ({}, set()),
    "gradient": ({"gradient": 2.01, "second": 2.01}, {"backward"}),
    "tangent": ({"tangent": 2.01}, {"forward_ad"}),
    "second order": ({"second": 2.01}, {"rev_over_rev", "fwd_over_rev"}),
}
CASES = [
    pytest.param(make, *wrong, id=f"{name}-{kind}") for name, make in AWKWARD.items() for kind, wrong in WRONG.items()
]


@BOTH
@pytest.mark.parametrize(("make", "wrong", "caught_by"), CASES)
def test_a_right_function_passes_and_a_planted_fault_is_found_by_its_checks_alone(make, wrong, caught_by, dtype):
    request = Request(make(**wrong), (leaf(2, 2, dtype=dtype),), DOUBLE)
    point = request.point
    disagreements = {check: check_claim(check, request, point) for check in CHECKS}
    kinds = {check: disagreement.kind for check, disagreement in disagreements.items() if disagreement is not None}
    assert kinds == dict.fromkeys(caught_by, "wrong")


@BOTH
@pytest.mark.parametrize(("wrong", "caught_by"), WRONG.values(), ids=WRONG)
def test_jacobians_are_judged_where_captured_memory_is_written_to(wrong, caught_by, dtype):
    function = AWKWARD["in place on captured memory"](**wrong)
    request = Request(function, (leaf(2, 2, dtype=dtype),), DOUBLE, undefined_grad=False)
    assert {check for check in CHECKS[:4] if check_claim(check, request)} == caught_by


@BOTH
@pytest.mark.parametrize(
    ("name", "at_point"),
    [
        ("no batching rule", False),
        ("data-dependent", True),
        ("in place on captured memory", False),
        # Before torch 2.13, a batched tensor gave its numbers in forward mode, too.
        ("in python numbers", torch.__version__ >= "2.13"),
    ],
)
def test_these_really_cannot_be_batched_or_at_one_point_only(name, at_point, dtype):
    evidence = Point(Primal(AWKWARD[name](), (0,)), (leaf(2, 2, dtype=dtype),))
    with pytest.raises(RuntimeError):
        evidence.function.rows(torch.stack([evidence.leaves[0]] * 2))
    assert not evidence.numerical(1e-6).batched
    assert evidence.analytical("forward").batched is at_point
