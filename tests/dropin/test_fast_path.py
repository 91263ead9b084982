"""What few calls must not miss: each kind of wrongness, at few elements and at many, real and complex."""

from __future__ import annotations

import pytest
import torch
from operators import faulty
from torch.autograd import Function

import opcheck

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
BOTH = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["real", "complex"])
SIZES = pytest.mark.parametrize("size", [1, 3, 20])
"""One by one, a few, and so many that points and directions are batched."""
FORWARD = {"check_forward_ad": True}


def leaf(*shape, dtype=torch.float64):
    return (torch.rand(shape, dtype=dtype, generator=torch.Generator().manual_seed(1)) + 0.5).requires_grad_()


def made(forward, backward, jvp=None, materialize=True):
    """Return a function of one tensor with a backward pass and a jvp of our own. Both get the input first."""

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)
        ctx.set_materialize_grads(materialize)

    methods = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(setup),
        "backward": staticmethod(lambda ctx, *v: backward(ctx.saved_tensors[0], *v)),
        "jvp": staticmethod(lambda ctx, t: (jvp or (lambda x, t: 2 * x * t))(ctx.saved_tensors[0], t)),
        "generate_vmap_rule": True,
    }
    return type("Made", (Function,), methods).apply


def square(backward, jvp=None, **how):
    return made(lambda x: x * x, backward, jvp, **how)


def slope(x, v):
    return 2 * x.conj() * v


def last_entry(x, v):
    factor = torch.ones_like(x).detach()
    factor.view(-1)[-1] = 1.01
    return factor * slope(x, v)


def two(backward):
    """Return a function with two outputs."""
    return made(lambda x: (x * x, 3 * x), backward)


MISMATCH = "Jacobian mismatch for output 0 with respect to input 0,"
WRONG = {
    "one entry": (square(last_entry), {}, MISMATCH),
    "sign": (square(lambda x, v: -slope(x, v)), {}, MISMATCH),
    "no gradient": (square(lambda x, v: 0 * v), {}, MISMATCH),
    "digits that the tolerance excuses not": (square(lambda x, v: (1 + 3e-3) * slope(x, v)), {}, MISMATCH),
    "not a number": (square(lambda x, v: slope(x, v) * float("nan")), {}, MISMATCH),
    "infinite": (square(lambda x, v: slope(x, v) / 0.0), {}, MISMATCH),
    "not a number for zeros": (
        square(lambda x, v: slope(x, v) + 0 / v.abs().sum()), {}, r"backward not multiplied by grad_output"),
    "added": (square(lambda x, v: slope(x, v) + 1e-6), {"atol": 1e-4}, r"not linear|backward not multiplied"),
    "right for unit vectors": (
        square(lambda x, v: slope(x, v) * torch.where((v.abs().sum() - 1).abs() < 1e-9, 1.0, 1.01)), {}, "not linear"),
    "random": (
        square(lambda x, v: slope(x, v) * (1 + 1e-9 * torch.rand(()).item())), {}, r"^Backward is not reentrant"),
    "undefined refused": (square(lambda x, v: slope(x, v), materialize=False), {},
        r"^the cotangent of output 0 is undefined: backward raised TypeError: unsupported operand"),
    "undefined is something": (
        square(lambda x, v: 1 + x if v is None else slope(x, v), materialize=False), {},
        r"^Expected all input grads to be undefined or zero"),
    "forward mode": (square(slope, lambda x, t: 2.01 * x * t), FORWARD, r"forward mode mismatch"),
    "the second output": (two(lambda x, v, w: slope(x, v) + 2.9 * w), {}, MISMATCH.replace("output 0", "output 1")),
    "together": (
        two(lambda x, v, w: slope(x, v) + 3 * w + 1e-4 * (v * w).sum()), {}, r"^one backward pass for all outputs"),
    "the first is needed": (
        made(lambda x: (x * x, 3 * x), lambda x, v, w: None if v is None else slope(x, v) + (0 if w is None else 3 * w),
             materialize=False), {"check_undefined_grad": False}, MISMATCH.replace("output 0", "output 1")),
    "one undefined": (
        made(lambda x: (x * x, 3 * x), lambda x, v, w: (0 if v is None else slope(x, v)) + (x if w is None else 3 * w),
             materialize=False), {}, r"mismatch|undefined"),
}  # fmt: skip
RIGHT = {
    "square": (square(slope), FORWARD),
    "two outputs": (two(lambda x, v, w: slope(x, v) + 3 * w), {}),
    "random within the tolerance": (
        square(lambda x, v: slope(x, v) * (1 + 1e-9 * torch.rand(()).item())), {"nondet_tol": 1e-6}),
    "undefined not checked": (square(lambda x, v: slope(x, v), materialize=False), {"check_undefined_grad": False}),
    "claims about batches": (
        torch.sin, {**FORWARD, "check_batched_grad": True, "check_batched_forward_grad": True}),
    "views, and an output twice": (lambda x: (x.view(-1), x * 2, x[:1]), FORWARD),
}  # fmt: skip


@BOTH
@SIZES
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_noticed(name, size, dtype):
    function, flags, says = WRONG[name]
    assert opcheck.gradcheck(function, leaf(size, dtype=dtype), raise_exception=False, **flags) is False
    with pytest.raises(opcheck.GradcheckError, match=says):
        opcheck.gradcheck(function, leaf(size, dtype=dtype), **flags)


@BOTH
@SIZES
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes_without_a_warning(name, size, dtype, recwarn):
    function, flags = RIGHT[name]
    assert opcheck.gradcheck(function, leaf(size, dtype=dtype), **flags) is True
    assert not [one for one in recwarn if "torch.jit" not in str(one.message)]


@BOTH
@SIZES
@pytest.mark.parametrize(
    ("function", "right"),
    [
        (torch.exp, True),
        (lambda x: (x * x, x.sum()), True),
        (faulty.second_order_wrong, False),
        (faulty.second_order_lost, False),
        (lambda x: x * x * x.detach(), False),
    ],
    ids=["exp", "two outputs", "wrong", "lost", "first order wrong"],
)
@pytest.mark.parametrize("flags", [{}, {"check_fwd_over_rev": True}, {"check_batched_grad": True}], ids=str)
def test_second_order_is_judged_as_slow_mode_judges_it(function, right, flags, size, dtype):
    for check in (opcheck.gradgradcheck, torch.autograd.gradgradcheck):
        assert check(function, leaf(size, dtype=dtype), raise_exception=False, **flags) is right


@BOTH
@pytest.mark.parametrize("size", [3, 20])
def test_gaps_in_cotangents_are_made_if_asked_for(size, dtype):
    seen = []

    def watched(x):
        y = x * x
        y.register_hook(lambda v: seen.append(v.is_contiguous()))
        return y

    assert opcheck.gradgradcheck(watched, leaf(size, dtype=dtype), gen_non_contig_grad_outputs=True)
    assert not all(seen)
    seen.clear()
    assert opcheck.gradgradcheck(watched, leaf(size, dtype=dtype))
    assert all(seen)
