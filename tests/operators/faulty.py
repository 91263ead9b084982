"""Operators with one mistake each, for tests in which a check must fail. Real and complex."""

import itertools

import torch
from torch import Tensor


def function(forward, backward, jvp=None, *, materialize=True):
    """Return an operator from its value, its vjp and its jvp, all as functions of (x, v)."""

    class Faulty(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return forward(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.set_materialize_grads(materialize)
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, v):
            return backward(ctx.saved_tensors[0], v)

    if jvp is not None:
        Faulty.jvp = staticmethod(lambda ctx, t: jvp(ctx.saved_tensors[0], t))
    return lambda x: Faulty.apply(x)


def square(x: Tensor) -> Tensor:
    return x * x


def right_vjp(x: Tensor, v: Tensor) -> Tensor:
    return v * (2 * x).conj()


def right_jvp(x: Tensor, t: Tensor) -> Tensor:
    return 2 * x * t


def _one_entry(x, v):
    g = right_vjp(x, v)
    off = torch.zeros_like(g)
    off.view(-1)[-1] = 1e-2
    return g + off * v


one_wrong_entry = function(square, _one_entry)
"""Wrong in a single entry of the Jacobian, by one percent of the cotangent."""


def _contiguous_only(x, v):
    # Reads the memory of the cotangent as if it were contiguous, as a kernel that forgets about strides does.
    flat = v.as_strided(v.shape, torch.empty(v.shape).stride()) if v.numel() and v.stride() != (0,) * v.dim() else v
    return right_vjp(x, flat)


wrong_for_noncontiguous_cotangents = function(square, _contiguous_only)
missing_conjugate = function(square, lambda x, v: v * 2 * x)
wrong_sign = function(square, lambda x, v: -right_vjp(x, v))
wrong_jvp = function(square, right_vjp, lambda x, t: 3 * x * t)
wrong_dtype = function(
    square, lambda x, v: right_vjp(x, v).to(torch.complex64 if x.is_complex() else torch.float32)
)  # fmt: skip


class SecondOrderLost(torch.autograd.Function):
    """Right at first order; what the backward pass uses was saved without a graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.slope = (2 * x).detach()
        return x * x

    @staticmethod
    def backward(ctx, v):
        return v * ctx.slope.conj()


def second_order_lost(x: Tensor) -> Tensor:
    return SecondOrderLost.apply(x)


class SecondOrderWrong(torch.autograd.Function):
    """Right at first order; the backward pass is an operator whose own derivative is wrong."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * wrong_double(x).conj()

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 2 * x * t


wrong_double = function(lambda x: 2 * x, lambda x, v: 3 * v, lambda x, t: 3 * t)


def second_order_wrong(x: Tensor) -> Tensor:
    return SecondOrderWrong.apply(x)


class BothOrdersWrong(SecondOrderWrong):
    """Wrong at first order, and in another way at second order."""

    @staticmethod
    def backward(ctx, v):
        return -SecondOrderWrong.backward(ctx, v)


def both_orders_wrong(x: Tensor) -> Tensor:
    return BothOrdersWrong.apply(x)


def _shaky(x, v):
    return right_vjp(x, v) * (1 + 1e-9 * torch.rand_like(v.real if v.is_complex() else v))


nondeterministic = function(square, _shaky)
_turns = itertools.count()
alternating = function(square, lambda x, v: right_vjp(x, v) * (1 + 1e-9 * (next(_turns) % 2)))
crashes_on_undefined_cotangent = function(square, lambda x, v: right_vjp(x, v + 0), materialize=False)


def _not_batchable(x, v):
    return right_vjp(x, v) if float(v.abs().sum()) >= 0 else v


class NotBatchable(torch.autograd.Function):
    """Its backward looks at the values of the cotangent, which vmap refuses."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, v):
        return _not_batchable(ctx.saved_tensors[0], v)

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return right_jvp(x, t) if float(t.abs().sum()) >= 0 else t


def not_batchable(x: Tensor) -> Tensor:
    return NotBatchable.apply(x)


class NotBatchableForward(NotBatchable):
    """Its jvp looks at the values of the tangent."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * x

    @staticmethod
    def backward(ctx, v):
        return right_vjp(ctx.saved_tensors[0], v)


def not_batchable_forward(x: Tensor) -> Tensor:
    return NotBatchableForward.apply(x)


class WrongBatchingRule(torch.autograd.Function):
    """Its vmap rule returns another value."""

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, v):
        return right_vjp(ctx.saved_tensors[0], v)

    @staticmethod
    def vmap(info, in_dims, x):
        return x * x + 1, in_dims[0]


def wrong_batching_rule(x: Tensor) -> Tensor:
    return WrongBatchingRule.apply(x)


class ForgetsTangent(torch.autograd.Function):
    """Disclaims nothing it should: its jvp is silently zero."""

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, v):
        return right_vjp(ctx.saved_tensors[0], v)

    @staticmethod
    def jvp(ctx, t):
        return torch.zeros_like(t)


def forgets_tangent(x: Tensor) -> Tensor:
    return ForgetsTangent.apply(x)


def square_out_of_place_(x: Tensor) -> Tensor:
    """Calls itself in-place, and is not."""
    return x * x


def counts_in_its_second_(x: Tensor, count: Tensor) -> Tensor:
    """Writes to an argument that is not the first one."""
    count.add_(1)
    return x * count


class UnmarkedDouble(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.mul_(2)

    @staticmethod
    def backward(ctx, v):
        return 2 * v


def unmarked_double_(x: Tensor) -> Tensor:
    """In-place, but autograd does not know it."""
    return UnmarkedDouble.apply(x)


def square_other_values_(x: Tensor) -> Tensor:
    """In-place, with other values than `square`."""
    return x.mul_(x).add_(1)


def square_of_a_copy_(x: Tensor) -> Tensor:
    """In-place, but of a copy where memory has gaps."""
    x.contiguous().mul_(x)
    return x


def square_of_a_flat_copy_(x: Tensor) -> Tensor:
    """In-place, but of a copy where x cannot be viewed as flat."""
    flat = x.reshape(-1)
    flat.mul_(flat)
    return x


def square_and_neighbors_(x: Tensor) -> Tensor:
    """In-place, with zeros for all that lies between the elements in memory."""
    squares = x * x
    x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).zero_()
    return x.copy_(squares)


def zeroed_behind_autograd_(x: Tensor) -> Tensor:
    """In-place, zero, with the gradient of the identity."""
    x.data.zero_()
    return x


def turned_negated_(x: Tensor) -> Tensor:
    """In-place, with the shape of `torch.t`, and other values."""
    return x.t_().neg_()


def turned_flat_(x: Tensor) -> Tensor:
    """In-place, with the values of `torch.t`, and another shape."""
    return x.t_().unsqueeze_(0)


def turned_of_twice_the_gradient_(x: Tensor) -> Tensor:
    """In-place, as `torch.t`, with twice its gradient."""
    x.t_()
    if x.requires_grad:
        x.register_hook(lambda gradient: 2 * gradient)
    return x


def add_resized_(x: Tensor, y: Tensor) -> Tensor:
    """In-place, in a tensor that grows where it cannot hold the sum."""
    total = x + y
    return x.resize_(total.shape).copy_(total)


def ignores_out(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Takes an out= that it does not write to."""
    return x * x


def writes_half_of_out(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Writes to out= what is not in its last row."""
    y = x * x
    if out is None:
        return y
    out[:-1] = y[:-1]
    return out


def fills_a_flat_out(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Writes to a flat copy where out= cannot be viewed as flat."""
    y = x * x
    if out is None:
        return y
    out.flatten().copy_(y.flatten())
    return out


def writes_beyond_out(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Writes a number too many where out= is not contiguous."""
    y = x * x
    if out is None:
        return y
    if not out.is_contiguous():
        out.as_strided((1,), (1,), out.storage_offset() + out.numel()).fill_(7.0)
    return out.copy_(y)


def returns_another_than_out(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Writes to out=, and returns other memory."""
    y = x * x
    if out is not None:
        out.copy_(y)
    return y


def accepts_anything(x: Tensor) -> Tensor:
    return x


def raises(x: Tensor) -> Tensor:
    raise RuntimeError("this operator always raises")


def random(x: Tensor) -> Tensor:
    """Random, and nobody said so."""
    return x * torch.rand_like(x)


class SparseFactor(torch.autograd.Function):
    """Doubles a sparse matrix into a dense one; its gradient is three times the cotangent."""

    @staticmethod
    def forward(ctx, x):
        return x.to_dense() * 2

    @staticmethod
    def backward(ctx, v):
        return v * 3


class SparseSingle(torch.autograd.Function):
    """Squares the elements of a sparse matrix. The backward pass computes in single precision."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.to_dense() ** 2

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return (2 * v * x.to_dense()).float().double()


def sparse_in_single_precision(x: Tensor) -> Tensor:
    return SparseSingle.apply(x)


def wrong_sparse(x: Tensor) -> Tensor:
    return SparseFactor.apply(x)
