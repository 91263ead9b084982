"""Operators that are right, or wrong, in part: for some ranks, dtypes, outputs, or inputs of a batch."""

import torch
from torch import Tensor


class OfVectors(torch.autograd.Function):
    """2x, with a backward pass for vectors alone."""

    factor = 2.0

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, v):
        if v.dim() > 1:
            raise NotImplementedError("vectors only")
        return OfVectors.factor * v


def of_vectors(x: Tensor) -> Tensor:
    return OfVectors.apply(x)


class TimesConstant(torch.autograd.Function):
    """The product with a constant, such as a mask, whose gradient is None."""

    @staticmethod
    def forward(ctx, x, constant):
        ctx.save_for_backward(constant)
        return x * constant

    @staticmethod
    def backward(ctx, v):
        (constant,) = ctx.saved_tensors
        return v * constant.conj(), None


def times_constant(x: Tensor, constant: Tensor) -> Tensor:
    return TimesConstant.apply(x, constant)


class Exhausts(torch.autograd.Function):
    """2x, with a backward pass that runs out of memory."""

    error: type[Exception] = MemoryError

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, v):
        raise Exhausts.error("too much")


def exhausts(x: Tensor) -> Tensor:
    return Exhausts.apply(x)


class Product(torch.autograd.Function):
    """x y, whose batching rule is wrong where certain inputs are batched."""

    wrong_for: tuple[bool, ...] = ()
    """Which ones."""

    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, v):
        x, y = ctx.saved_tensors
        return v * y, v * x

    @staticmethod
    def vmap(info, in_dims, x, y):
        x, y = (z if dim is None else z.movedim(dim, 0) for z, dim in zip((x, y), in_dims, strict=True))
        rows = x * y
        return (rows.flip(0) if tuple(dim is not None for dim in in_dims) == Product.wrong_for else rows), 0


class TakesOneDimForAll(Product):
    """x y, whose batching rule looks for the batch of y where that of x is."""

    @staticmethod
    def vmap(info, in_dims, x, y):
        x_dim, y_dim = in_dims if None in in_dims else in_dims[:1] * 2
        return Product.vmap(info, (x_dim, y_dim), x, y)


def product_along_one_dim(x: Tensor, y: Tensor) -> Tensor:
    return TakesOneDimForAll.apply(x, y)


def product(x: Tensor, y: Tensor) -> Tensor:
    return Product.apply(x, y)


class ByApply(torch.autograd.Function):
    """x y, whose batching rule applies the function itself to whole batches."""

    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, v):
        x, y = ctx.saved_tensors
        return v * y.conj(), v * x.conj()

    @staticmethod
    def vmap(info, in_dims, x, y):
        return ByApply.apply(*_batches_first(in_dims, x, y)), 0


class ByKernel(ByApply):
    """x y, whose batching rule leaves no graph, as a kernel that it calls itself would."""

    @staticmethod
    def vmap(info, in_dims, x, y):
        x, y = _batches_first(in_dims, x, y)
        return x.detach() * y.detach(), 0


class ByKernelOfOne(ByApply):
    """x y, whose batching rule loses the gradient of x alone."""

    @staticmethod
    def vmap(info, in_dims, x, y):
        x, y = _batches_first(in_dims, x, y)
        return x.detach() * y, 0


class RaisesForBatches(ByApply):
    """x y of vectors, with a backward pass that refuses batches of them."""

    @staticmethod
    def backward(ctx, v):
        if v.dim() > 1:
            raise NotImplementedError("vectors only")
        return ByApply.backward(ctx, v)

    @staticmethod
    def vmap(info, in_dims, x, y):
        return RaisesForBatches.apply(*_batches_first(in_dims, x, y)), 0


class WrongInALoop(torch.autograd.Function):
    """2x, whose batching rule computes the right gradient, and backward another one."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, v):
        return 3 * v

    @staticmethod
    def vmap(info, in_dims, x):
        return 2 * x, in_dims[0]


def wrong_in_a_loop(x: Tensor) -> Tensor:
    return WrongInALoop.apply(x)


def _batches_first(in_dims, *tensors):
    return [x if dim is None else x.movedim(dim, 0) for x, dim in zip(tensors, in_dims, strict=True)]


def product_by_apply(x: Tensor, y: Tensor) -> Tensor:
    return ByApply.apply(x, y)


def product_by_kernel(x: Tensor, y: Tensor) -> Tensor:
    return ByKernel.apply(x, y)


def product_by_kernel_of_one(x: Tensor, y: Tensor) -> Tensor:
    return ByKernelOfOne.apply(x, y)


def product_raises_for_batches(x: Tensor, y: Tensor) -> Tensor:
    return RaisesForBatches.apply(x, y)


def no_leaves_in_single(x: Tensor) -> Tensor:
    """2x, which takes no leaves in single precision, having no derivative there."""
    if x.requires_grad and x.dtype is torch.float32:
        raise TypeError("no derivative in single precision")
    return 2 * x


def value_and_copy(x: Tensor) -> tuple[Tensor, Tensor]:
    """2x, and x without a graph."""
    return 2 * x, x.detach() * 1.0


def value_and_constant(x: Tensor) -> tuple[Tensor, Tensor]:
    """2x, and numbers that do not depend on x: they have no batch where x has one."""
    return 2 * x, torch.ones(2, dtype=x.dtype)


def _checked(x, is_right):
    try:
        holds = bool(is_right.all())
    except RuntimeError:  # numbers of a batch are not known
        holds = True
    if not holds:
        raise ValueError("expected 1")
    return x * x


def up_to_one(x):
    """A probability, say."""
    return _checked(x, x <= 1)


def from_one_on(x):
    return _checked(x, x >= 1)


def one_only(x):
    return _checked(x, x == 1)


class Linear(torch.autograd.Function):
    """x @ w.mT, with a vmap rule. For weights that all rows share, it calls the kernel itself if `kernel`."""

    @staticmethod
    def forward(x, w, kernel):
        return x @ w.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, v):
        x, w = ctx.saved_tensors
        return v @ w.conj(), (v.mT.conj() @ x).conj(), None

    @staticmethod
    def vmap(info, in_dims, x, w, kernel):
        x = x.expand(info.batch_size, *x.shape) if in_dims[0] is None else x.movedim(in_dims[0], 0)
        if in_dims[1] is None:
            flat = x.flatten(0, 1)
            rows = (flat @ w.mT).detach() if kernel else Linear.apply(flat, w, kernel)
            return rows.unflatten(0, x.shape[:2]), 0
        each = zip(x, w.movedim(in_dims[1], 0), strict=True)
        return torch.stack([Linear.apply(*one, kernel) for one in each]), 0


def linear(x, w):
    return Linear.apply(x, w, False)


def linear_by_kernel_of_shared_weights(x, w):
    return Linear.apply(x, w, True)


def detaches_the_second(x, y):
    return x * y.detach()
