"""Bad habits that no Jacobian at one point shows, each with a right twin: x² or x y, real and complex.

`FAULTS` has, for each check, the names of the functions that must fail under it; `TWINS` those that pass every check.
"""

from __future__ import annotations

import itertools
import random
from typing import ClassVar

import numpy
import torch
from torch import Tensor


def slope(x: Tensor) -> Tensor:
    return (2 * x).conj()


class Square(torch.autograd.Function):
    """x², without a fault. Its subclasses have one each."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * x

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * slope(x)

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 2 * x * t


class Product(torch.autograd.Function):
    """x y, without a fault."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, v):
        x, y = ctx.saved_tensors
        return v * y.conj(), v * x.conj()


def square(x: Tensor) -> Tensor:
    return Square.apply(x)


def product(x: Tensor, y: Tensor) -> Tensor:
    return Product.apply(x, y)


# purity


class WritesToInputInForward(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        ctx.save_for_forward(x.clone())
        y = x * x
        x.data.add_(1)
        return y


class ZeroesItsInput(WritesToInputInForward):
    """A second call with the same input changes nothing more."""

    @staticmethod
    def forward(ctx, x):
        y = WritesToInputInForward.forward(ctx, x)
        x.data.zero_()
        return y


class WritesToInputInBackward(Square):
    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        gradient = v * slope(x)
        x.data.copy_(gradient.detach())
        return gradient


class WritesToCotangent(Square):
    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        gradient = v * slope(x)
        v.data.zero_()
        return gradient


class WritesToOutputInBackward(Square):
    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x)
        return y

    @staticmethod
    def backward(ctx, v):
        x, y = ctx.saved_tensors
        y.data.zero_()
        return v * slope(x)


class WritesToTangent(Square):
    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        tangent = 2 * x * t
        t.data.zero_()
        return tangent


class WritesAndRaises(Square):
    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        x.data.add_(1)
        raise RuntimeError("too late")


CALLS = torch.zeros(1)


def counts_in_a_global(x: Tensor) -> Tensor:
    CALLS.add_(1)
    return x * x


def _counting():
    calls = torch.zeros(1)

    def counts_in_a_closure(x: Tensor) -> Tensor:
        calls.add_(1)
        return x * x

    return counts_in_a_closure


# context


def doubles_without_grad(x: Tensor) -> Tensor:
    return x * x if torch.is_grad_enabled() else 2 * x * x


def doubles_in_inference_mode(x: Tensor) -> Tensor:
    return 2 * x * x if torch.is_inference_mode_enabled() else x * x


def depends_on_threads(x: Tensor) -> Tensor:
    return x * x if torch.get_num_threads() == 1 else 1.001 * x * x


def retains_its_gradient(x: Tensor) -> Tensor:
    if x.requires_grad:
        x.retain_grad()
    return x * x


def leaves_a_hook(x: Tensor) -> Tensor:
    """With a hook on x, which the gradients of all other uses of x pass, too."""
    if x.requires_grad:
        x.register_hook(lambda v: None)
    return x * x


def hooks_a_view(x: Tensor) -> Tensor:
    y = x.view_as(x)
    if y.requires_grad:
        y.register_hook(lambda v: None)
    return y * y


def loses_digits_under_autocast(x: Tensor) -> Tensor:
    if not torch.is_autocast_enabled("cpu"):
        return x * x
    low = torch.complex64 if x.is_complex() else torch.float32
    return x.to(low).to(x.dtype) * x


class KeepsOnTheClass(Square):
    kept: Tensor

    @staticmethod
    def forward(ctx, x):
        KeepsOnTheClass.kept = x.detach().clone()
        return Square.forward(ctx, x)

    @staticmethod
    def backward(ctx, v):
        return v * slope(KeepsOnTheClass.kept)


class ReusesABuffer(Square):
    buffers: ClassVar[dict] = {}

    @staticmethod
    def forward(ctx, x):
        ctx.buffer = ReusesABuffer.buffers.setdefault((x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype))
        ctx.buffer.copy_(slope(x).resolve_conj())
        return x * x

    @staticmethod
    def backward(ctx, v):
        return v * ctx.buffer


class CachesByShape(Square):
    cache: ClassVar[dict] = {}

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * CachesByShape.cache.setdefault((x.shape, x.dtype), slope(x).detach().clone())


KNOWN: dict = {}


def caches_by_object(x: Tensor) -> Tensor:
    """Keeps the square of the last tensor for as long as it sees the same object. Batches are none."""
    if not x.is_leaf or not x.requires_grad:
        return x * x
    if KNOWN.get("x") is not x:
        KNOWN.update(x=x, factor=x.detach().clone())
    return x * x + 0 * x + (KNOWN["factor"] - x.detach())


# needs_input_grad


class HalvesWhereAlone(Product):
    @staticmethod
    def backward(ctx, v):
        x, y = ctx.saved_tensors
        factor = 1.0 if all(ctx.needs_input_grad) else 0.5
        return factor * v * y.conj(), factor * v * x.conj()


class ForgetsTheSecondAlone(Product):
    @staticmethod
    def backward(ctx, v):
        x, y = ctx.saved_tensors
        return (v * y.conj(), v * x.conj()) if ctx.needs_input_grad[0] else (None, None)


def other_values_without_leaves(x: Tensor, y: Tensor) -> Tensor:
    return x * y if x.requires_grad or y.requires_grad else 1.5 * x * y


class FreesResults(Square):
    """Takes the memory of an input that is the result of another operation, which nobody seems to need any more."""

    @staticmethod
    def forward(ctx, x):
        y = Square.forward(ctx, x.clone())
        if x.grad_fn is not None:
            x.data.zero_()
        return y


# linearity


class Clips(Square):
    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v / (v.abs() / 10).clamp(min=1) * slope(x)


class ClipsLate(Square):
    """As a kernel that is not meant for loss scaling."""

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v / (v.abs() / 1e4).clamp(min=1) * slope(x)


class DropsSmall(Square):
    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return torch.where(v.abs() < 1e-3, 0 * v, v) * slope(x)


class RefusesLarge(Square):
    @staticmethod
    def backward(ctx, v):
        if bool((v.abs() > 100).any()):
            raise OverflowError("a gradient explodes")
        return Square.backward(ctx, v)


class IgnoresTheBits(Square):
    """Reads memory, where a lazily negated tensor is not yet negated, nor a conjugated one conjugated."""

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        v = -v.resolve_neg() if v.is_neg() else v
        return (v.conj().resolve_conj() if v.is_conj() else v) * slope(x)


class ClipsTangents(Square):
    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 2 * x * t / (t.abs() / 10).clamp(min=1)


class HidesNan(Square):
    """As a kernel that is to survive an overflow of the loss: nobody else gets to know of it."""

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return torch.where(v == v, v, 0) * slope(x)


class HidesNanTangents(Square):
    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 2 * x * torch.where(t == t, t, 0)


class StopsNanWhereNothingMoves(Square):
    """The twin: half of the elements have no derivative, and a sum over the others has nan."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return torch.where(x.abs() > 1, x * x, 0)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() > 1, v * slope(x), 0)

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() > 1, 2 * x * t, 0)


# saved


class KeepsOnContext(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        ctx.save_for_forward(x)
        return x * x

    @staticmethod
    def backward(ctx, v):
        return v * slope(ctx.x)


class SavesItsData(Square):
    """`x.data` has a version of its own, so that a change of x goes unnoticed."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.data)
        ctx.save_for_forward(x)
        return x * x


def multiplies_its_data(x):
    """x ** 2, half of whose derivative comes from a product with memory that autograd does not watch."""
    return 2 * x * x.data - x.detach() * x.data


class KeepsItsOutput(torch.autograd.Function):
    """exp, whose derivative is its output."""

    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp()
        return ctx.y

    @staticmethod
    def backward(ctx, v):
        return v * ctx.y.conj()


# detached


def detaches_in_half(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * x, (x * x).detach().to(torch.bfloat16)


def detaches_in_single(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * x, (x * x).detach().to(torch.float32)


def detaches_the_second(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * x, (x * x).detach()


class MarksTheSecond(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y, z = x * x, x * x * x
        ctx.mark_non_differentiable(z)
        return y, z

    @staticmethod
    def backward(ctx, v, _):
        (x,) = ctx.saved_tensors
        return v * slope(x)


def rounds_the_second(x: Tensor) -> tuple[Tensor, Tensor]:
    """A twin: steps have no derivative."""
    return x * x, (x.abs() * 3 + 0.25).detach().floor()


# aliasing


class KeyedByTensor(Product):
    @staticmethod
    def forward(ctx, x, y):
        ctx.same = x is y
        return Product.forward(ctx, x, y)

    @staticmethod
    def backward(ctx, v):
        x, y = ctx.saved_tensors
        return v * y.conj(), None if ctx.same else v * x.conj()


class TakesPartsForOne(Product):
    """As a kernel with a faster way for queries and keys that lie in one piece of memory, which mixes them up."""

    @staticmethod
    def forward(ctx, x, y):
        storages = {tensor.untyped_storage().data_ptr() for tensor in (x, y)}
        ctx.packed = len(storages) == 1 and x.data_ptr() != y.data_ptr()
        return Product.forward(ctx, x, y)

    @staticmethod
    def backward(ctx, v):
        x, y = Product.backward(ctx, v)
        return (y, x) if ctx.packed else (x, y)


class SharesMemory(torch.autograd.Function):
    """As a kernel does that wraps memory by its address."""

    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(x.detach().numpy())

    @staticmethod
    def backward(ctx, v):
        return v


def flattened(x: Tensor) -> Tensor:
    """A twin: a view, which autograd knows."""
    return x.reshape(-1)


# undefined_grad


class Three(torch.autograd.Function):
    """x, 2x and 3x, whose gradient is wrong if all cotangents but one are undefined."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return 1 * x, 2 * x, 3 * x

    @staticmethod
    def backward(ctx, *cotangents):
        defined = [(factor, v) for factor, v in zip((1, 2, 3), cotangents, strict=True) if v is not None]
        if len(defined) == 1:
            return defined[0][1]
        return sum(factor * v for factor, v in defined) if defined else None


# nondeterminism


class WrongNowAndThen(Square):
    """Wrong in every seventh backward pass."""

    passes = itertools.count()

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * slope(x) * (1 + 1e-9 * (next(WrongNowAndThen.passes) % 7 == 0))


class RandomSlope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, v):
        ctx.save_for_backward(x, v)
        return v * slope(x)

    @staticmethod
    def backward(ctx, w):
        x, v = ctx.saved_tensors
        return 2 * v * w.conj() * (1 + 1e-9 * random.random()), w * 2 * x


class RandomAtSecondOrder(Square):
    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return RandomSlope.apply(x, v)


class ForgetsTheInputForConstants(Square):
    """As one that saves memory where no second derivative seems to be asked for."""

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * slope(x if v.requires_grad else x.detach())


class WritesToCotangentAlone(Product):
    """As a kernel that takes the memory of the cotangent where only one gradient is asked for."""

    @staticmethod
    def backward(ctx, v):
        x, y = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            return v * y.conj(), v * x.conj()
        return v.mul_(y.conj()), None


class SeedsInBackward(Square):
    """As dropout that draws its mask again."""

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        torch.manual_seed(7)
        return v * slope(x) * torch.rand(1).ceil()


def seeds_in_forward(x):
    torch.manual_seed(7)
    return square(x) * torch.rand(1).ceil()


def seeds_in_forward_with_one(x):
    torch.manual_seed(1)
    return square(x) * torch.rand(1).ceil()


def seeds_python(x):
    random.seed(7)
    return square(x) * (1 - random.random() // 1)


def seeds_numpy(x):
    numpy.random.seed(7)
    return square(x) * (1 - numpy.random.rand() // 1)


def draws_from_all(x):
    """A twin: what is drawn makes no difference, and a generator of its own may be seeded."""
    own = random.Random(7).random()
    return square(x) * (1 - (own + random.random() + numpy.random.rand()) // 3)


def draws(x):
    """A twin: what is drawn makes no difference."""
    return square(x) * torch.rand(1).ceil()


counts_in_a_closure = _counting()

FAULTS: dict[str, tuple[str, ...]] = {
    "purity": (
        "WritesToInputInForward", "ZeroesItsInput", "WritesToInputInBackward", "WritesToCotangent",
        "WritesToOutputInBackward", "WritesToTangent", "WritesAndRaises", "FreesResults",
        "counts_in_a_global", "counts_in_a_closure", "SeedsInBackward", "seeds_in_forward",
        "seeds_in_forward_with_one", "seeds_python", "seeds_numpy", "retains_its_gradient", "leaves_a_hook",
    ),
    "context": (
        "doubles_without_grad", "doubles_in_inference_mode", "depends_on_threads", "loses_digits_under_autocast",
        "KeepsOnTheClass", "ReusesABuffer", "CachesByShape", "caches_by_object",
    ),
    "needs_input_grad": (
        "HalvesWhereAlone", "ForgetsTheSecondAlone", "other_values_without_leaves", "ForgetsTheInputForConstants",
        "WritesToCotangentAlone",
    ),
    "linearity": (
        "Clips", "ClipsLate", "DropsSmall", "RefusesLarge", "IgnoresTheBits", "ClipsTangents", "HidesNan",
        "HidesNanTangents",
    ),
    "saved": ("KeepsOnContext", "SavesItsData", "KeepsItsOutput"),
    "detached": ("detaches_the_second", "MarksTheSecond"),
    "aliasing": ("KeyedByTensor", "TakesPartsForOne", "SharesMemory"),
    "undefined_grad": ("Three",),
    "nondeterminism": ("WrongNowAndThen", "RandomAtSecondOrder"),
}  # fmt: skip

SEEN_BY_TORCH = (
    "WritesToInputInForward", "ZeroesItsInput", "WritesToInputInBackward", "WritesAndRaises", "KeepsOnTheClass",
    "ReusesABuffer", "caches_by_object", "SavesItsData", "FreesResults", "Three", "WrongNowAndThen",
    "RandomAtSecondOrder",
)  # fmt: skip
"""The faults that torch's gradcheck and gradgradcheck find, together; they pass all others."""

TWINS = (
    "square", "product", "draws", "draws_from_all", "rounds_the_second", "flattened", "StopsNanWhereNothingMoves",
    "hooks_a_view",
)  # fmt: skip
