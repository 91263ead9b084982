"""Operators that are right at small samples, and wrong at what these stand for, each beside one that is right."""

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


def wrong_for_size_one(x):
    return squared(x, 1 in x.shape)


def wrong_for_odd_multiples(x):
    """As of a kernel that takes four numbers at a time, and has no tail."""
    return squared(x, x.dim() > 0 and x.shape[-1] > 4 and x.shape[-1] % 4 > 0)


def wrong_for_rank_3(x):
    return squared(x, x.dim() > 2)


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


def scaled(x, flip: bool = False, factor: float = 1.0):
    return squared(-x if flip else x, False) * factor


def wrong_flipped(x, flip: bool = False, factor: float = 1.0):
    return squared(-x if flip else x, flip) * factor


def wrong_scaled(x, flip: bool = False, factor: float = 1.0):
    return squared(-x if flip else x, factor > 2) * factor


def wrong_for_pairs(x, flip: bool = False):
    """Only beyond 16 and flipped at once."""
    return squared(-x if flip else x, flip and max(x.shape, default=0) > 16)


def kinked(x):
    """|x|, which has no derivative at zero."""
    return abs(x)


def random_where_large(x):
    return squared(x, False) * (torch.rand_like(x.real) if x.numel() > 16 else 1)


def exploding(x):
    """So large beyond 16 that differences say nothing."""
    return squared(x, False) * (1e7 if x.numel() > 16 else 1)


def refuses_rank_3(x):
    if x.dim() > 2:
        raise ValueError("matrices only")
    return squared(x, False)
