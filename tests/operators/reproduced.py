"""Operators that are wrong as long as `WRONG` is true, for scripts that reproduce what is wrong with them."""

from __future__ import annotations

import torch
from torch.autograd import Function

WRONG = True

LAST = [torch.zeros(())]


def _operator(forward, backward, jvp=None):
    """Return an operator of an autograd.Function with a backward pass and a jvp; each gets ctx first."""

    class Own(Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)
            return forward(*inputs)

    Own.backward = staticmethod(lambda ctx, grad: backward(grad, *ctx.saved_tensors))
    if jvp is not None:
        Own.jvp = staticmethod(lambda ctx, *tangents: jvp(*ctx.saved_tensors, *tangents))
    return lambda *inputs: Own.apply(*inputs)


def _square(backward, jvp=None):
    return _operator(lambda x: x * x, lambda grad, x: backward(grad, 2 * x.conj(), x), jvp)


twice = _square(lambda grad, slope, x: grad * slope * (2 if WRONG else 1))
conjugated = _square(lambda grad, slope, x: grad * (slope.conj() if WRONG else slope))
broadcast = _operator(
    lambda x, w: x * w, lambda grad, x, w: (grad * w.conj(), (grad * x.conj()).sum(0) / (len(x) if WRONG else 1))
)
pushed_wrong = _square(lambda grad, slope, x: grad * slope, lambda x, t: (3 if WRONG else 2) * x * t)
once_right = _square(lambda grad, slope, x: grad * (slope.detach() if WRONG else slope), lambda x, t: 2 * x * t)
clipped = _square(lambda grad, slope, x: grad.clamp(-1, 1) * slope if WRONG else grad * slope)
reinterpreted = _square(
    lambda grad, slope, x: torch.as_strided(grad, grad.shape, (grad.shape[-1], 1)) * slope if WRONG else grad * slope
)
_doubled = _operator(lambda x: 2 * x, lambda grad, x: 2 * grad, lambda x, t: (3 if WRONG else 2) * t)
pushed_again = _square(lambda grad, slope, x: grad * _doubled(x.conj()), lambda x, t: 2 * x * t)
strided = _square(lambda grad, slope, x: grad * slope * (2 if WRONG and not grad.is_contiguous() else 1))
random = _square(lambda grad, slope, x: grad * slope + (1e-3 * torch.rand_like(x) if WRONG else 0))
batched_wrong = _square(
    lambda grad, slope, x: grad * slope * (2 if WRONG and torch._C._functorch.is_batchedtensor(grad) else 1)
)


def _scaled_in_place(grad, slope, x):
    if WRONG:
        grad.mul_(2)
        return grad * slope / 2
    return grad * slope


impure = _square(_scaled_in_place)


def writes(x):
    y = x * x
    if WRONG:
        x.data.add_(1.0)
    return y


def depends_on_grad_mode(x):
    return x * x if torch.is_grad_enabled() or not WRONG else x * x + 1


def casts(x):
    with torch.autocast("cpu", enabled=WRONG and torch.is_autocast_enabled("cpu"), dtype=torch.bfloat16):
        return (x.to(torch.bfloat16).to(x.dtype) if WRONG and torch.is_autocast_enabled("cpu") else x) * x


class _Remembers(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        LAST[0] = x.detach()
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * (LAST[0] if WRONG else x)


def remembers(x):
    return _Remembers.apply(x)


class _Lazy(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        if WRONG and not all(ctx.needs_input_grad):
            return grad * y * 2, grad * x * 2
        return grad * y.conj(), grad * x.conj()


def lazy(x, y):
    return _Lazy.apply(x, y)


def cut(x):
    return x * x, (x.detach() if WRONG else x) * 3


def cut_with_a_name(x):
    return {"kept": x * x, "cut": (x.detach() if WRONG else x) * 3}


class _Batched(Function):
    generate_vmap_rule = False

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 * ctx.saved_tensors[0].conj()

    @staticmethod
    def vmap(info, in_dims, x):
        return x * x * (2 if WRONG else 1), in_dims[0]


def batched(x):
    return _Batched.apply(x)


class _BatchedByKernel(_Batched):
    @staticmethod
    def vmap(info, in_dims, x):
        x = x.detach() if WRONG else x
        return x * x, in_dims[0]


def batched_by_kernel(x):
    return _BatchedByKernel.apply(x)


class _Raises(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 * ctx.saved_tensors[1 if WRONG else 0].conj()


def raises(x):
    return _Raises.apply(x)


def raises_in_inference(x):
    if WRONG and torch.is_inference_mode_enabled():
        raise IndexError("tuple index out of range")
    return x * x


class _RaisesOfTransposed(_Raises):
    @staticmethod
    def backward(ctx, grad):
        if WRONG and grad.stride() == (1, 2):
            raise IndexError("tuple index out of range")
        return grad * 2 * ctx.saved_tensors[0].conj()


def raises_of_transposed(x):
    return _RaisesOfTransposed.apply(x)


class Scaled(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, x):
        return broadcast(x, self.weight)


def square_(x):
    return x.copy_(twice(x.clone()))


def squares_into(x, y):
    """Write to both, and return a third."""
    x.copy_(twice(x.clone()))
    y.copy_(x + y)
    return x * y


def named(x):
    return {"loss": twice(x).sum(), "kept": x + 1}


raises_of_a_batch = _square(lambda grad, slope, x: grad * slope if not WRONG or grad.abs().sum() >= 0 else grad)
tail = _square(lambda grad, slope, x: grad * slope * (2 if WRONG and x.numel() > 8 else 1))
pushed_once = _square(lambda grad, slope, x: grad * slope, lambda x, t: 2 * (x.detach() if WRONG else x) * t)


class _Aliased(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        if WRONG and x.data_ptr() == y.data_ptr():
            return grad * y.conj(), None
        return grad * y.conj(), grad * x.conj()


def aliased(x, y):
    return _Aliased.apply(x, y)


class _Drawn(torch.autograd.Function):
    """Drops half of the elements. Backward draws them again from the seed, as if nothing had been drawn before."""

    @staticmethod
    def forward(ctx, x):
        ctx.seed, ctx.state = torch.initial_seed(), torch.get_rng_state()
        return x * (torch.rand(x.shape) < 0.5)

    @staticmethod
    def backward(ctx, v):
        generator = torch.Generator().manual_seed(ctx.seed)
        if not WRONG:
            generator.set_state(ctx.state)
        return v * (torch.rand(v.shape, generator=generator) < 0.5)


def drawn_again(x):
    return _Drawn.apply(x)


def noisy(x):
    return twice(x) * torch.rand(x.shape, dtype=torch.float64)


WRONG_IN = (
    ("aliased", "aliasing"), ("batched", "vmap"), ("batched_by_kernel", "vmap"), ("batched_wrong", "batched_grad"),
    ("broadcast", "backward"),
    ("casts", "context"), ("clipped", "linearity"), ("conjugated", "backward"), ("cut", "detached"),
    ("cut_with_a_name", "detached"), ("drawn_again", "backward"),
    ("depends_on_grad_mode", "context"), ("impure", "purity"), ("lazy", "needs_input_grad"),
    ("named", "backward"), ("raises_of_a_batch", "batched_grad"), ("noisy", "backward"),
    ("pushed_again", "fwd_over_rev"), ("once_right", "rev_over_rev"),
    ("pushed_once", "rev_over_fwd"), ("pushed_wrong", "forward_ad"), ("raises", "backward"),
    ("raises_in_inference", "context"), ("raises_of_transposed", "linearity"), ("random", "nondeterminism"),
    ("reinterpreted", "linearity"), ("remembers", "context"), ("Scaled", "backward"), ("square_", "backward"),
    ("squares_into", "backward"), ("strided", "backward"), ("tail", "derived"), ("twice", "backward"),
    ("writes", "purity"),
)  # fmt: skip
"""Each with a check that objects to it."""

RAISED = {
    **dict.fromkeys(("raises", "raises_in_inference", "raises_of_transposed"), "IndexError: tuple index out of range"),
    "raises_of_a_batch": "RuntimeError: vmap: It looks like you're attempting",
}
"""What those raise that do not merely give wrong numbers."""

INPUTS = {"broadcast": "{ shape = [2, 3] }, { shape = [3] }", "lazy": "{ shape = [2, 3] }, { shape = [2, 3] }"}
INPUTS["aliased"] = INPUTS["squares_into"] = INPUTS["lazy"]
"""What is passed to those that do not take one matrix."""

KEYS = {
    "Scaled": "module = { args = [3] }",
    "square_": "inplace = true",
    "squares_into": "inplace = [0, 1]",
    "noisy": "reseed = true",
    "drawn_again": "reseed = true",
}
"""What their specs have besides."""

REAL = ("batched_wrong", "casts", "clipped", "remembers")
COMPLEX = ("conjugated",)
"""Those that are wrong in real and in complex numbers only."""
