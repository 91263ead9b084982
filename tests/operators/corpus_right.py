"""Functions without mistakes that are awkward to test: in what they do, and in what they do not support."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from operators.corpus_batching import ruled, value_through
from operators.corpus_entries import (
    BESIDE,
    COMPLEX,
    FORWARD,
    NONE,
    ONE,
    REAL,
    SECOND,
    TWO,
    Right,
    Tensors,
    random_leaves,
)
from operators.corpus_formulas import BROADCAST, BROADCAST_LEAVES
from operators.corpus_numbers import SQUARE
from operators.corpus_sparse import CONVERTED, sparse_leaf

VECTOR = random_leaves((3,))
BATCHES = frozenset({"batched_grad"})
NO_JVP = frozenset({"batched_forward_grad"})
"""What torch.func.jvp refuses, and the legacy vmap of gradcheck does not."""


def right(name: str, function: Callable[..., Tensors], leaves=ONE, **fields) -> Right:
    return Right(name=name, function=function, leaves=leaves, **fields)


# Autograd functions of the old form, without a batching rule


class Old(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return 2 * v * x.conj()


class OldWithForwardMode(Old):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * x

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 2 * x * t


class OnceOnly(Old):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return 2 * v * x.conj()


class InNumpy(torch.autograd.Function):
    """Squares, by a library that knows nothing of torch."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().resolve_conj().numpy() ** 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(2 * v.resolve_conj().numpy() * x.detach().resolve_conj().numpy().conj())


SCRATCH = {dtype: torch.empty(2, 2, dtype=dtype) for dtype in (REAL, COMPLEX)}


class OnScratch(OldWithForwardMode):
    """Squares, computed in memory that all calls share."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return torch.mul(x, x, out=SCRATCH[x.dtype]).clone()


def broadcast_left_to_autograd(x: Tensors, v: Tensors) -> Tensors:
    return v[0] * x[1].conj(), v[0] * x[0].conj()  # autograd sums what is too large over the dimensions that it grew


OLD = (
    right("old_form", lambda x: (Old.apply(x),), disclaims=FORWARD),
    right("old_form_with_forward_mode", lambda x: (OldWithForwardMode.apply(x),), either=NO_JVP),
    right("old_form_once_differentiable", lambda x: (OnceOnly.apply(x),), disclaims=FORWARD | SECOND),
    right("in_numpy", lambda x: (InNumpy.apply(x),), disclaims=FORWARD | SECOND | BATCHES),
    right("on_shared_scratch_memory", lambda x: (OnScratch.apply(x),), either=NO_JVP),
)


# Control flow, state, randomness


def depends_on_the_data(x: Tensor) -> Tensors:
    total = x.detach().abs().sum().item()
    return (x * x if total > 0 else x,)


def depends_on_gradients_asked_for(x: Tensor) -> Tensors:
    return (x * x * x if torch.is_grad_enabled() else (x * x) * x.clone(),)


def reseeded(x: Tensor) -> Tensors:
    torch.manual_seed(7)
    return (x * x * torch.rand_like(x),)


def dropped_out(x: Tensor) -> Tensors:
    torch.manual_seed(7)
    return (torch.nn.functional.dropout(x * x, 0.5),)


CALLS = []


def counting(x: Tensor) -> Tensors:
    CALLS.append(x.shape)
    return (x * x,)


MASKS = {}


def masked_by_captured_memory(x: Tensor) -> Tensors:
    mask = MASKS.setdefault(x.shape, torch.empty(x.shape, dtype=REAL))
    mask.copy_(x.detach().abs() > 1)
    return (x * x * mask.clone(),)


RUNNING = torch.zeros(2, dtype=REAL), torch.ones(2, dtype=REAL)


def batch_norm(x: Tensor) -> Tensors:
    return (torch.nn.functional.batch_norm(x, *RUNNING, training=True),)


def checkpointed(x: Tensor) -> Tensors:
    return (checkpoint(lambda x: x.sin() * x, x, use_reentrant=False),)


def in_rows(x: Tensor) -> Tensors:
    return tuple(row * total for row, total in zip(x.unbind(0), x.sum(1), strict=True))


def with_a_hook(x: Tensor) -> Tensors:
    y = x * x
    if y.requires_grad:
        y.register_hook(lambda v: v if v is None else v.clone())
    return (y * x,)


def gradient_inside(x: Tensor) -> Tensors:
    with torch.enable_grad():
        y = x if x.requires_grad else x.view_as(x).requires_grad_()
        return torch.autograd.grad((y * y * y).sum(), y, create_graph=True)


def vmapped_inside(x: Tensor) -> Tensors:
    return (torch.func.vmap(lambda row: row * row.sum())(x),)


def differentiated_inside(x: Tensor) -> Tensors:
    return (torch.func.grad(lambda x: (x * x * x).sum())(x),)


STATE = (
    right("control_flow_that_depends_on_the_data", depends_on_the_data),
    right("control_flow_that_depends_on_grad_mode", depends_on_gradients_asked_for),
    right("reseeded_on_each_call", reseeded),
    right("dropout_reseeded", dropped_out, dtypes=(REAL,)),
    right("counting_its_calls", counting),
    right("masked_by_captured_memory", masked_by_captured_memory, either=NO_JVP),
    right("batch_norm_with_running_statistics", batch_norm, random_leaves((3, 2)), dtypes=(REAL,)),
    # Before torch 2.13, a checkpoint has no forward mode.
    right("checkpointed", checkpointed, either=FORWARD | {"undefined_grad"} if torch.__version__ < "2.13" else NONE),
    right("row_by_row", in_rows),
    right("vmap_inside", vmapped_inside),
    right("func_grad_inside", differentiated_inside, dtypes=(REAL,)),
    right("autograd_inside", gradient_inside, dtypes=(REAL,), either=NO_JVP),
    right("with_a_hook", with_a_hook),
)


# Memory: of leaves, of outputs, in place


def contiguous_only(x: Tensor) -> Tensors:
    if not x.is_contiguous():
        raise ValueError("the input must be contiguous")
    return (x * x,)


def in_place_on_a_clone(x: Tensor) -> Tensors:
    y = x.clone()
    y[0] *= y[1].clone()
    y.mul_(2).add_(x)
    return (y.sin_(),)


def in_place_on_a_view_of_a_clone(x: Tensor) -> Tensors:
    y = x.clone()
    y.view(-1)[1:].mul_(x.reshape(-1)[:-1])
    return (y,)


def filled_row_by_row(x: Tensor) -> Tensors:
    y = torch.zeros_like(x)
    for index, row in enumerate(x):
        y[index] = row * row
    return (y,)


def transposed_leaf(dtype: torch.dtype) -> Tensors:
    (x,) = random_leaves((2, 3))(dtype)
    return (x.detach().t().requires_grad_(),)


def leaf_with_gaps(dtype: torch.dtype) -> Tensors:
    (x,) = random_leaves((2, 4))(dtype)
    return (x.detach()[:, 1::2].requires_grad_(),)


def channels_last_leaf(dtype: torch.dtype) -> Tensors:
    (x,) = random_leaves((1, 2, 2, 2))(dtype)
    return (x.detach().contiguous(memory_format=torch.channels_last).requires_grad_(),)


def conjugated_leaf(dtype: torch.dtype) -> Tensors:
    (x,) = random_leaves((3,))(dtype)
    return (x.detach().conj().requires_grad_(),)


def negated_leaf(dtype: torch.dtype) -> Tensors:
    (x,) = random_leaves((3,))(COMPLEX)
    return (x.detach().conj().imag.requires_grad_(),)


def square(x: Tensor) -> Tensors:
    return (x * x,)


def permuted_square(x: Tensor) -> Tensors:
    return ((x * x).permute(0, 2, 3, 1),)


MEMORY = (
    right("contiguous_input_required", contiguous_only),
    right("output_is_the_input", lambda x: (x,)),
    right("output_is_a_view", lambda x: (x.t(),)),
    right("output_is_a_row", lambda x: (x[0],)),
    right("output_is_expanded", lambda x: (x.expand(3, 2, 2),)),
    right("output_is_conjugated", lambda x: ((x * x).conj(),)),
    right("views_that_overlap", lambda x: (x.unfold(0, 2, 1) * 2,), VECTOR),
    right("used_expanded", lambda x: ((x.expand(3, 2, 2) * x).sum(0),)),
    right("same_output_twice", lambda x: (y := x * x, y)),
    right("in_place_on_a_clone", in_place_on_a_clone),
    right("in_place_on_a_view_of_a_clone", in_place_on_a_view_of_a_clone),
    right("filled_row_by_row", filled_row_by_row),
    right("transposed_leaf", square, transposed_leaf),
    right("leaf_with_gaps", square, leaf_with_gaps),
    right("channels_last_leaf", permuted_square, channels_last_leaf),
    right("conjugated_leaf", square, conjugated_leaf, dtypes=(COMPLEX,)),
    right("negated_leaf", square, negated_leaf, dtypes=(REAL,)),
)


# Outputs and inputs of all kinds


def mixed_leaves(dtype: torch.dtype) -> Tensors:
    return random_leaves((2,))(REAL) + random_leaves((2,))(COMPLEX)


SEVERAL = random_leaves((2,), (), (1, 2))
ALL_FIRST = frozenset({"backward", "forward_ad", *BESIDE})

KINDS = (
    right("unused_input", lambda x, y: (x * x,), TWO),
    right("unused_first_input", lambda x, y: (y * y,), TWO),
    right("integers_beside", lambda x: (x.sum(-1), x.abs().argmax(-1))),
    # Outputs without a derivative, before others that have one, shift the places of outputs in torch's functions.
    right("integers_before", lambda x: (x.abs().argmax(-1), x.sum(-1)), torch_refuses=ALL_FIRST),
    # torch subtracts all outputs from each other, booleans as well.
    right("booleans_beside", lambda x: (x * x, x.abs() > 1), torch_refuses=ALL_FIRST),
    right("constant_beside", lambda x: (x * x, torch.ones(2, dtype=REAL))),
    right("largest_and_its_index", lambda x: tuple(x.max(-1)), dtypes=(REAL,)),
    right("integers_only", lambda x: (x.abs().argsort(-1),), either=SECOND),
    right("constant_only", lambda x: (torch.ones(2, dtype=x.dtype),), either=SECOND),
    right("detached_beside", lambda x: (x * x, (x * x).detach())),
    right("detached_before", lambda x: (x.sum().detach(), x * x), torch_refuses=frozenset({"forward_ad"})),
    right("empty", lambda x: (x * x,), random_leaves((0,))),
    right("empty_with_dimensions", lambda x: (x * x, x.sum(1)), random_leaves((2, 0, 3))),
    right("empty_output", lambda x: (x[2:] * 2,)),
    # At second order, the gradient of the first input is such an output.
    right("empty_input_before", lambda x, y: (torch.cat([x, y * y]),), random_leaves((0,), (2,)), torch_refuses=SECOND),
    right("empty_input_beside", lambda x, y: (torch.cat([x * x, y]),), random_leaves((2,), (0,))),
    right("rank_zero", lambda x: (x * x,), random_leaves(())),
    right("rank_zero_output", lambda x: ((x * x).sum(),)),
    right("many_inputs", lambda *x: (torch.cat([part.reshape(-1) for part in x]) ** 2,), SEVERAL),
    right("broadcast_left_to_autograd", lambda x, y: (x * y, x + y), random_leaves((1, 2), (3, 2))),
    right("absolute_value", lambda x: (x.abs(),)),
    right("angle", lambda x: (x.angle(),), dtypes=(COMPLEX,)),
    right("conjugate", lambda x: (x.conj(), x.conj() * x)),
    right("real_part", lambda x: (x.real,), dtypes=(COMPLEX,)),
    right("imaginary_part", lambda x: (x.imag * 2, x), dtypes=(COMPLEX,)),
    right("complex_of_real", lambda x, y: (torch.complex(x, y),), TWO, dtypes=(REAL,)),
    right("polar_of_real", lambda x, y: (torch.polar(x, y), x * y), TWO, dtypes=(REAL,)),
    right("real_and_complex", lambda x, z: (x * z, z.abs() * x), mixed_leaves, dtypes=(COMPLEX,)),
    right("single_precision_output", lambda x: (x * x, x.detach().to(torch.float32)), dtypes=(REAL,)),
    right("steep", lambda x: (1e4 * x.exp(),)),
    right("flat", lambda x: (1e-9 * x.exp(),)),
    right("inverse", lambda x: (torch.linalg.inv(x + 2 * torch.eye(3, dtype=x.dtype)),), random_leaves((3, 3))),
    # Before torch 2.9, MKL refuses expanded cotangents.
    right("fourier", lambda x: (torch.fft.rfft(x), torch.fft.fft(x)), VECTOR, dtypes=(REAL,),
          either=frozenset({"backward"}) if torch.__version__ < "2.9" else NONE),
)  # fmt: skip


# Batching rules, sparse leaves


def rule(v: Tensor, size: int) -> Tensor:
    return v.clone()


BATCHING = (
    right("batching_rule", value_through(ruled(rule))),
    right("written_out", SQUARE),
    right("left_to_autograd_to_sum", replace(BROADCAST, vjp=broadcast_left_to_autograd), BROADCAST_LEAVES),
)


def dense_of_sparse(layout: str, dtype: torch.dtype, masked: bool) -> Right:
    # The gradient of a complex tensor is made sparse by a function that has no derivative of its own.
    no_second = dtype is COMPLEX and not (masked and layout == "coo")
    return right(
        f"dense_of_{'complex_' if dtype is COMPLEX else ''}{layout}{'_masked' if masked else ''}",
        lambda x: (2 * x.to_dense(masked_grad=masked),),
        sparse_leaf(layout),
        dtypes=(dtype,),
        masked=masked,
        disclaims=FORWARD | BATCHES | (SECOND if no_second else frozenset()),
    )


SPARSE = tuple(dense_of_sparse(*kind) for kind in product(CONVERTED, (REAL, COMPLEX), (False, True)))

RIGHT = (*OLD, *STATE, *MEMORY, *KINDS, *BATCHING, *SPARSE)
