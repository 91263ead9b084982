"""References that are themselves at fault."""

from __future__ import annotations

import numpy
import torch


def raises(x):
    raise ZeroDivisionError("no such luck")


def returns_none(x):
    return None


def returns_text(x):
    return "0.5"


def returns_nothing(x):
    return ()


def sin_of_tensors(x):
    return torch.sin(x)


def sin_beside_zeros(x):
    return torch.zeros(x.shape, dtype=x.dtype) + x.sin()


def tripled(x):
    return 3 * x


def same(x):
    return x * 1


def tripled_in_place(x):
    x *= 3
    return x


def size_in_words(x):
    return torch.ones(x.size()) * x


def product_of_pair(pair):
    return numpy.multiply(pair.left, pair.right)


def product_of_dict(inputs):
    return numpy.exp(numpy.matmul(inputs["query"], numpy.swapaxes(inputs["key"], -1, -2)))


def ends_of_rays(rays):
    return numpy.add(rays.origin, rays.far * numpy.square(rays.direction))
