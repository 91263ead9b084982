"""Operators that are right, and hard to specify: of each kind some, as people write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# -- quantizing with a straight-through gradient ------------------------------------------------------------------


class RoundThrough(torch.autograd.Function):
    """Old style."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, v):
        return v


def round_through(x):
    return RoundThrough.apply(x)


class SignThrough(torch.autograd.Function):
    """Binarize; the gradient is that of hardtanh, as in binarized networks."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * (x.abs() < 1)

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * (x.abs() < 1)


def binarize(x):
    return SignThrough.apply(x)


def fake_quantize(x, scale: float = 0.1, bits: int = 4):
    """As people write it in plain torch."""
    most = 2 ** (bits - 1) - 1
    quantized = torch.clamp(torch.round(x / scale), -most, most) * scale
    return x + (quantized - x).detach()


def nearest_code(x, codes):
    """Vector quantization."""
    index = (x.unsqueeze(-2) - codes).pow(2).sum(-1).argmin(-1)
    quantized = codes[index]
    return x + (quantized - x).detach(), index


class QuantizedLinear(nn.Module):
    """Weights and activations are quantized."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        weight = fake_quantize(self.linear.weight)
        return nn.functional.linear(fake_quantize(x), weight, self.linear.bias)


def identity(x):
    return x.clone()


# -- gradient clipping by design, and reversal --------------------------------------------------------------------


class Reverse(torch.autograd.Function):
    """Old style, with a number."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, v):
        return v.neg() * ctx.weight, None


def reverse(x, weight: float = 1.0):
    return Reverse.apply(x, weight)


def reversed_truly(x, weight: float = 1.0):
    return -weight * x


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.view_as(x)

    @staticmethod
    def backward(ctx, v):
        return v.clamp(-ctx.limit, ctx.limit), None


def refuse_negative(limit):
    if limit < 0:
        raise ValueError(f"limit must not be negative, got {limit}")


def clip_gradient(x, limit: float = 1.0):
    refuse_negative(limit)
    return Clip.apply(x, limit)


def clip_by_norm(x, limit: float = 1.0):
    """By a hook."""
    refuse_negative(limit)
    y = x * 1
    if y.requires_grad:
        y.register_hook(lambda v: None if v is None else v * (limit / v.norm().clamp(min=limit)))
    return y


class ScaleGradient(torch.autograd.Function):
    """As in MuZero."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, v):
        return v * 0.5


def scale_gradient(x):
    return ScaleGradient.apply(x)


def half(x):
    return x * 0.5


# -- stochastic rounding ------------------------------------------------------------------------------------------


class StochasticRound(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.floor(x + torch.rand_like(x))

    @staticmethod
    def backward(ctx, v):
        return v


def stochastic_round(x):
    return StochasticRound.apply(x)


def dithered(x, step: float = 0.25):
    noise = torch.rand_like(x) - 0.5
    return x + (torch.round(x / step + noise) * step - x).detach()


# -- caches by shape ----------------------------------------------------------------------------------------------

_WINDOWS: dict[tuple, Tensor] = {}


def windowed(x):
    """Multiply by a window that is made once for each size."""
    key = x.shape[-1], x.dtype, x.device
    if key not in _WINDOWS:
        _WINDOWS[key] = torch.linspace(0, 1, x.shape[-1], dtype=x.real.dtype, device=x.device).to(x.dtype)
    return x * _WINDOWS[key]


class Rotary(nn.Module):
    """Position embedding; keeps its table, and makes a larger one if needed."""

    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        length = x.shape[-2]
        if self.table is None or self.table.shape[0] < length:
            self.table = torch.arange(length, device=x.device).unsqueeze(-1)
        angle = self.table[:length].to(torch.promote_types(x.dtype, torch.float32))  # bfloat16 has no 257
        return x * angle.cos().to(x) + x.flip(-1) * angle.sin().to(x)


# -- returns its input --------------------------------------------------------------------------------------------


def maybe_scaled(x, scale: float = 1.0):
    """Return x itself where there is nothing to do."""
    return x if scale == 1.0 else x * scale


def dropout_or_not(x, p: float = 0.0, training: bool = True):
    return x if p == 0.0 or not training else nn.functional.dropout(x, p, training)


def flattened(x):
    """A view, or the input itself."""
    return x.reshape(x.shape[0], -1) if x.dim() > 2 else x


class Mark(torch.autograd.Function):
    """Return the input from a Function."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, v):
        return v


def mark(x):
    return Mark.apply(x)


# -- custom layouts -----------------------------------------------------------------------------------------------


class Transposed(torch.autograd.Function):
    """A kernel that writes its output column by column, and its gradient as well."""

    generate_vmap_rule = False

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device).permute(*range(x.dim())[::-1])
        return y.copy_(x * x)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        g = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device).permute(*range(x.dim())[::-1])
        return g.copy_(2 * x.conj() * v)


def transposed_out(x):
    return Transposed.apply(x)


def channels_last_only(x):
    """Needs and returns channels last."""
    y = x.contiguous(memory_format=torch.channels_last)
    return y.sin()


def padded_rows(x):
    """The output is a view into rows of a multiple of 4."""
    width = -(-x.shape[-1] // 4) * 4
    return nn.functional.pad(x.exp(), (0, width - x.shape[-1]))[..., : x.shape[-1]]


# -- ragged lists -------------------------------------------------------------------------------------------------


def total_norm(tensors):
    """Squares would exceed the range of float16, norms do not."""
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(tensor) for tensor in tensors]))


def scaled_each(tensors, scale: float = 2.0):
    """A list in, a list out."""
    return [tensor * scale for tensor in tensors]


def padded(tensors):
    return nn.utils.rnn.pad_sequence(list(tensors), batch_first=True)


class FusedSum(torch.autograd.Function):
    """A Function that takes tensors one by one."""

    @staticmethod
    def forward(ctx, *tensors):
        ctx.shapes = [t.shape for t in tensors]
        return torch.stack([t.sum() for t in tensors])

    @staticmethod
    def backward(ctx, v):
        return tuple(own.expand(shape) for own, shape in zip(v, ctx.shapes, strict=True))


def fused_sum(tensors):
    return FusedSum.apply(*tensors)


# -- optional tensors ---------------------------------------------------------------------------------------------


class Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        y = x if weight is None else x * weight
        y = y + bias if bias is not None else y
        return y.clone() if y is x else y

    @staticmethod
    def backward(ctx, v):
        x, weight = ctx.saved_tensors
        return (
            v if weight is None else v * weight.conj(),
            None if weight is None else (v * x.conj()).reshape(-1, *weight.shape).sum(0),
            v.reshape(-1, v.shape[-1]).sum(0) if ctx.has_bias else None,
        )


def affine(x, weight=None, bias=None):
    return Affine.apply(x, weight, bias)


def attention(q, k, v, mask=None):
    scores = q @ k.mT
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ v


def masked_mean(x, mask=None):
    """A boolean mask, or none."""
    if mask is None:
        return x.mean(-1)
    return (x * mask).sum(-1) / mask.sum(-1).clamp(min=1)


# -- state held in a module ---------------------------------------------------------------------------------------


class RunningMean(nn.Module):
    """Subtract a running mean, which it updates in training."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.steps += 1
                self.mean.lerp_(x.detach().mean(0), 0.1)
        return (x - self.mean) * self.weight


class SpectralLinear(nn.Module):
    """Divide by the largest singular value, estimated by power iteration in training."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.register_buffer("u", nn.functional.normalize(torch.randn(outputs), dim=0))

    def forward(self, x):
        weight = self.weight.detach()
        v = nn.functional.normalize(weight.T @ self.u, dim=0)
        u = nn.functional.normalize(weight @ v, dim=0)
        if self.training:
            self.u.copy_(u)
        sigma = u @ self.weight @ v
        return x @ (self.weight / sigma).T


class WarmedUp(nn.Module):
    """Scale by a factor that grows with the number of calls, counted in a buffer."""

    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return x * self.scale * (self.calls / 10).clamp(max=1)


# -- integer outputs beside floating ones -------------------------------------------------------------------------


class Best(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, index = x.max(-1)
        ctx.save_for_backward(index)
        ctx.mark_non_differentiable(index)
        ctx.size = x.shape[-1]
        return values, index

    @staticmethod
    def backward(ctx, v, _):
        (index,) = ctx.saved_tensors
        return torch.zeros(*v.shape, ctx.size, dtype=v.dtype, device=v.device).scatter(
            -1, index.unsqueeze(-1), v.unsqueeze(-1)
        )


def best(x):
    return Best.apply(x)


def quantized_with_scale(x):
    """Whole numbers and the scale that they are in, computed in single precision at least."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = wide.abs().amax(-1, keepdim=True) / 127
    return torch.round(wide / scale).clamp(-127, 127).to(torch.int8), scale.to(x.dtype)


def routed(x, weight, k: int = 1):
    """As in mixtures of experts: weights, the chosen experts, and how many tokens each has."""
    top, index = (x @ weight).softmax(-1).topk(k, -1)
    return top / top.sum(-1, keepdim=True).detach(), index, torch.bincount(index.flatten(), minlength=weight.shape[-1])


# -- gradients only for a part of an input ------------------------------------------------------------------------


def frozen_prefix(x, count: int = 1):
    """The first rows are constants."""
    return torch.cat([x[:count].detach(), x[count:]]).sin()


def padding_has_no_gradient(index, table, padding: int = 0):
    """An embedding, one row of which is no parameter."""
    rows = torch.arange(len(table)).unsqueeze(-1)
    return torch.where(rows == padding, table.detach(), table)[index]


class Triangle(torch.autograd.Function):
    """Reads and has a gradient for the lower triangle only."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tril() ** 2

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return 2 * v * x.tril().conj()


def triangle(x):
    return Triangle.apply(x)


def stopped_target(x, target):
    """A loss between a prediction and a target that is held constant."""
    return (x - target.detach()).pow(2).mean(-1)


def normalized_by_constant(x):
    """Divide by a norm that is held constant."""
    return x / x.norm(dim=-1, keepdim=True).detach()


# -- dtype of the output chosen by keyword ------------------------------------------------------------------------


def cast(x, dtype=None):
    return (x * 2).to(dtype or x.dtype)


def softmax_as(x, dtype=torch.float32):
    return x.softmax(-1, dtype=dtype)


def summed_as(x, dtype=None):
    return x.sum(-1, dtype=dtype)


def mean_in_single(x):
    return x.to(torch.complex64 if x.is_complex() else torch.float32).mean(-1)


class Cast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dtype, scale):
        ctx.dtype, ctx.scale = x.dtype, scale
        return x.to(dtype)

    @staticmethod
    def backward(ctx, v):
        return v.to(ctx.dtype) * ctx.scale, None, None


def cast_by_hand(x, dtype):
    return Cast.apply(x, dtype, 1)


def wrong_cast(x, dtype):
    """This one is wrong."""
    return Cast.apply(x, dtype, 1.1)


# -- registered ---------------------------------------------------------------------------------------------------


@torch.library.custom_op("awkward_right::round_through", mutates_args=())
def registered_round(x: Tensor, scale: float) -> Tensor:
    return torch.round(x / scale) * scale


@registered_round.register_fake
def _(x, scale):
    return torch.empty_like(x)


registered_round.register_autograd(lambda ctx, v: (v, None))


def registered_identity(x, scale):
    return x.clone()


@torch.library.custom_op("awkward_right::argmax_with_values", mutates_args=())
def argmax_with_values(x: Tensor) -> tuple[Tensor, Tensor]:
    values, index = x.max(-1)
    return values.clone(), index.clone()


@argmax_with_values.register_fake
def _(x):
    return x.new_empty(x.shape[:-1]), x.new_empty(x.shape[:-1], dtype=torch.int64)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(output[1])
    ctx.size = inputs[0].shape[-1]


def _backward(ctx, v, _):
    (index,) = ctx.saved_tensors
    return torch.zeros(*index.shape, ctx.size, dtype=v.dtype, device=v.device).scatter(
        -1, index.unsqueeze(-1), v.unsqueeze(-1)
    )


argmax_with_values.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("awkward_right::optional_bias", mutates_args=())
def optional_bias(x: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is not None and bias.shape != x.shape[-1:]:
        raise ValueError(f"bias must have the shape {[*x.shape[-1:]]}, got {[*bias.shape]}")
    return x.clone() if bias is None else x + bias


@optional_bias.register_fake
def _(x, bias=None):
    return torch.empty_like(x)


def _setup_bias(ctx, inputs, output):
    ctx.rank = None if inputs[1] is None else inputs[1].dim()


def _backward_bias(ctx, v):
    return v, None if ctx.rank is None else v.sum(tuple(range(v.dim() - ctx.rank)))


optional_bias.register_autograd(_backward_bias, setup_context=_setup_bias)


# -- writing to arguments on purpose ------------------------------------------------------------------------------


class CrossEntropyInPlace(torch.autograd.Function):
    """Keeps its gradient in the memory of the logits, as fused losses do."""

    @staticmethod
    def forward(ctx, logits, target):
        if logits.shape[:-1] != target.shape:
            raise ValueError("a row of logits for each target")
        log_p = logits.log_softmax(-1)
        rows = torch.arange(len(target))
        gradient = log_p.exp()
        gradient[rows, target] -= 1
        logits.detach().copy_(gradient / len(target))
        ctx.save_for_backward(logits.detach())
        return -log_p[rows, target].mean()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, v):
        (gradient,) = ctx.saved_tensors
        return gradient * v, None


def cross_entropy_in_place(logits, target):
    return CrossEntropyInPlace.apply(logits, target)


@torch.no_grad()
def momentum_step_(weight, gradient, momentum, rate: float = 0.1):
    """A fused optimizer: it writes to two arguments, and returns nothing."""
    momentum.mul_(0.9).add_(gradient)
    weight.sub_(momentum, alpha=rate)
