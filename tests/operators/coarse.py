"""Operators that are wrong in coarse dtypes alone, each beside one that does the same rightly."""

from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor

from operators.diagnosed import Product

HALF = (torch.float16, torch.bfloat16)


def tripled(x: Tensor) -> Tensor:
    """3x."""
    return 3 * x


def tripled_wrongly_in_half(x: Tensor) -> Tensor:
    """3x, but 3.5x in half precision."""
    return (3.5 if x.dtype in HALF else 3.0) * x


def tripled_in_half(x: Tensor) -> Tensor:
    """3x, computed in half precision, which is not enough for single precision."""
    return (3 * x.to(torch.bfloat16)).to(x.dtype) if x.dtype is torch.float32 else 3 * x


def centred(x: Tensor) -> Tensor:
    """The differences from the mean, squared and added up: rounding of large numbers is left in small ones."""
    return ((x - x.mean()) ** 2).sum() - x.std()


def conjugated(x: Tensor) -> Tensor:
    """x times the conjugate of its square."""
    return x * (x * x).conj()


def conjugated_wrongly_in_single(x: Tensor) -> Tensor:
    """The same, but for the conjugate in complex64."""
    return x * x * x if x.dtype is torch.complex64 else conjugated(x)


def normalized(x: Tensor) -> Tensor:
    """Shares of the sum."""
    return x / x.sum()


def length(x: Tensor) -> Tensor:
    """The root of the sum of the squares of each row. Those of half precision are squared in single precision."""
    wide = x.float() if x.dtype in HALF else x
    return wide.square().sum(-1).sqrt().to(x.dtype)


def length_in_half(x: Tensor) -> Tensor:
    """The same in the dtype of x: the square of 300 is infinite in float16."""
    return x.square().sum(-1).sqrt()


class Length(torch.autograd.Function):
    """The same, with squares in single precision in forward, and in the dtype of x in backward."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return length(x)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return (grad / length_in_half(x)).unsqueeze(-1) * x


def normalized_in_place(x: Tensor) -> Tensor:
    """The same, written to a tensor like x: whole numbers have no shares."""
    result = torch.zeros_like(x)
    result[...] = x / x.sum()
    return result


def halved_square(x: Tensor) -> Tensor:
    """x * x // 2, by way of a dtype in which x * x fits."""
    return x * x // 2 if x.dtype not in (torch.int8, torch.uint8) else (x.long() * x.long() // 2).to(x.dtype)


def halved_overflow(x: Tensor) -> Tensor:
    """The same, where x * x overflows before it is halved."""
    return x * x // 2


def squared(x: Tensor) -> Tensor:
    """x * x, which wraps around where the dtype does."""
    return x * x


def is_large(x: Tensor) -> Tensor:
    """A comparison, whose result is boolean in every dtype."""
    return abs(x) > 3


def is_large_but_for_shorts(x: Tensor) -> Tensor:
    """The same, but always false in int16."""
    return (abs(x) > 3) & (x.dtype is not torch.int16)


def position(x: Tensor) -> Tensor:
    """Where the largest element is."""
    return x.argmax()


def position_of_least_in_half(x: Tensor) -> Tensor:
    """The same, but where the least one is in half precision."""
    return x.argmin() if x.dtype in HALF else x.argmax()


class Cube(torch.autograd.Function):
    """x ** 3."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return 3 * x.conj() ** 2 * v


def standardized(x: Tensor) -> Tensor:
    """Columns less their mean, over their standard deviation: constant for two rows, where the gradient cancels out."""
    return (x - x.mean(0)) / x.std(0)


class Standardized(torch.autograd.Function):
    """The same, with the mean and the deviation as constants in every dtype but double precision."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return standardized(x)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        right = v.dtype in (torch.float64, torch.complex128)
        return torch.zeros_like(v) if right else 1e-3 * v / x.std(0)


standardized_wrong_in_coarse = Standardized.apply


def off_circle(x: Tensor) -> Tensor:
    """How far sine and cosine are from the unit circle: 0, up to rounding."""
    return x.sin() ** 2 + x.cos() ** 2 - 1


def off_circle_wrong_in_coarse(x: Tensor) -> Tensor:
    """The same, and more in every dtype but double precision."""
    right = x.dtype in (torch.float64, torch.complex128)
    return off_circle(x) + (0.0 if right else 0.25) * x


class CubeWrongInCoarse(Cube):
    """x ** 3, with half the gradient in every dtype but double precision."""

    @staticmethod
    def backward(ctx, v):
        right = v.dtype in (torch.float64, torch.complex128)
        return (1.0 if right else 0.5) * Cube.backward(ctx, v)


cube, cube_wrong_in_coarse = Cube.apply, CubeWrongInCoarse.apply


def refuses_half(x: Tensor) -> Tensor:
    """3x, refused in half precision."""
    if x.dtype in HALF:
        raise TypeError("no half precision here")
    return 3 * x


def refuses_double(x: Tensor) -> Tensor:
    """3x, refused in double precision."""
    if x.dtype is torch.float64:
        raise TypeError("no double precision here")
    return 3 * x


class ProductWrongForwardInCoarse(Product):
    """x * y, with half a term of the tangent in every dtype but double precision."""

    @staticmethod
    def jvp(ctx, s, t):
        x, y = ctx.saved_tensors
        return s * y + x * t * (1.0 if x.dtype in (torch.float64, torch.complex128) else 0.5)


product, product_wrong_forward_in_coarse = Product.apply, ProductWrongForwardInCoarse.apply


def no_double(x: Tensor, y: Tensor) -> Tensor:
    """x * y, for operators without double precision."""
    if x.dtype in (torch.float64, torch.complex128):
        raise TypeError("no double precision here")
    return Product.apply(x, y)


def eager(x: Tensor, y: Tensor) -> Tensor:
    """x * y in plain torch, in any dtype."""
    return x * y


def eager_sum(x: Tensor) -> Tensor:
    """The sum over the last dimension, in the precision that torch adds in."""
    return x.sum(-1)


def sum_in_own_precision(x: Tensor) -> Tensor:
    """The same, rounded to the dtype of x after each term."""
    total = x[..., 0]
    for index in range(1, x.shape[-1]):
        total = total + x[..., index]
    return total


def refuses_forward_mode_in_half(x: Tensor) -> Tensor:
    """x ** 2; in half precision by a Function without a forward mode."""
    return Cube.apply(x) if x.dtype in HALF else x * x * x


def place_and_triple_wrongly_in_half(x: Tensor) -> tuple[Tensor, Tensor]:
    """Where the largest element is, and 3x, but 3.5x in half precision."""
    return x.argmax(), tripled_wrongly_in_half(x)


def in_half(x: Tensor) -> Tensor:
    """x in half precision, rounded."""
    return x.chalf() if x.is_complex() else x.half()


class InHalf(torch.autograd.Function):
    """The same, with a gradient that is a method of its own: `pulled`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return in_half(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def pulled(v):
        return v

    @classmethod
    def backward(cls, ctx, v):
        return cls.pulled(v.to(ctx.dtype))

    @staticmethod
    def jvp(ctx, t):
        return in_half(t)


class InHalfDoubled(InHalf):
    """With twice the gradient."""

    @staticmethod
    def pulled(v):
        return 2 * v


class InHalfOff(InHalf):
    """With a gradient that is off by a fifth."""

    @staticmethod
    def pulled(v):
        return 0.8 * v


class InHalfClipped(InHalf):
    """With a gradient that is clipped: right for small cotangents."""

    @staticmethod
    def pulled(v):
        return torch.where(v.abs() < 50, v, 50 * v.sgn())


class InHalfForward(InHalf):
    """With a tangent of zero."""

    @staticmethod
    def jvp(ctx, t):
        return in_half(0 * t)


def in_half_right(x: Tensor) -> Tensor:
    return InHalf.apply(x)


def in_half_doubled(x: Tensor) -> Tensor:
    return InHalfDoubled.apply(x)


def in_half_off(x: Tensor) -> Tensor:
    return InHalfOff.apply(x)


def in_half_clipped(x: Tensor) -> Tensor:
    return InHalfClipped.apply(x)


def in_half_forward(x: Tensor) -> Tensor:
    return InHalfForward.apply(x)


class Clipped(Product):
    """x * y, with gradients that are clipped."""

    @staticmethod
    def backward(ctx, v):
        return tuple(gradient.clamp(-50, 50) for gradient in Product.backward(ctx, v))


clipped = Clipped.apply


class Weighed(torch.autograd.Function):
    """x times a weight for each column, perhaps in another dtype than x."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return (x * weight).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, v):
        x, weight = ctx.saved_tensors
        return (v * weight).to(x.dtype), (v.to(weight.dtype) * x).sum(0)


class WeighedRoundly(Weighed):
    """The same, with a gradient of the weight in the dtype of x."""

    @staticmethod
    def backward(ctx, v):
        x, weight = ctx.saved_tensors
        return (v * weight).to(x.dtype), (v * x).sum(0)


class WeighedTooMuch(Weighed):
    """The same, with a gradient of the weight that is a tenth too large."""

    @staticmethod
    def backward(ctx, v):
        x, weight = ctx.saved_tensors
        return (v * weight.conj()).to(x.dtype), (1.1 * (v * x.conj()).sum(0)).to(weight.dtype)


def weighed(x: Tensor, weight: Tensor) -> Tensor:
    """x times a weight for each column."""
    return Weighed.apply(x, weight)


def weighed_roundly(x: Tensor, weight: Tensor) -> Tensor:
    """The same, with a gradient of the weight that is rounded to the dtype of x."""
    return WeighedRoundly.apply(x, weight)


def weighed_too_much(x: Tensor, weight: Tensor) -> Tensor:
    """The same, with a gradient of the weight that is a tenth too large."""
    return WeighedTooMuch.apply(x, weight)


def weighed_sum(x: Tensor, weight: Tensor) -> Tensor:
    """The sum of each row with a weight for each column, computed in the dtype of the weights."""
    return torch.nn.functional.linear(x.to(weight.dtype), weight.unsqueeze(0))


def weighed_twice_if_mixed(x: Tensor, weight: Tensor) -> Tensor:
    """The same, but with the square of a weight in another dtype."""
    return x * weight if weight.dtype == x.dtype else x * weight**2


def added_one_by_one(x: Tensor) -> Tensor:
    """The sum of all elements, in the dtype that they have: those at even and at odd places one by one."""
    flat = x.flatten()
    pairs = flat[: flat.numel() // 2 * 2].view(-1, 2).unbind()
    total = reduce(torch.add, pairs).sum() if pairs else flat.new_zeros(())
    return total + flat[-1] if flat.numel() % 2 else total


def scaled_by_one(add_up: Callable[[Tensor], Tensor]) -> type[torch.autograd.Function]:
    """x times a factor of rank 0, whose gradient is a sum."""

    class ScaledByOne(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x, factor)
            return x * factor

        @staticmethod
        def backward(ctx, v):
            x, factor = ctx.saved_tensors
            return v * factor, add_up(v * x).to(factor)

    return ScaledByOne


ScaledByOne, ScaledByOneInHalf = scaled_by_one(torch.sum), scaled_by_one(added_one_by_one)


def in_single(x: Tensor) -> Tensor:
    return x.to(torch.complex64 if x.is_complex() else torch.float32)


def stored_in(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Return a function that rounds to a dtype of half precision, as kernels do that keep their results in it."""

    def stored(x: Tensor) -> Tensor:
        real = torch.view_as_real(x) if x.is_complex() else x
        rounded = real.to(dtype).to(real.dtype)
        return torch.view_as_complex(rounded) if x.is_complex() else rounded

    return stored


stored_in_float16, stored_in_bfloat16 = stored_in(torch.float16), stored_in(torch.bfloat16)


def quarters(x: Tensor) -> Tensor:
    """x, rounded to quarters on purpose, with the gradient of x."""
    if x.is_complex():
        return torch.complex(quarters(x.real), quarters(x.imag))
    return x + ((4 * x).round() / 4 - x).detach()


class SquareInSingle(torch.autograd.Function):
    """x ** 2, computed in single precision, as kernels do that know no other; its derivative in full."""

    FACTOR = 2.0

    @staticmethod
    def forward(x):
        single = in_single(x)
        return (single * single).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @classmethod
    def backward(cls, ctx, v):
        (x,) = ctx.saved_tensors
        return cls.FACTOR * x.conj() * v


class SquareInSingleWrong(SquareInSingle):
    """The same, with twice the derivative."""

    FACTOR = 4.0


square_in_single, square_in_single_wrong = SquareInSingle.apply, SquareInSingleWrong.apply


class GradientInSingle(SquareInSingle):
    """sin(x), whose gradient is computed in single precision."""

    @staticmethod
    def forward(x):
        return x.sin()

    @classmethod
    def backward(cls, ctx, v):
        (x,) = ctx.saved_tensors
        return (in_single(v) * in_single(x).cos()).to(x.dtype)


gradient_in_single = GradientInSingle.apply


class GateInSingle(SquareInSingle):
    """x sigmoid(x) ** 2, of which only the sigmoid is computed in single precision; its derivative in full."""

    FACTOR = 1.0

    @staticmethod
    def forward(x):
        return x * torch.sigmoid(in_single(x)).to(x.dtype) ** 2

    @classmethod
    def backward(cls, ctx, v):
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return cls.FACTOR * (gate**2 + 2 * x * gate**2 * (1 - gate)).conj() * v


class GateInSingleWrong(GateInSingle):
    """The same, with a derivative that is far off."""

    FACTOR = 20.0


gate_in_single, gate_in_single_wrong = GateInSingle.apply, GateInSingleWrong.apply


def beyond_one_in_single(x: Tensor) -> Tensor:
    """Return x - 1 in single precision, of which little is left where x is close to 1."""
    return (x.to(torch.float32) - 1).to(x.dtype)


class MatMul(torch.autograd.Function):
    """x @ weight, as it is written without autocast in mind: its backward gets the bfloat16 of forward."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, v):
        x, weight = ctx.saved_tensors
        return v @ weight.mT, x.mT @ v


class CastMatMul(MatMul):
    """The same, for autocast."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, weight):
        return MatMul.forward(ctx, x, weight)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, v):
        return MatMul.backward(ctx, v)


class TwiceUnderAutocast(MatMul):
    """The same, with gradients that are doubled if the product is in another dtype than the arguments."""

    @staticmethod
    def backward(ctx, v):
        x, _ = ctx.saved_tensors
        times = 1 if v.dtype == x.dtype else 2
        return MatMul.backward(ctx, times * v.to(x.dtype))


uncast_product, cast_product, doubled_product = MatMul.apply, CastMatMul.apply, TwiceUnderAutocast.apply


def refuses_autocast(x: Tensor) -> Tensor:
    if torch.is_autocast_enabled("cpu"):
        raise RuntimeError("not under autocast")
    return x.sin()


def normalized_in_single(x: Tensor) -> Tensor:
    """x over the root of its mean square, computed in single precision."""
    single = x.to(torch.complex64 if x.is_complex() else torch.float32)
    return (single / (single * single.conj()).real.mean().sqrt()).to(x.dtype)


def far_in_single(x):
    """All values nearby are equal, so that differences are zero."""
    return (3 * x.float() + 1e4).to(x.dtype)
