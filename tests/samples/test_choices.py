"""Which values of keywords are tried, by the annotations and the code of an operator."""

import math
from enum import Enum
from math import inf
from typing import Optional

import pytest
import torch
from operators import varied

from opcheck.samples.choices import OTHER, choices_of
from opcheck.samples.derive.keywords import NONE
from opcheck.samples.modules import ModuleCall
from opcheck.spec.values import ObjectValue, TupleValue


class Chosen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, how="sum", order=2):
        if x == "none of its own" or order != -1 or order > 3:
            return x
        return x if how not in {"sum", "product"} else x + order


def passing_on(x, how="sum", power=2, *others):
    torch.add(x, power)
    unknown(power, *others)  # noqa: F821
    return Chosen.apply(x, how, power)


TABLE = {"tanh": torch.tanh, "erf": torch.erf}


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p=2.0, how="tanh"):
        ctx.p, ctx.how = p, how
        return TABLE[how](x)

    @staticmethod
    def backward(ctx, v):
        p = ctx.p
        return v if p == 1.5 else 2 * v, None, None


class KeptApart(torch.autograd.Function):
    @staticmethod
    def forward(x, p=2.0):
        return x**p

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.p = inputs

    @staticmethod
    def jvp(ctx, t, *_):
        return t if ctx.p == 1.5 else 2 * t


def optional(x, scale: float | None = None, dim: Optional[int] = None, top: int | None = None, mask=None, axis=None):  # noqa: UP045
    return x


SEVERAL = TupleValue(tuple=[0, 1]), TupleValue(tuple=[-2, -1])


def along(x, dim: int | tuple[int, ...] = -1, axes=None, size: tuple[int, ...] = (), axis=0):
    return x if isinstance(axis, (tuple, list)) or isinstance(size, tuple) else 2 * x


class Worded(torch.nn.Module):
    def forward(self, x, how="first"):
        return x[-1] if how == "last" else x[0]


class How(Enum):
    SUM = "sum"
    MEAN = "mean"


def in_other_words(x, how="sum", act="silu", mode=How.SUM, flag: bool | None = None):
    table = {"silu": 1, "gelu": 2}[act]
    return x if how.lower() == "mean" else table * x


def in_truth(x, low=None, high=1.0, scale=2, size=None, flag=False, how="sum", act: str | None = None, top=3):
    if low and not flag:
        x = x.clamp(min=low)
    kept = x * (scale or 1) if not high else x
    return kept if how and act and (size if top > 2 else 1) else -kept


def in_order(x, p=0.1, k=3, n=1, w=1.0, q=2.0):
    if n < 1 or w <= 0.0 or q > math.inf or q < p:
        return x
    return x if p >= 0.5 or k < 8 or k <= 8 else -x


def in_norms(x, p=2.0, q=2.0, r=2.0, s=2.0):
    if p == float("inf") or q == torch.inf or r == float("-inf") or s in (-math.inf, float("nan")):
        return x
    return x if s == float(p) else 2 * x


def broadcast(x, y, how="sum"):
    return Chosen.apply(*torch.broadcast_tensors(x, y)[:1], how, 2)


@pytest.mark.parametrize(
    ("operator", "choices"),
    [
        (
            in_other_words,
            {
                "how": ["mean", OTHER],
                "act": ["silu", "gelu", OTHER],
                "flag": [True, False],
                "mode": [ObjectValue(object=f"{__name__}.How.MEAN")],
            },
        ),
        (in_truth, {"low": [0], "high": [0], "scale": [0], "top": [2, 3]}),
        (in_order, {"p": [0.25, 0.75], "k": [7, 8, 9], "n": [0, 1]}),
        (in_norms, {"p": [inf], "q": [inf], "r": [-inf], "s": [-inf]}),
        (broadcast, {"how": ["sum", "product", OTHER]}),
        (varied.reduced, {"how": ["sum", "mean"]}),
        (varied.wrong_mean_in_words, {"how": ["mean", "average", OTHER]}),
        (varied.wrong_power, {"power": [7, 2]}),
        (Chosen.apply, {"order": [-1, 3, 4], "how": ["sum", "product", OTHER]}),
        (passing_on, {"power": [-1, 3, 4], "how": ["sum", "product", OTHER]}),
        (varied.wrong_sum_passed_on, {"how": ["sum", OTHER]}),
        (
            torch.nn.functional.mse_loss,
            {
                "reduction": ["none", "mean", "sum", OTHER],
                "size_average": [True, False],
                "reduce": [True, False],
            },
        ),
        (torch.nn.MSELoss, {"reduction": ["none", "mean", "sum", OTHER]}),
        (varied.Squares, {"how": ["sum", OTHER], "bias": [NONE]}),
        (varied.wrong_without_momentum, {"momentum": [NONE]}),
        (varied.biased, {}),
        (Kept.apply, {"p": [1.5], "how": ["tanh", "erf", OTHER]}),
        (KeptApart.apply, {"p": [1.5]}),
        (optional, {"scale": [0.5, 2.0], "dim": [0], "top": [2], "axis": [0]}),
        (along, {"dim": [*SEVERAL], "axes": [0], "axis": [*SEVERAL]}),
        (ModuleCall(Worded()), {"how": ["last", OTHER]}),
        (torch.sin, {}),
        (eval("lambda x, how='a': x if how == 'b' else 2 * x"), {}),
    ],
)
def test_choices_are_what_an_annotation_lists_and_what_code_compares_with(operator, choices):
    found = {name: sorted(map(str, values)) for name, values in choices_of(operator).items()}
    assert found == {name: sorted(map(str, values)) for name, values in choices.items()}
