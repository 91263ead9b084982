"""What evidence says against claims about derivatives."""

from dataclasses import replace

import pytest
import torch
from operators import awkward, faulty
from operators.asking import Request, check_claim
from operators.closed_forms import leaf

from opcheck.derivatives.tolerances import DOUBLE

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")

REAL, COMPLEX = torch.float64, torch.complex128
BOTH = pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
BESIDE = ("batched_grad", "batched_forward_grad", "undefined_grad", "grad_dtypes", "nondeterminism")
ORDERS = ("rev_over_fwd", "fwd_over_fwd", "scalarized_second_order", "rev_over_rev_over_rev")


def request(function, *leaves, **more):
    return Request(function, leaves or (leaf(3),), DOUBLE, **more)


def cost(asked, claim="backward"):
    before = asked.function.calls
    assert check_claim(claim, asked) is None
    return asked.function.calls - before


class ToDense(torch.autograd.Function):
    """x.to_dense(), with a backward pass that has one of several mistakes."""

    mistake = ""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(ToDense.mistake != "undefined_grad")
        return x.to_dense()

    @staticmethod
    def backward(ctx, v):
        if ToDense.mistake == "batched_grad":
            bool((v != v).any())  # control flow that depends on data
        if ToDense.mistake == "nondeterminism":
            return v + torch.rand_like(v)
        return v + 1 if ToDense.mistake == "undefined_grad" else v


@pytest.mark.filterwarnings("ignore:Sparse.*:UserWarning")
@pytest.mark.parametrize(
    ("mistake", "caught_by"),
    [
        ("", set()),
        ("batched_grad", {"batched_grad"}),
        ("undefined_grad", {"undefined_grad"}),
        ("nondeterminism", {"nondeterminism", "undefined_grad"}),  # no cotangent gives no zero
    ],
)
@pytest.mark.parametrize("dtype", [REAL, torch.complex128], ids=["real", "complex"])
def test_claims_about_gradients_of_sparse_leaves_are_tested_as_they_are(monkeypatch, mistake, caught_by, dtype):
    monkeypatch.setattr(ToDense, "mistake", mistake)
    x = torch.eye(3, dtype=dtype).to_sparse().requires_grad_()
    found = set()
    for check in ("batched_grad", "nondeterminism", "undefined_grad", "grad_dtypes"):
        if check_claim(check, request(lambda x: (ToDense.apply(x),), x, forward_ad=False)):
            found.add(check)
    assert found == caught_by


# further orders


@BOTH
@pytest.mark.parametrize("check", ORDERS)
def test_further_orders_of_right_functions_hold(check, dtype):
    for function in (lambda x: (x.exp() * x,), lambda x: (x.prod(), x.sin())):
        assert check_claim(check, request(function, leaf(3, dtype=dtype))) is None


@BOTH
def test_a_fault_of_the_third_derivative_is_found_at_third_order_alone(dtype):
    asked = request(lambda x: (awkward.cube_wrong_at_third_order(x),), leaf(3, dtype=dtype))
    assert check_claim("backward", asked) is None
    assert check_claim("rev_over_rev", asked) is None
    assert check_claim("rev_over_rev_over_rev", asked).kind == "wrong"


MIXES = ["fwd_over_rev_over_rev", "rev_over_rev_over_fwd", "fwd_over_fwd_over_fwd", "fwd_over_rev_over_fwd",
         "rev_over_fwd_over_fwd"]  # fmt: skip


@BOTH
@pytest.mark.parametrize(
    "check",
    [*MIXES, "rev_over_fwd_over_rev", "fwd_over_fwd_over_rev"],
)
def test_third_orders_in_any_mix_of_modes_hold(check, dtype):
    assert check_claim(check, request(lambda x: (x**4,), leaf(2, dtype=dtype))) is None


# claims beside the Jacobian


@BOTH
@pytest.mark.parametrize("check", BESIDE)
def test_nothing_is_to_be_said_against_right_functions(check, dtype):
    x, y = leaf(2, 2, dtype=dtype), leaf(2, dtype=dtype, seed=1)
    for function, leaves in (
        (lambda x: (x.sin(),), (x,)),
        (lambda x, y: (x * y, x.sum()), (x, y)),
        (lambda x, y: (x * 2,), (x, y)),
        (lambda x: (x.reshape(-1)[:0],), (x,)),
        (lambda x: (x.t().conj(),), (x,)),
    ):
        assert check_claim(check, request(function, *leaves)) is None


FAULTS = {
    "batched_grad": (faulty.not_batchable, "refused", "While computing batched gradients"),
    "batched_forward_grad": (faulty.not_batchable_forward, "refused", "While computing batched gradients"),
    "undefined_grad": (faulty.crashes_on_undefined_cotangent, "refused", "undefined"),
    "nondeterminism": (faulty.nondeterministic, "wrong", "not reentrant"),
}


@BOTH
@pytest.mark.parametrize("check", FAULTS)
def test_each_fault_is_found_by_its_check_alone(check, dtype):
    function, kind, text = FAULTS[check]
    asked = request(lambda x: (function(x),), leaf(4, dtype=dtype), forward_ad=False)
    found = check_claim(check, asked)
    assert found.kind == kind
    assert text in found.text
    # Random operations are refused by vmap, too.
    either = {"batched_forward_grad"} | ({"batched_grad"} if check == "nondeterminism" else set())
    for other in set(BESIDE) - {check} - either:
        assert check_claim(other, asked) is None


@BOTH
def test_a_backward_pass_that_uses_up_what_forward_saved_is_found_by_the_second(dtype):
    class UsedUp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.factors = [2.0]
            return 2 * x

        @staticmethod
        def backward(ctx, v):
            return ctx.factors.pop() * v

    found = check_claim("nondeterminism", request(lambda x: (UsedUp.apply(x),), leaf(3, dtype=dtype)))
    assert found.text.startswith("another backward pass on the same graph raised IndexError: pop from empty list")
    assert isinstance(found.cause, IndexError)


def test_an_undefined_cotangent_beside_a_defined_one_must_be_a_zero():
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, v, w):
            if v is None and w is None:
                return None
            return torch.ones(3, dtype=REAL) if w is None else 3 * w if v is None else 2 * v + 3 * w

    asked = request(lambda x: Both.apply(x))
    assert check_claim("backward", asked) is None
    assert "the cotangent of output 1 is undefined" in check_claim("undefined_grad", asked).text


@BOTH
def test_a_gradient_that_depends_on_the_memory_of_the_cotangent_is_found(dtype):
    asked = request(lambda x: (faulty.wrong_for_noncontiguous_cotangents(x),), leaf(2, 3, dtype=dtype))
    assert "depends on the memory of the cotangent" in check_claim("backward", asked).text


class TwiceSparse(torch.autograd.Function):
    """The identity, whose batching rule doubles rows that are zeros mostly."""

    @staticmethod
    def forward(v):
        return v * 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, v):
        few = (v != 0).sum(1, keepdim=True) < 2
        return torch.where(few, 2 * v, v), 0


def test_a_vmapped_backward_pass_that_is_wrong_for_unit_vectors_alone_is_found_by_its_check_alone():
    function = faulty.function(faulty.square, lambda x, v: TwiceSparse.apply(v) * 2 * x)
    asked = request(lambda x: (function(x),), leaf(4))
    found = check_claim("batched_grad", asked)
    assert "the vmapped backward pass is not that of the loop" in found.text
    assert check_claim("backward", asked) is None


def test_a_difference_that_is_allowed_between_two_passes_is_none():
    asked = request(lambda x: (faulty.nondeterministic(x),))
    numbers = DOUBLE.__class__(1e-6, 1e-5, 1e-3, nondeterminism=1e-7)
    assert check_claim("nondeterminism", replace(asked, numbers=numbers)) is None


def test_infinities_that_come_again_are_the_same():
    function = faulty.function(faulty.square, lambda x, v: v * float("inf"))
    assert check_claim("nondeterminism", request(lambda x: (function(x),))) is None


def test_a_gradient_of_another_layout_is_found():
    function = faulty.function(faulty.square, lambda x, v: (2 * x * v).to_sparse())
    found = check_claim("grad_dtypes", request(lambda x: (function(x),)))
    first, hint = found.text.splitlines()
    assert first == "the gradient of input 0 has the layout torch.sparse_coo, not torch.strided"
    assert hint.startswith("autograd accepts it")


# of the backward pass


class Scaled(torch.autograd.Function):
    """The cotangent times 2x. Its own backward doubles what does not lie side by side in memory."""

    @staticmethod
    def forward(ctx, x, v):
        ctx.save_for_backward(x, v)
        return 2 * x * v

    @staticmethod
    def backward(ctx, w):
        x, v = ctx.saved_tensors
        return 2 * v * w if v.is_contiguous() else 4 * v * w, 2 * x * w


def test_cotangents_with_gaps_are_tested_at_second_order_where_a_request_has_both():
    function = faulty.function(faulty.square, lambda x, v: Scaled.apply(x, v))
    asked = request(lambda x: (function(x),), leaf(2, 3), forward_ad=False)
    assert check_claim("rev_over_rev", replace(asked, non_contiguous=(False,))) is None
    for both in ((False, True), (True, False), (True,)):
        assert check_claim("rev_over_rev", replace(asked, non_contiguous=both)).kind == "wrong"


class Demanding(torch.autograd.Function):
    """The cotangent times 2x. Its own backward does not reckon with undefined cotangents."""

    @staticmethod
    def forward(ctx, x, v):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, v)
        return 2 * x * v

    @staticmethod
    def backward(ctx, w):
        x, v = ctx.saved_tensors
        return 2 * v * (w + 0), 2 * x * w


def test_undefined_cotangents_of_the_backward_pass_are_tested_where_they_are_claimed():
    function = faulty.function(faulty.square, lambda x, v: Demanding.apply(x, v))
    asked = request(lambda x: (function(x),), forward_ad=False)
    assert check_claim("rev_over_rev", asked).kind == "refused"
    assert check_claim("rev_over_rev", replace(asked, undefined_grad=False)) is None


def test_cotangents_that_are_given_are_no_tangents():
    asked = request(lambda x: (x.sin().sum(),), grad_outputs=(torch.ones((), dtype=REAL),))
    assert check_claim("rev_over_fwd", asked) is None
