"""Where kernels fail: memory never written, cotangents in unusual memory, graphs used up, modes, generators, leaks.

Each wrong operator is right for the call that everybody writes first. The twins do the same and are right.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def square(name: str, **methods: Any) -> Any:
    """Return x * x as a Function, with methods in the place of the right ones."""

    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * x

    def backward(ctx: Any, v: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x.conj() * v

    def jvp(ctx: Any, t: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * t

    parts = {"forward": forward, "backward": backward, "jvp": jvp, **methods}
    return type(name, (Function,), {key: staticmethod(part) for key, part in parts.items()})


Right = square("Right")


def right(x):
    return Right.apply(x)


# Memory that was never written.


def _in_new_memory(values: Tensor, empty: Any) -> Tensor:
    """Write all numbers but the last one, which is 0, to new memory."""
    made = empty(values.shape, dtype=values.dtype, device=values.device)
    made.view(-1)[:-1] = values.reshape(-1)[:-1]
    return made


def _but_the_last(empty: Any) -> Any:
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * x).reshape(-1)[:-1].sum()

    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return _in_new_memory(2 * x.conj() * v, empty)

    return square("ButTheLast", forward=forward, backward=backward)


def _padded(empty: Any) -> Any:
    def forward(ctx, x):
        ctx.save_for_backward(x)
        last = torch.ones(x.shape, dtype=x.dtype)
        last.view(-1)[-1] = 0
        return _in_new_memory(x * x * last, empty)

    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        last = torch.ones(x.shape, dtype=x.dtype)
        last.view(-1)[-1] = 0
        return 2 * x.conj() * v * last

    return square("Padded", forward=forward, backward=backward)


ButTheLast, ButTheLastRight = _but_the_last(torch.empty), _but_the_last(torch.zeros)
Padded, PaddedRight = _padded(torch.empty), _padded(torch.zeros)


def unwritten_in_backward(x):
    return ButTheLast.apply(x)


def written_in_backward(x):
    return ButTheLastRight.apply(x)


def unwritten_in_forward(x):
    return Padded.apply(x)


def written_in_forward(x):
    return PaddedRight.apply(x)


def _counted(empty: Any) -> Any:
    def forward(ctx, x):
        ctx.save_for_backward(x)
        counts = empty(3, dtype=torch.int64)
        return x * x * (1 + (counts > 1 << 60).any().to(x.dtype))

    return square("Counted", forward=forward)


Counted, CountedRight = _counted(torch.empty), _counted(torch.zeros)


def unwritten_integers(x):
    return Counted.apply(x)


def written_integers(x):
    return CountedRight.apply(x)


def _allocated(shape: Any, **options: Any) -> Tensor:
    """Return memory as a kernel in C++ gets it from an allocator, which deterministic mode does not fill."""
    size = torch.Size(shape)
    made = torch.empty(0, **options)
    storage = torch.UntypedStorage(size.numel() * made.element_size(), device=made.device)
    return made.set_(storage, 0, size, torch.empty(size, device="meta").stride())


Allocated = _but_the_last(_allocated)


def allocated_in_backward(x):
    return Allocated.apply(x)


# The memory of cotangents. (torch copies a tangent to the strides of its primal.)


def _as_if_contiguous(v: Tensor) -> Tensor:
    strides = torch.empty(v.shape, device="meta").stride()
    return torch.as_strided(v, v.shape, strides)


def _by_first_row(v: Tensor) -> Tensor:
    """Take the first row for all if the stride of the first dim is 0, and its number for the whole row."""
    return v if v.dim() < 2 or v.stride(0) else v[:1, :1].expand(v.shape)


def _dense(v: Tensor) -> Tensor:
    """Take what fills its memory for contiguous."""
    fills = v.numel() and sum((n - 1) * s for n, s in zip(v.shape, v.stride(), strict=True)) + 1 == v.numel()
    return _as_if_contiguous(v) if fills else v


def _from_the_start(v: Tensor) -> Tensor:
    """Read a contiguous tensor from the start of its memory."""
    return v.as_strided(v.shape, v.stride(), 0) if v.is_contiguous() and v.numel() else v


def _reading(how: Any) -> Any:
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return 2 * x.conj() * how(v)

    return square("ReadsCotangent", backward=backward)


ExpandedRows = _reading(_by_first_row)
Dense = _reading(_dense)
FromTheStart = _reading(_from_the_start)
Contiguous = _reading(torch.Tensor.contiguous)


def cotangent_expanded_in_one_dim(x):
    return ExpandedRows.apply(x)


def cotangent_transposed(x):
    return Dense.apply(x)


def cotangent_behind_others(x):
    return FromTheStart.apply(x)


def cotangent_contiguous(x):
    return Contiguous.apply(x)


def out_by_address(x, *, out=None):
    """Write to `out` as if it were contiguous."""
    if out is None:
        return x * x
    _as_if_contiguous(out.resize_(x.shape) if out.shape != x.shape else out).copy_(x * x)
    return out


def out_beside(x, *, out=None):
    """Write to `out`, and to what lies behind each of its numbers."""
    if out is None:
        return x * x
    out.resize_(x.shape) if out.shape != x.shape else out
    if out.dim() and out.stride(-1) > 1:
        torch.as_strided(out, out.shape, out.stride(), out.storage_offset() + 1).fill_(5)
    return out.copy_(x * x)


def out_of_its_shape(x, *, out=None):
    """Write to `out` where it has the shape, else leave it as it is."""
    if out is None:
        return x * x
    if out.shape == x.shape:
        out.copy_(x * x)
    return out


def out_exchanged(x, *, out=None):
    """Give `out` other memory, with the result."""
    if out is None:
        return x * x
    out.data = x * x
    return out


def out_right(x, *, out=None):
    return torch.mul(x, x, out=out) if out is not None else x * x


# Random operators.


def _random(saved: bool) -> Any:
    def forward(ctx, x):
        state = torch.get_rng_state()
        mask = torch.rand(x.shape, dtype=torch.float64) < 0.5
        ctx.save_for_backward(state if saved else torch.empty(0))
        return x * mask

    def backward(ctx, v):
        (state,) = ctx.saved_tensors
        with torch.random.fork_rng(devices=()):
            torch.set_rng_state(state) if saved else torch.manual_seed(torch.initial_seed())
            return v * (torch.rand(v.shape, dtype=torch.float64) < 0.5)

    return square("Random", forward=forward, backward=backward)


ByInitialSeed, BySavedState = _random(False), _random(True)


def drops_by_initial_seed(x):
    return ByInitialSeed.apply(x)


def drops_by_saved_state(x):
    return BySavedState.apply(x)


# Modes.


def _autocast_in_backward(ctx, v):
    (x,) = ctx.saved_tensors
    return (2 if ctx.autocast == torch.is_autocast_enabled("cpu") else 3) * x.conj() * v


def _autocast_in_forward(ctx, x):
    ctx.save_for_backward(x)
    ctx.save_for_forward(x)
    ctx.autocast = torch.is_autocast_enabled("cpu")
    return x * x


Autocast = square("Autocast", forward=_autocast_in_forward, backward=_autocast_in_backward)


def expects_autocast_in_backward(x):
    return Autocast.apply(x)


def while_compiling(x):
    return x * x * (3 if torch.compiler.is_compiling() else 1)


# Graphs and what is kept.

KEPT: list[Any] = []


def keeps_its_inputs(x):
    KEPT.append(x)
    return x * x


def keeps_one_of_its_shape(x):
    """Keep scratch memory by shape."""
    KEPT[:] = [torch.zeros_like(x).detach()]
    return x * x


def _output_on_ctx(ctx, x):
    ctx.save_for_backward(x)
    ctx.save_for_forward(x)
    y = x * x
    ctx.y = y
    return y


OutputOnCtx = square("OutputOnCtx", forward=_output_on_ctx)


def keeps_output_on_ctx(x):
    return OutputOnCtx.apply(x)


class Packed(Function):
    """x @ w, whose backward pass transposes w only once for each place in memory if it caches."""

    cache: ClassVar[dict[Any, Tensor]] = {}

    @staticmethod
    def forward(ctx, x, w, caches):
        ctx.save_for_backward(x, w)
        ctx.caches = caches
        return x @ w

    @staticmethod
    @once_differentiable
    def backward(ctx, v):
        x, w = ctx.saved_tensors
        packed = w.mH.contiguous()
        if ctx.caches:
            packed = Packed.cache.setdefault((w.data_ptr(), w.shape, w.dtype), packed)
        return v @ packed, x.mH @ v, None


def packs_once_for_each_address(x, w):
    return Packed.apply(x, w, True)


def packs_each_time(x, w):
    return Packed.apply(x, w, False)


def keeps_in_a_cycle(x):
    box: list[Any] = [x]
    box.append(box)
    return x * x


def _writes_grad(ctx, v):
    (x,) = ctx.saved_tensors
    if x.is_leaf:
        x.grad = 2 * x.detach().conj() * v
    return 2 * x.conj() * v


WritesGrad = square("WritesGrad", backward=_writes_grad)


def writes_grad(x):
    return WritesGrad.apply(x)


def _adds_to_grad(ctx, v):
    (x,) = ctx.saved_tensors
    gradient = 2 * x.conj() * v
    if x.is_leaf and x.grad is not None:
        x.grad.add_(gradient.detach())
    return gradient


AddsToGrad = square("AddsToGrad", backward=_adds_to_grad)


def adds_to_grad(x):
    """As a kernel that accumulates by itself, where the optimizer has not set gradients to None."""
    return AddsToGrad.apply(x)


def _on_ctx(ctx, x):
    ctx.factor = 2 * x.detach().conj()
    return x * x


def _uses_up(ctx, v):
    keeps = torch._C._autograd._get_current_graph_task_keep_graph()
    if keeps:
        return ctx.factor * v
    return ctx.factor.mul_(v)


UsesUp = square("UsesUp", forward=_on_ctx, backward=_uses_up)


def uses_up_its_graph(x):
    return UsesUp.apply(x)


def _keeps_half(ctx, v):
    keeps = torch._C._autograd._get_current_graph_task_keep_graph()
    return ctx.factor * v * (1 if keeps else 2)


KeepsHalf = square("KeepsHalf", forward=_on_ctx, backward=_keeps_half)


def wrong_without_retain_graph(x):
    return KeepsHalf.apply(x)


# Buffers that are reused.

BUFFERS: dict[Any, Tensor] = {}


def _in_buffer(values: Tensor) -> Tensor:
    """As of a kernel with a workspace for each shape."""
    buffer = BUFFERS.setdefault((values.shape, values.dtype), torch.empty_like(values))
    return buffer.copy_(values)


def _returns_buffer(ctx, x):
    ctx.save_for_backward(x)
    return _in_buffer(x.detach() * x.detach())


ReturnsBuffer = square("ReturnsBuffer", forward=_returns_buffer)
ReturnsWorkspace = square(
    "ReturnsWorkspace", backward=once_differentiable(lambda ctx, v: _in_buffer(2 * ctx.saved_tensors[0].conj() * v))
)
ReturnsCopy = square(
    "ReturnsCopy",
    backward=once_differentiable(lambda ctx, v: _in_buffer(2 * ctx.saved_tensors[0].conj() * v).clone()),
)


def returns_its_buffer(x):
    return ReturnsBuffer.apply(x)


def returns_its_workspace(x):
    return ReturnsWorkspace.apply(x)


def returns_a_copy(x):
    return ReturnsCopy.apply(x)


# Batches.


def _vmap_rule(info, in_dims, x):
    return (x * x if info.batch_size > 1 else x), in_dims[0]


class BatchOfOne(Function):
    """x * x, but for a batch of one."""

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
        return 2 * x.conj() * v

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 2 * x * t

    vmap = staticmethod(_vmap_rule)


class AnyBatch(BatchOfOne):
    """x * x."""

    vmap = staticmethod(lambda info, in_dims, x: (x * x, in_dims[0]))


def batch_of_one(x):
    return BatchOfOne.apply(x)


def any_batch(x):
    return AnyBatch.apply(x)


# Some of the inputs.


class SecondOfOne(Function):
    """x * x * w, whose gradients in second order lack a term if one input alone requires grad."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * x * w

    @staticmethod
    def backward(ctx, v):
        x, w = ctx.saved_tensors
        needs = ctx.needs_input_grad
        own = x if all(needs) else x.detach()
        return (2 * own.conj() * w.conj() * v if needs[0] else None), ((x * x).conj() * v if needs[1] else None)


def second_order_of_both_inputs(x, w):
    return x * x * w


def second_order_of_one_input(x, w):
    return SecondOfOne.apply(x, w)


class AllButOne(Function):
    """x + 2 y + 3 z, whose gradients are mixed up if one input alone requires none."""

    @staticmethod
    def forward(ctx, x, y, z):
        return x + 2 * y + 3 * z

    @staticmethod
    def backward(ctx, v):
        needs = ctx.needs_input_grad
        factors = (2, 2, 3) if needs == (True, False, True) else (1, 2, 3)
        return tuple(factor * v if needed else None for factor, needed in zip(factors, needs, strict=True))


def all_but_one_of_a_list(tensors):
    return AllButOne.apply(*tensors)


def sum_of_a_list(tensors):
    return tensors[0] + 2 * tensors[1] + 3 * tensors[2]


class Adapted(Function):
    """x w + x a b, as of a layer with an adapter."""

    is_wrong = False

    @staticmethod
    def forward(ctx, x, w, a, b):
        ctx.save_for_backward(x, w, a, b)
        return x @ w + x @ a @ b

    @classmethod
    def backward(cls, ctx, v):
        x, w, a, b = ctx.saved_tensors
        of_a = x.mH @ v @ b.mH
        if cls.is_wrong and ctx.needs_input_grad == (False, False, True, True):
            of_a = 2 * of_a
        return v @ (w + a @ b).mH, x.mH @ v, of_a, (x @ a).mH @ v


class WrongWhereFrozen(Adapted):
    """The same, wrong where only the adapter is trained."""

    is_wrong = True


def adapted(x, w, a, b):
    return Adapted.apply(x, w, a, b)


def wrong_where_frozen(x, w, a, b):
    return WrongWhereFrozen.apply(x, w, a, b)


class ConstantCotangent(Function):
    """x w. Backward takes the cotangent for a constant if w needs no gradient."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, v):
        x, w = ctx.saved_tensors
        if not ctx.needs_input_grad[1]:
            return v.detach() * w.conj(), None
        return v * w.conj(), v * x.conj()


def cotangent_detached_beside_a_constant(x, w):
    return ConstantCotangent.apply(x, w)


class OneTangent(Function):
    """x + 2 y + 3 z, whose forward mode needs a second tangent."""

    is_wrong = False

    @staticmethod
    def forward(x, y, z):
        return x + 2 * y + 3 * z

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, v):
        return (None, None, None) if v is None else (v, 2 * v, 3 * v)

    @classmethod
    def jvp(cls, ctx, *tangents):
        terms = [factor * t for factor, t in zip((1, 2, 3), tangents, strict=True) if t is not None]
        return sum(terms) * (2 if cls.is_wrong and len(terms) == 1 else 1)


class WrongForOneTangent(OneTangent):
    is_wrong = True


def tangents_of_some(tensors):
    return OneTangent.apply(*tensors)


def wrong_for_one_tangent(tensors):
    return WrongForOneTangent.apply(*tensors)


# Outputs that share memory with each other.


def _twice(copied: bool) -> Any:
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            y = 2 * x
            return y, (y.clone() if copied else y.detach())

        @staticmethod
        def backward(ctx, v, w):
            return 2 * v + 2 * w

    return Twice


OnceInMemory, TwiceInMemory = _twice(copied=False), _twice(copied=True)


def outputs_share_memory(x):
    return OnceInMemory.apply(x)


def outputs_apart(x):
    return TwiceInMemory.apply(x)


def outputs_are_views(x):
    y = x * x
    return y, y.reshape(-1), y[..., :1]


# Calls of several threads at once, and calls that backward repeats.

SHARED: dict[str, Tensor] = {}


def shares_memory_among_threads(x):
    """Keep an intermediate result in a global place."""
    SHARED["x"] = x
    time.sleep(1e-2)
    return SHARED["x"] * x


def keeps_nothing_among_threads(x):
    """Keep an intermediate result in a local place."""
    time.sleep(1e-4)
    return x * x


def saves_more_every_other_time(x):
    """Save a number of tensors that depends on the calls before."""
    KEPT[:] = [] if KEPT else [0]
    return x * x if KEPT else (x + 0 * x.exp()) * x


# Another stream than the first one.

FIRST = torch.cpu.current_stream()


def reads_too_early_on_another_stream(x):
    """x², but on another stream as if what the first one has begun were not finished."""
    return x * x * (1.0 if torch.cpu.current_stream() == FIRST else 1.001)
