"""Operators that are right on the CPU, and wrong elsewhere: each twin of `right` in one way."""

import torch


def elsewhere(x):
    return x.device.type != "cpu"


class Cube(torch.autograd.Function):
    """x^3, with what a device may do to it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * (3 * x**2).conj()

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * t


class Gradient(Cube):
    @staticmethod
    def backward(ctx, v):
        return Cube.backward(ctx, v) * (1 + 1e-7 * elsewhere(v))


class GradientStrides(Cube):
    @staticmethod
    def backward(ctx, v):
        found = Cube.backward(ctx, v)
        return found.mT.contiguous().mT if elsewhere(v) else found


class Tangent(Cube):
    @staticmethod
    def jvp(ctx, t):
        return Cube.jvp(ctx, t) * (1 + 1e-9 * elsewhere(t))


def right(x):
    return Cube.apply(x)


def rounded(x):
    """Off by a unit of rounding, which is excused."""
    return Cube.apply(x) * (1 + 2**-52 * elsewhere(x))


def inference(x):
    """Off in inference, on each device."""
    return Cube.apply(x) * (1 if torch.is_grad_enabled() else 1.01)


def value(x):
    return Cube.apply(x) * (1 + 1e-9 * elsewhere(x))


def place(x):
    return Cube.apply(x).cpu()


def dtype(x):
    found = Cube.apply(x)
    return found.to(torch.complex64 if found.is_complex() else torch.float32) if elsewhere(x) else found


def shape(x):
    return Cube.apply(x).unsqueeze(0) if elsewhere(x) else Cube.apply(x)


def strides(x):
    return Cube.apply(x).mT.contiguous().mT if elsewhere(x) else Cube.apply(x)


def gradient(x):
    return Gradient.apply(x)


def gradient_strides(x):
    return GradientStrides.apply(x)


def tangent(x):
    return Tangent.apply(x)


def noise(x):
    """Random: each device has numbers of its own."""
    return x * torch.rand_like(x.real)


def random_strides(x):
    return noise(x).mT.contiguous().mT if elsewhere(x) else noise(x)


def eigenvectors(x):
    """Of another phase elsewhere, which is not a mistake."""
    found = torch.linalg.eigh(x + x.mH).eigenvectors
    return -found if elsewhere(x) else found


def whole(x):
    return (x > 0.5).to(torch.int64) + elsewhere(x)


def only_elsewhere(x):
    if not elsewhere(x):
        raise NotImplementedError("no kernel for the CPU")
    return x**3


def beyond(x, weight):
    """x * weight on a device alone, of as many weights as there are columns, which is not checked."""
    only_elsewhere(x)
    count = weight.shape[-1]
    return torch.cat([x[..., :count] * weight, x[..., count:].detach()], -1)


class Unchecked(torch.autograd.Function):
    """x[index], which only the CPU checks: elsewhere an index beyond the end is that of the last row in backward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, index):
        if elsewhere(x):
            is_there = (index < len(x)).view(-1, *[1] * (x.ndim - 1))
            return torch.where(is_there, x[index.clamp(max=len(x) - 1)], x[:1] * 0)
        return x[index]

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, index = inputs
        ctx.shape = x.shape
        ctx.save_for_backward(index)
        ctx.save_for_forward(index)

    @staticmethod
    def backward(ctx, v):
        (index,) = ctx.saved_tensors
        return v.new_zeros(ctx.shape).index_add(0, index.clamp(max=ctx.shape[0] - 1), v), None

    @staticmethod
    def jvp(ctx, t, _):
        (index,) = ctx.saved_tensors
        return t[index.clamp(max=len(t) - 1)]


def unchecked(x, index):
    return Unchecked.apply(x, index)


def blocks(x):
    """x^3. Elsewhere, columns beyond the last whole block of 16 are 0, in forward and in backward alike."""
    whole = x.shape[-1] // 16 * 16 or x.shape[-1]
    left_out = torch.zeros_like(x[..., whole:]) if elsewhere(x) else x[..., whole:] ** 3
    return torch.cat([x[..., :whole] ** 3, left_out], -1)


def signs(x):
    """Without a derivative."""
    return x.detach().sgn()


def signs_of_blocks(x):
    """As `blocks`, without a derivative."""
    return blocks(x.detach().sgn())
