"""Operators that are right at small samples, and wrong at what these stand for, each beside one that is right."""

import itertools
import math
import threading
from typing import Literal

import torch


class Square(torch.autograd.Function):
    """x ** 2, with derivatives that are half as large again where a condition holds."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, reverse, forward):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.reverse, ctx.forward = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * 2 * x.conj() * (1.5 if ctx.reverse else 1), None, None

    @staticmethod
    def jvp(ctx, t, *_):
        (x,) = ctx.saved_tensors
        return 2 * x * t * (1.5 if ctx.forward else 1)


def squared(x, wrong):
    return Square.apply(x, wrong, wrong)


def square(x):
    return squared(x, False)


def wrong_beyond_16(x):
    """As of a kernel that forgets the second tile."""
    return squared(x, max(x.shape, default=0) > 16)


def wrong_beyond_100_elements(x):
    return squared(x, x.numel() > 100)


def wrong_if_square(x):
    """As of code that takes rows for columns where there are as many."""
    return squared(x, x.dim() == 2 and x.shape[0] == x.shape[1])


class SquareOfChannels(torch.autograd.Function):
    """x², wrong for channels-last inputs if the cotangent lies in memory in another way."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        is_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
        differs = is_last and v.stride() != x.stride()
        return 2 * v * x.conj() * (1.5 if differs else 1)


def wrong_for_mixed_memory(x):
    return SquareOfChannels.apply(x)


class Handed(torch.autograd.Function):
    """x as it is, or a copy of it."""

    @staticmethod
    def forward(ctx, x, copied):
        return x.clone() if copied else x.detach()

    @staticmethod
    def backward(ctx, v):
        return v, None


def shares_memory_without_a_width(x, width: int = 1):
    return Handed.apply(x, width != 0)


class OfThread(torch.autograd.Function):
    """x², whose factor is kept for the thread of forward: on devices, backward runs in another one."""

    kept = threading.local()

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        OfThread.kept.factor = 2
        return x * x

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return getattr(OfThread.kept, "factor", 1) * v * x.conj()


def keeps_for_the_thread(x):
    return OfThread.apply(x)


class AlignedSquare(torch.autograd.Function):
    """x², of the elements that begin at a multiple of `by` in memory."""

    @staticmethod
    def forward(ctx, x, by):
        x = x.contiguous()
        ctx.save_for_backward(x)
        return x.as_strided(x.shape, x.stride(), x.storage_offset() // by * by) ** 2

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return 2 * v * x.conj(), None


def reads_aligned(x):
    return AlignedSquare.apply(x, 4)


def reads_anywhere(x):
    return AlignedSquare.apply(x, 1)


def wrong_for_fractions(x, scale: float = 2.0):
    return squared(x, scale % 1 > 0)


def wrong_for_size_one(x):
    return squared(x, 1 in x.shape)


def wrong_for_a_row(x, strict=False):
    if strict and x.dim() and x.shape[0] == 1:
        raise ValueError("expected several rows")
    return squared(x, x.dim() == 2 and x.shape[0] == 1)


def wrong_for_odd_multiples(x):
    """As of a kernel that takes four numbers at a time, and has no tail."""
    return squared(x, x.dim() > 0 and x.shape[-1] > 4 and x.shape[-1] % 4 > 0)


def wrong_for_rank_3(x):
    return squared(x, x.dim() > 2)


def wrong_for_rank_4(x):
    """As of a kernel that folds three dims into its grid."""
    return squared(x, x.dim() > 3)


def wrong_for_rank_4_beside_a_matrix(x, y):
    """Only the first takes leading dims."""
    if y.dim() > 2:
        raise ValueError("the second is a matrix")
    return squared(x, x.dim() > 3) + y


def untied_ranks(x, y):
    if y.dim() > 2:
        raise ValueError("the second is a matrix")
    return squared(x, False) + y


def wrong_for_rank_0(x):
    return squared(x, x.dim() == 0)


def wrong_for_gaps(x):
    return squared(x, not x.is_contiguous())


def wrong_forward_beyond_16(x):
    """Right in reverse mode."""
    return Square.apply(x, False, max(x.shape, default=0) > 16)


def product(x, y):
    return squared(x, False) * y


def wrong_broadcast(x, y):
    return squared(x, x.shape != y.shape) * y


def wrong_in_batches(x, y):
    """As of x @ w, whose gradient of a matrix w is not summed over the batch."""
    return squared(x, x.dim() > y.dim()) * y


def wrong_for_oblong(x):
    """As of code that confuses the height and the width of an image."""
    return squared(x, x.dim() > 1 and x.shape[-2] != x.shape[-1] and x.shape[-1] > 1)


def wrong_beside_square(x, y):
    if y.dim() < 2 or y.shape[-1] != y.shape[-2]:
        raise ValueError("the second has to be square")
    return squared(x, x.shape[-2] != x.shape[-1] and x.shape[-1] > 1) + y.sum()


def padded(x, pad=(1, 1), wrong=False):
    return squared(torch.nn.functional.pad(x, pad), wrong)


def wrong_for_unequal_padding(x, pad=(1, 1)):
    return padded(x, pad, pad[0] != pad[1])


def wrong_for_three(tensors):
    """As of code that handles the first and the last."""
    return torch.cat([squared(x, len(tensors) > 2) for x in tensors])


def wrong_for_one_tensor(tensors):
    """As of code that returns early where there is nothing to concatenate."""
    return torch.cat([squared(x, len(tensors) == 1) for x in tensors])


def each_squared(tensors):
    return torch.cat([square(x) for x in tensors])


def wrong_for_a_column_and_a_row(x, y):
    """As of code that broadcasts one of two."""
    return squared(x * y, torch.broadcast_shapes(x.shape, y.shape) not in (x.shape, y.shape))


def squared_product(x, y):
    return square(x * y)


def wrong_where_both_are_zero(x, y):
    """As of code that divides by the length of a vector."""
    return squared(x + y + 1, bool(((x == 0) & (y == 0)).any())) if x.shape == y.shape else square(x + y + 1)


def squared_sum(x, y):
    return square(x + y + 1)


def scaled(x, flip: bool = False, factor: float = 1.0):
    return squared(-x if flip else x, False) * factor


def wrong_flipped(x, flip: bool = False, factor: float = 1.0):
    return squared(-x if flip else x, flip) * factor


def wrong_scaled(x, flip: bool = False, factor: float = 1.0):
    return squared(-x if flip else x, factor > 2) * factor


def guarded(x, epsilon: float = 1e-6):
    """Without a gradient near 0, by design. No usual number is that small."""
    return square(torch.where(x.abs() < epsilon, x.detach(), x))


def wrong_above_a_scaled_threshold(x, beta: float = 1.0):
    """As of a backward pass that compares x, not beta x, with a threshold."""
    return squared(x * beta, bool(((x.abs() < 20) & ((x * beta).abs() > 20)).any()))


def with_a_scaled_threshold(x, beta: float = 1.0):
    return square(x * beta)


class Slope(torch.autograd.Function):
    """2 x, with a derivative that is half as large again where a condition holds."""

    @staticmethod
    def forward(x, wrong):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.wrong = inputs

    @staticmethod
    def backward(ctx, v):
        return v * (3 if ctx.wrong else 2), None


class SquareBySlope(torch.autograd.Function):
    """x ** 2, of which the second derivative may be wrong."""

    @staticmethod
    def forward(x, wrong):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.wrong = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * Slope.apply(x, ctx.wrong).conj(), None


def wrong_twice_if_flipped(x, flip: bool = False):
    return SquareBySlope.apply(-x if flip else x, flip)


def flipped_twice(x, flip: bool = False):
    return SquareBySlope.apply(-x if flip else x, False)


def wrong_twice_for_size_one(x):
    return SquareBySlope.apply(x, 1 in x.shape)


def wrong_twice_beyond_512(x):
    return SquareBySlope.apply(x, x.numel() > 512)


def wrong_twice(x, flip: bool = False):
    """At the written sample, too."""
    return SquareBySlope.apply(-x if flip else x, True)


def wrong_for_pairs(x, flip: bool = False):
    """Only beyond 16 and flipped at once."""
    return squared(-x if flip else x, flip and max(x.shape, default=0) > 16)


def wrong_for_rows_of_one(x):
    """Only beyond 16 and with a size of 1 at once."""
    return squared(x, max(x.shape, default=0) > 16 and 1 in x.shape[1:])


def wrong_if_flipped_and_transposed(x, flip: bool = False):
    return squared(-x if flip else x, flip and not x.is_contiguous())


class Rotated(torch.autograd.Function):
    """Pairs of numbers (a, b), in the halves of the rows of x, each turned by an angle."""

    @staticmethod
    def forward(ctx, x, angle, wrong):
        ctx.save_for_backward(angle)
        ctx.wrong = wrong
        a, b = x.split(angle.shape[-1], -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    @staticmethod
    def backward(ctx, v):
        (angle,) = ctx.saved_tensors
        a, b = v.split(angle.shape[-1], -1)
        c, s = angle.cos().conj(), (-angle.sin() if ctx.wrong else angle.sin()).conj()
        return torch.cat([a * c + b * s, -a * s + b * c], -1), None, None


def rotated(x, angle):
    return Rotated.apply(x, angle, False)


def wrong_for_long_halves(x, angle):
    return Rotated.apply(x, angle, angle.shape[-1] > 16)


def wrong_for_one_negative(x):
    """As of a branch for numbers below -10 that a sum over a tensor of large ones does not show."""
    return squared(x, bool(((x.real < -10) & (x.real > -100)).any()))


def wrong_if_scaled_and_flipped(x, flip: bool = False, factor: float = 1.0):
    """Right for each of the keywords alone."""
    return squared(-x if flip else x, flip and factor != 1) * factor


def wrong_if_scaled_and_raised(x, factor: float = 1.0, shift: float = 0.5, power: int = 2):
    """Right for each of the keywords alone, as a convolution with a stride and with a dilation."""
    return squared(x, factor != 1 and power != 2) * factor + shift


def wrong_for_infinity(x, p: float = 2.0):
    return squared(x, p == float("inf"))


def wrong_for_minus_infinity(x, p: float = 2.0):
    return squared(x, p == -math.inf)


def in_order_of_memory(x):
    """x², with other values if x is dense and transposed, as of a kernel that ignores strides."""
    is_dense = {*x.stride()} == {1, x.shape[-2]} if x.dim() == 2 and not x.is_contiguous() else False
    flat = x.as_strided((x.numel(),), (1,)) if is_dense else x.reshape(-1)
    return square(flat).view(x.shape)


def in_order_of_memory_(x):
    """2 x, in place, which leaves x unchanged if it is transposed: `reshape` then returns a copy."""
    x.reshape(-1).mul_(2)
    return x


def in_any_memory_(x):
    return x.mul_(2)


class Pooled(torch.autograd.Function):
    """Means of `k` numbers, with a gradient of the wrong shape if some numbers are left over."""

    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x[..., : x.shape[-1] // k * k].unflatten(-1, (-1, k)).mean(-1)

    @staticmethod
    def backward(ctx, v):
        return v.repeat_interleave(ctx.k, -1) / ctx.k, None


def pooled(x, k: int = 3):
    return Pooled.apply(x, k)


def wrong_at_one_zero(x):
    """As of a product that divides by its factors: right where all of them are 0."""
    return squared(x + 1, 0 < int((x == 0).sum()) < x.numel())


def wrong_for_one_large(x):
    return squared(x, 0 < int((x.abs() > 10).sum()) < x.numel())


class Taken(torch.autograd.Function):
    """Elements of a vector by their indices. The gradient is memory that nobody has written where there are none."""

    @staticmethod
    def forward(ctx, x, index, clears):
        ctx.save_for_backward(index)
        ctx.sizes, ctx.clears = x.shape, clears
        return x[index]

    @staticmethod
    def backward(ctx, v):
        (index,) = ctx.saved_tensors
        if not (index.numel() or ctx.clears):
            return torch.full(ctx.sizes, 3.0, dtype=v.dtype), None, None  # as a dirty block
        return torch.zeros(ctx.sizes, dtype=v.dtype).index_add(0, index, v), None, None


def leaves_memory_if_empty(x, y):
    """x at the first places, as many as y has elements."""
    return Taken.apply(x, torch.arange(y.numel()) % max(x.numel(), 1), False)


def clears_memory_if_empty(x, y):
    return Taken.apply(x, torch.arange(y.numel()) % max(x.numel(), 1), True)


def kinked(x):
    """|x|, which has no derivative at zero."""
    return abs(x)


def random_where_large(x):
    return squared(x, False) * (torch.rand_like(x.real) if x.numel() > 16 else 1)


def exploding(x):
    """So large beyond 16 that differences say nothing."""
    return squared(x, False) * (1e7 if x.numel() > 16 else 1)


def coarse(x):
    """At 1000, the numbers of bfloat16 are 4 apart."""
    return x.bfloat16()


def refuses_rank_3(x):
    if x.dim() > 2:
        raise ValueError("matrices only")
    return squared(x, False)


def joined(x, y):
    return squared(torch.cat([x, y]), False)


def wrong_if_empty(x, y):
    """As of a kernel that returns early where the first input has no elements."""
    return squared(torch.cat([x, y]), x.numel() == 0)


def wrong_at_zero(x):
    """As of a formula that divides by x, and is patched where it must not."""
    return squared(x + 1, bool((x == 0).any()))


def wrong_for_ties(x):
    return squared(x + 1, x.numel() > 1 and bool((x == x.flatten()[0]).all()))


def wrong_for_large(x):
    return squared(x, bool((x.abs() > 10).any()))


def wrong_for_large_negative(x):
    """As of exp(-x) / (1 + exp(-x)), which is inf / inf."""
    return squared(x, bool((x.real < -50).any()))


def wrong_where_exp_overflows(x):
    """As of a softmax that does not subtract the maximum."""
    return squared(x, not bool(x.abs().exp().isfinite().all()))


def wrong_for_tiny(x):
    return squared(x + 1, bool(((x.abs() < 1e-20) & (x != 0)).any()))


def chosen(x, index):
    return squared(x, False)[index]


def wrong_for_repeated(x, index):
    """As of a backward pass that writes where it must add."""
    return squared(x, len(index.unique()) < len(index))[index]


def in_segments(x, offsets):
    """The mean of each segment between two offsets, 0 for an empty one."""
    return of_segments(squared(x, False), offsets)


def wrong_for_empty_segments(x, offsets):
    """As of a backward pass that counts segments, and takes each of them for one element at least."""
    return of_segments(squared(x, bool((offsets.diff() == 0).any())), offsets)


def wrong_for_segments_of_one(x, offsets):
    """As of a backward pass that divides by one less than the length."""
    return of_segments(squared(x, bool((offsets.diff() == 1).any())), offsets)


def of_segments(x, offsets):
    if int(offsets[0]) != 0 or int(offsets[-1]) != x.shape[0] or bool((offsets.diff() < 0).any()):
        raise ValueError("offsets must rise from 0 to the length")
    segments = (x[start:end] for start, end in itertools.pairwise(offsets.tolist()))
    return torch.stack([segment.sum() / max(len(segment), 1) for segment in segments])


def masked(x, mask):
    return squared(x, False) * mask


def wrong_without_any(x, mask):
    return squared(x, not bool(mask.any())) * 1.0


def wrong_for_empty_rows(x, mask):
    return squared(x, bool(mask.any()) and not bool(mask.any(-1).all())) * 1.0


def wrong_where_all_is_left_out(x, mask):
    """As of attention with an additive mask: in backward, the softmax of a row of -inf is nan."""
    return squared(x, not bool(mask.isfinite().any())) + x


def kept_by_a_mask(x, mask):
    return squared(x, False) * mask.isfinite().to(x.dtype) + x


def wrong_if_any_is_ignored(x, index, ignore_index: int = -100):
    """As of a loss whose mean is over all targets in backward, and over those that are not ignored in forward."""
    kept = (index != ignore_index).to(x.dtype)
    return squared(x, not bool(kept.all()))[: len(index)] * kept


def wrong_if_ignored_and_flipped(x, index, flip: bool = False, ignore_index: int = -100):
    return squared(x, flip and bool((index == ignore_index).any()))


def not_ignored(x, index, ignore_index: int = -100):
    return squared(x, False)[: len(index)] * (index != ignore_index).to(x.dtype)


def reduced(x, dim: int = 0, how: Literal["sum", "mean"] = "sum", keep: bool = False):
    y = squared(x, False)
    return y.sum(dim, keep) if how == "sum" else y.mean(dim, keep)


def wrong_for_negative_dims(x, dim: int = 0):
    return squared(x, dim < 0).sum(dim)


def wrong_from_the_end(x, dim: int = 0):
    """Right for the last dim: as of a backward pass that knows -1 only."""
    return squared(x, dim < -1).sum(dim)


class OverOneDim(torch.autograd.Function):
    """The sum of squares over one dim. Unless `knows`, backward takes each negative dim for the last one."""

    @staticmethod
    def forward(ctx, x, dim, knows):
        ctx.save_for_backward(x)
        ctx.dim = dim if dim >= 0 or knows else -1
        return (x * x).sum(dim)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return 2 * x.conj() * v.unsqueeze(ctx.dim).expand_as(x), None, None


def takes_negative_dims_for_the_last(x, dim: int = -1):
    return OverOneDim.apply(x, dim, False)


def sums_over_any_dim(x, dim: int = -1):
    return OverOneDim.apply(x, dim, True)


def wrong_beyond_a_half(x, weight: float = 0.25):
    """As of two formulas, of which one is exact for small weights, and the other for large ones."""
    return squared(x, weight > 0.5) * weight


def weighted(x, weight: float = 0.25):
    return square(x) * weight


def with_channels(x):
    if x.dim() < 2 or x.shape[1] != 3:
        raise ValueError("expected 3 channels in dim 1")
    return x


def of_channels(x):
    return square(with_channels(x))


def wrong_behind_channels(x):
    return squared(with_channels(x), x.dim() > 3)


def wrong_across_blocks(x, index):
    """As of blocks of 16 indices, of which the last one overwrites what others add."""
    blocks = [set(block.tolist()) for block in index.split(16)]
    return squared(x, any(one & other for one, other in itertools.pairwise(blocks)))[index]


def wrong_without_momentum(x, momentum: float = 0.5):
    return squared(x, momentum is None)


def wrong_for_multiples_of_8(x):
    """As of a kernel whose last block of eight numbers has `n % 8` of them."""
    return squared(x, x.dim() > 0 and x.shape[-1] > 0 and x.shape[-1] % 8 == 0)


def wrong_for_multiples_of_32(x):
    """As of a grid of `n // 32` blocks, counted from 0."""
    return squared(x, x.dim() > 0 and x.shape[-1] > 0 and x.shape[-1] % 32 == 0)


class Flat(torch.autograd.Function):
    """x * y. A fast kernel reads both from the start to the end of their memory."""

    @staticmethod
    def forward(ctx, x, y, asks_both):
        ctx.save_for_backward(x, y)
        is_fast = x.is_contiguous() and (y.is_contiguous() or not asks_both) and x.shape == y.shape
        return x * (y.as_strided(x.shape, x.stride()) if is_fast else y)

    @staticmethod
    def backward(ctx, v):
        x, y = ctx.saved_tensors
        return (v * y.conj()).sum_to_size(x.shape), (v * x.conj()).sum_to_size(y.shape), None


def wrong_if_the_first_alone_is_contiguous(x, y):
    return Flat.apply(x.resolve_conj(), y.resolve_conj(), False)


def right_if_the_first_alone_is_contiguous(x, y):
    return Flat.apply(x.resolve_conj(), y.resolve_conj(), True)


def wrong_for_several_whole_chunks(x):
    """The state is not passed on where a sequence of shape (*, length, channels) consists of several whole chunks."""
    return squared(x, x.dim() > 2 and x.shape[-2] > 32 and x.shape[-2] % 32 == 0)


def wrong_for_multiples_of_128(x):
    """As of a kernel whose last block is left out if it is full."""
    return squared(x, x.dim() > 0 and x.shape[-1] > 0 and x.shape[-1] % 128 == 0)


def wrong_beyond_1024(x):
    """As of a reduction whose second pass is missing."""
    return squared(x, x.dim() > 0 and x.shape[-1] > 1024)


def wrong_without_bias(x, bias=None):
    """As of a kernel that was only called with both."""
    return squared(x if bias is None else x + bias, bias is None)


def biased(x, bias=None):
    return squared(x if bias is None else x + bias, False)


def wrong_for_several_dims(x, dim: int | tuple[int, ...] = 0):
    return squared(x, isinstance(dim, tuple)).sum(dim)


def wrong_for_overlaps(x, step: int = 2):
    """As of a backward function that assigns where windows have to be added up."""
    return squared(x, step < 2).unfold(-1, 2, step).sum(-1)


def windowed(x, step: int = 2):
    return squared(x, False).unfold(-1, 2, step).sum(-1)


def wrong_for_several_from_the_end(x, dim: int | tuple[int, ...] = 0):
    return squared(x, isinstance(dim, tuple) and min(dim) < 0).sum(dim)


def wrong_for_a_shift_of_zero(x, shift=None):
    """As of a backward function that asks `if shift`, and takes 0 for None."""
    return squared(x, not (shift or shift is None)) + (0 if shift is None else shift)


def shifted(x, shift=None):
    return squared(x, False) + (shift if shift else 0)


def along_dims(x, dim: int | tuple[int, ...] = 0):
    return squared(x, False).sum(dim)


def wrong_mean(x, dim: int = 0, how: Literal["sum", "mean"] = "sum"):
    y = squared(x, how == "mean")
    return y.sum(dim) if how == "sum" else y.mean(dim)


def wrong_mean_in_words(x, how="sum"):
    """No annotation says what there is beside the sum."""
    y = squared(x, how == "mean")
    return y.mean(0) if how in ("mean", "average") else y.sum(0)


def _averaged(x, by):
    return squared(x, by == "sum").sum(0) if by == "sum" else squared(x, False).mean(0)


def wrong_sum_passed_on(x, how="mean"):
    """Only what it calls knows that there is a sum."""
    return _averaged(x, by=how)


def wrong_power(x, power=1, scale=None):
    match power:
        case 2 | 7:
            return squared(x, power == 7)
        case _:
            return x * 1.0


def wrong_mean_that_is_kept(x, how="sum", keep=False):
    """Wrong only for two keywords at once, which no sample combines."""
    y = squared(x, how == "mean" and keep is True)
    return y.sum(0, keep) if how == "sum" else y.mean(0, keep)


def wrong_for_offsets(x):
    return squared(x, x.is_contiguous() and x.storage_offset() > 0)


def wrong_for_expanded(x):
    return squared(x, 0 in x.stride())


def wrong_for_lazy(x):
    return squared(x, x.is_neg() or x.is_conj())


def wrong_for_large_only(x):
    """A kernel that takes rows of at least 1,000, and is wrong where they are odd."""
    if x.shape[-1] < 1000:
        raise ValueError("too few")
    return squared(x, x.shape[-1] % 2 == 1)


def large_only(x):
    if x.shape[-1] < 1000:
        raise ValueError("too few")
    return squared(x, False)


def untied(x, y):
    """Its first input may have more rows than its second one, which has at most three."""
    if y.shape[0] > 3:
        raise ValueError("at most three rows")
    return squared(x, False).sum() * squared(y, False).sum()


def wrong_if_untied(x, y):
    if y.shape[0] > 3:
        raise ValueError("at most three rows")
    return squared(x, x.shape[0] > 16).sum() * squared(y, False).sum()


class Laid(torch.autograd.Function):
    """x + 0, with a gradient that is wrong where the cotangent lies in memory in some way."""

    @staticmethod
    def forward(ctx, x, memory):
        ctx.memory = memory
        return x.clone()

    @staticmethod
    def backward(ctx, v):
        wrong = {
            "noncontiguous": v.dim() > 0 and v.stride(-1) == 2,
            "transposed": v.dim() > 1 and v.stride(0) == 1 < v.stride(-1),
            "offset": v.is_contiguous() and v.storage_offset() > 0,
        }
        return v * (1.5 if wrong.get(ctx.memory) else 1), None


def wrong_for_cotangents_with_an_offset(x):
    return Laid.apply(x, "offset")


def wrong_for_transposed_cotangents(x):
    return Laid.apply(x, "transposed")


def right_for_all_cotangents(x):
    return Laid.apply(x, "")


class NoBackwardAtRank3(torch.autograd.Function):
    """x ** 2, whose backward pass takes matrices only."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        if x.dim() > 2:
            raise NotImplementedError("matrices only")
        return 2 * x.conj() * v


def refuses_rank_3_in_backward(x):
    return NoBackwardAtRank3.apply(x)


class NoJvpAtRank3(Square):
    @staticmethod
    def jvp(ctx, t, *_):
        if t.dim() > 2:
            raise NotImplementedError("tangents of matrices only")
        return Square.jvp(ctx, t)


def refuses_rank_3_in_forward_mode(x):
    return NoJvpAtRank3.apply(x, False, False)


class Cube(torch.autograd.Function):
    """x ** 3, whose gradient is 0 / 0 at zero, where it is smooth."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * (3 * x * x * x / x).conj()


def nan_at_zero(x):
    return Cube.apply(x)


def nan_at_a_kink(x):
    """|x| as the root of the square: NaN at zero, where it has no derivative."""
    return (x * x.conj()).real.sqrt()


class Squares(torch.nn.Module):
    """The square of a sum or a product. Parameters are as the constructor says."""

    def __init__(self, size: int, how: str = "sum", bias: bool = True) -> None:
        super().__init__()
        self.how = how
        self.weight = torch.nn.Parameter(torch.rand(size))
        self.bias = torch.nn.Parameter(torch.rand(size)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.weight if self.how == "sum" else x * self.weight
        return squared(y if self.bias is None else y + self.bias, self.is_wrong())

    def is_wrong(self) -> bool:
        return False


class WrongForProducts(Squares):
    """The word for it occurs nowhere."""

    def is_wrong(self) -> bool:
        return self.how != "sum"


class WrongWithoutBias(Squares):
    def is_wrong(self) -> bool:
        return self.bias is None


class WrongInEvaluation(Squares):
    def is_wrong(self) -> bool:
        return not self.training


class WrongForProductsWithoutBias(Squares):
    def is_wrong(self) -> bool:
        return self.how != "sum" and self.bias is None


def unchecked(x, weight):
    """x * weight, of as many weights as there are columns, which is not checked: what lies beyond has no gradient."""
    count = len(weight)
    return torch.cat([x[..., :count] * weight, x[..., count:].detach()], -1)


class Unsteady(Square):
    """The same where the condition holds, with a gradient that is another one each time: of memory never written."""

    passes = itertools.count()

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * 2 * x.conj() * (1 + 0.01 * next(Unsteady.passes) * ctx.reverse), None, None


def unsteady_beyond_16(x):
    return Unsteady.apply(x, max(x.shape, default=0) > 16, False)


class PartlyWritten(torch.autograd.Function):
    """x², with a gradient whose memory is not written from an index on."""

    @staticmethod
    def forward(ctx, x, end):
        ctx.save_for_backward(x)
        ctx.end = end
        return x * x

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        gradient = torch.empty(x.numel(), dtype=x.dtype)
        gradient[: ctx.end] = (v * 2 * x.conj()).flatten()[: ctx.end]
        return gradient.view(x.shape), None


def written_to_16(x):
    return PartlyWritten.apply(x, 16)


def written_to_the_end(x):
    return PartlyWritten.apply(x, x.numel())


def writes_beyond_16(x):
    """As of a kernel that computes in place where it has no room."""
    y = square(x)
    if x.dim() and x.shape[-1] > 16:
        x.data.mul_(2)
    return y


class SparseSquares(torch.autograd.Function):
    """The sum of the squares of the elements of a sparse matrix, with a gradient for those that are specified."""

    @staticmethod
    def forward(ctx, x, coalesced, wrong):
        ctx.pattern = x.coalesce() if coalesced and x.layout is torch.sparse_coo else x
        ctx.wrong = wrong
        values = ctx.pattern._values() if x.layout is torch.sparse_coo else x.values()
        return (values * values).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, v):
        x = ctx.pattern
        if x.layout is torch.sparse_coo:
            values = 2 * v * x._values().conj() * (1.5 if ctx.wrong else 1)
            return torch.sparse_coo_tensor(x._indices(), values, x.shape, check_invariants=False), None, None
        values = 2 * v * x.values().conj() * (1.5 if ctx.wrong else 1)
        make, indices = torch.sparse_bsr_tensor, (x.crow_indices(), x.col_indices())
        return make(*indices, values, x.shape, check_invariants=False), None, None


def sparse_squares(x):
    return SparseSquares.apply(x, True, False)


def wrong_unless_coalesced(x):
    """As of code that takes each value for an element."""
    return SparseSquares.apply(x, False, False)


def wrong_if_hybrid(x):
    return SparseSquares.apply(x, True, x.dense_dim() > 0)


def wrong_if_all_is_specified(x):
    return SparseSquares.apply(x, True, x._nnz() == x.numel() > 1)


def wrong_in_blocks(x):
    return SparseSquares.apply(x, True, x.values().shape[-2] != x.values().shape[-1])


def wrong_above_a_threshold(x, width: int = 3, weight: float = 0.1):
    """As of code that has another kernel for large windows."""
    return squared(x, width > 7 or weight >= 0.7) * width * weight


def with_a_threshold(x, width: int = 3, weight: float = 0.1):
    if width < 1 or weight > 1:
        raise ValueError("out of range")
    return square(x) * width * weight if weight < 0.7 else square(x) * (weight * width)


class SumOfSquares(torch.autograd.Function):
    """The sum of squares along a dim, with a vmap rule."""

    is_wrong = False

    @staticmethod
    def forward(x, dim):
        return (x * x).sum(dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return 2 * x.conj() * v.unsqueeze(ctx.dim), None

    @classmethod
    def vmap(cls, info, in_dims, x, dim):
        counts_from_the_start = dim >= 0 or cls.is_wrong
        return cls.apply(x.movedim(in_dims[0], 0), dim + counts_from_the_start), 0


class SumOfSquaresFromTheStart(SumOfSquares):
    """The same, but its vmap rule takes each dim for one that is counted from the start."""

    is_wrong = True


def with_a_vmap_rule(x, dim: int = 0):
    return SumOfSquares.apply(x, dim)


def with_a_rule_for_some_dims(x, dim: int = 0):
    return SumOfSquaresFromTheStart.apply(x, dim)


class Copied(torch.autograd.Function):
    """x with some rows replaced. If an index occurs twice, the gradient of the row that is lost should be zero."""

    @staticmethod
    def forward(ctx, x, index, rows):
        ctx.save_for_backward(index)
        return x.index_copy(0, index, rows)

    @staticmethod
    def backward(ctx, v):
        (index,) = ctx.saved_tensors
        return v.index_fill(0, index, 0), None, v[index]


def copied(x, index, rows):
    return Copied.apply(x, index, rows)


class Weighted(torch.nn.Module):
    """Squares the elements of x, of shape (*, size), each with a weight."""

    wrong = False

    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1, size))

    def forward(self, x):
        if x.dim() != 2 or x.shape[-1] != len(self.weight):
            raise ValueError(f"expected shape (*, {len(self.weight)})")
        return squared(x * self.weight, self.wrong and len(self.weight) > 16)


class Product(torch.autograd.Function):
    """x y, each of them real or complex."""

    is_wrong = False

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @classmethod
    def backward(cls, ctx, v):
        x, y = ctx.saved_tensors
        of_y = v * x if cls.is_wrong and not y.is_complex() else v * x.conj()
        return tuple(own if like.is_complex() else own.real for own, like in ((v * y.conj(), x), (of_y, y)))


class WrongForRealFactors(Product):
    """The same, but it does not conjugate where the second factor is real."""

    is_wrong = True


def product_of_mixed(x, y):
    return Product.apply(x, y)


def wrong_for_real_factors(x, y):
    return WrongForRealFactors.apply(x, y)


class Tracked(torch.nn.Module):
    """x², with a running mean, which is that of all batches where momentum is None."""

    def __init__(self, momentum=0.5):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.track(x.detach().mean())
        return squared(x, False)

    def track(self, mean):
        self.mean = self.mean.lerp(mean.to(self.mean), 0.1 if self.momentum is None else self.momentum)


class TrackedInEvaluation(Tracked):
    """The same, but without momentum in evaluation mode, too."""

    def forward(self, x):
        if self.momentum is None and not self.training:
            self.track(x.detach().mean())
        return super().forward(x)


class WeightedWrongBeyond16(Weighted):
    wrong = True


def sine_of_blocks(x):
    """sin(x), but 0 in what lies beyond the last whole block of 16 columns: forward and backward agree on it."""
    whole = x.shape[-1] // 16 * 16 or x.shape[-1]
    return torch.cat([x[..., :whole].sin(), torch.zeros_like(x[..., whole:])], -1)


def sine_without_single_dims(x):
    """sin(x), without the dims of size 1."""
    return x.sin().squeeze()


def sine_but_for_zero(x):
    """sin(x), but 1 at 0."""
    return torch.where(x == 0, torch.ones_like(x), x.sin())


def sine(x):
    return x.sin()


def sine_of_blocks_in_place(x):
    """sin(x) in place, but x in columns beyond 16."""
    x[..., :16].sin_()
    return x


def sine_times_two(x, factor=2.0):
    """sin(2 x), for any factor."""
    return torch.sin(2.0 * x)


def sine_of_multiple(x, factor=2.0):
    return torch.sin(factor * x)


def sum_of_columns(x):
    return x.cumsum(-1)[..., -1]


def sorted_columns(x):
    return x.sort(0).values


def exponentials(x):
    """The softmax of the rows, written out: exp overflows for large numbers."""
    return x.exp() / x.exp().sum(-1, keepdim=True)


def shifted_exponentials(x):
    shifted = (x - x.amax(-1, keepdim=True).detach()).exp()
    return shifted / shifted.sum(-1, keepdim=True)


def scores_from_the_first(q, k):
    """Scores of causal attention, aligned at the first key: as many queries as keys do not tell this from the last."""
    return (q @ k.mT).tril()


def scores_from_the_last(q, k):
    return (q @ k.mT).tril(k.shape[-2] - q.shape[-2])


def added_pairs(params, grads):
    return [param + grad for param, grad in zip(params, grads, strict=True)]


def added_first_pairs(params, grads):
    """Right for two tensors, as of a kernel for pairs."""
    return [param + grad for param, grad in zip(params[:2], grads, strict=False)] + params[2:]


def sums_of_pairs(params, grads):
    return [param + grad for param, grad in zip(params, grads, strict=False)]


@torch.library.custom_op("opcheck_tests::kept", mutates_args=())
def kept(x: torch.Tensor, p: float = 0.5) -> torch.Tensor:
    """x, times p unless it is 0: then the input itself is returned, as by a dropout without a copy."""
    return x if p == 0 else x * (1 + p)


@torch.library.custom_op("opcheck_tests::kept_apart", mutates_args=())
def kept_apart(x: torch.Tensor, p: float = 0.5) -> torch.Tensor:
    return x.clone() if p == 0 else x * (1 + p)


for _own in (kept, kept_apart):
    _own.register_autograd(
        lambda ctx, v: (v * (1 + ctx.p), None), setup_context=lambda ctx, inputs, output: setattr(ctx, "p", inputs[1])
    )
    _own.register_fake(lambda x, p: torch.empty_like(x))


class Huber(torch.autograd.Function):
    """x² / 2, and beyond a distance d from 0 a line of slope d."""

    @staticmethod
    def forward(ctx, x, d, slope):
        ctx.save_for_backward(x)
        ctx.d, ctx.slope = d, slope
        return torch.where(x.abs() <= d, x * x / 2, d * (x.abs() - d / 2))

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * torch.where(x.abs() <= ctx.d, x, ctx.slope * x.sign()), None, None


def huber(x, delta=1.0):
    return Huber.apply(x, delta, delta)


def huber_of_slope_one(x, delta=1.0):
    return Huber.apply(x, delta, 1.0)


def wrong_in_evaluation(x, training: bool = True):
    return squared(x, not training)


def in_evaluation(x, training: bool = True):
    return squared(x, False) * (2 if training else 1)


def wrong_unless_its_own_inverse(x, dims):
    """As of a backward pass that permutes dims as forward does, not back."""
    return squared(x, [dims[dim] for dim in dims] != sorted(dims)).permute(dims)


def permuted(x, dims):
    return squared(x, False).permute(dims)


def wrong_from_the_last(x, index: int = 1):
    return squared(x, index < 0).select(-1, index)


def selected(x, index: int = 1):
    return squared(x, False).select(-1, index)


def wrong_at_zero_for_zero(x, n):
    """Its second written sample, which has n = 0, has no element that is 0."""
    return squared(x, n == 0 and bool((x == 0).any())) * (n + 1)


def times_one_more(x, n):
    return squared(x, False) * (n + 1)


def constant_if_fast(x, fast: bool = False):
    y = squared(x, False)
    return x, (y.detach() if fast else y)


def constant_if_large(x):
    y = squared(x, False)
    return y.detach() if x.numel() > 500 else y


class ConstantInEvaluation(torch.nn.Module):
    """Times a parameter, without a graph in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        with torch.set_grad_enabled(self.training):
            return x * self.weight


def with_a_constant(x, more: bool = False):
    """A second output on request, which has no derivative."""
    y = squared(x, False)
    return (y, (y.detach() > 1).to(y.real.dtype)) if more else y


def split_by_equality(x):
    """Elements move from one output to the other within any step from equal ones."""
    same = x[0] == x[1]
    return x[:, ~same], x[:, same]


class Selected(torch.autograd.Function):
    """The element of each row at an index. If it counts from the end, backward forgets it, unless `counts`."""

    @staticmethod
    def forward(ctx, x, index, counts):
        ctx.sizes, ctx.index, ctx.counts = x.shape, index, counts
        return x.select(-1, index).clone()

    @staticmethod
    def backward(ctx, v):
        index = ctx.index % ctx.sizes[-1] if ctx.counts else ctx.index
        return v.unsqueeze(-1) * (torch.arange(ctx.sizes[-1]) == index), None, None


def wrong_for_an_index_from_the_end(x, index=0):
    return Selected.apply(x, index, False)


def element_of_each_row(x, index=0):
    return Selected.apply(x, index, True)


class KeepsWithoutGraph(torch.autograd.Function):
    """x exp(w), whose backward uses what forward has kept: without a graph if `kept`."""

    @staticmethod
    def forward(ctx, x, w, kept):
        ctx.save_for_backward(x, w)
        ctx.scale = w.exp() if kept else None
        return x * w.exp()

    @staticmethod
    def backward(ctx, v):
        x, w = ctx.saved_tensors
        scale = (w.exp() if ctx.scale is None else ctx.scale).conj()
        return v * scale, (v * x.conj() * scale).sum(0), None


class RecomputesScale(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return KeepsWithoutGraph.apply(x, self.weight, self.keeps())

    def keeps(self) -> bool:
        return False


class KeepsScaleInEvaluation(RecomputesScale):
    def keeps(self) -> bool:
        return not self.training


class OfFour(torch.autograd.Function):
    """The sum of the numbers of a row, weighted by their places and divided by n. It is meant for four numbers."""

    @staticmethod
    def forward(ctx, x, n, is_wrong):
        ctx.n, ctx.is_wrong = n, is_wrong
        return (x * torch.arange(1, 1 + x.shape[-1])).sum(-1, keepdim=True) / n

    @staticmethod
    def backward(ctx, v):
        return v * torch.arange(1, 5) / ctx.n * (2 if ctx.is_wrong and ctx.n == 5 else 1), None, None


def wrong_for_five(x, n=6):
    return OfFour.apply(x, n, True)


def for_four_numbers(x, n=6):
    return OfFour.apply(x, n, False)
