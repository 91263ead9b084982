"""What a signature, and the documentation beside it, says of the parameters of an operator."""

from __future__ import annotations

import torch

from opcheck.draft.parameter import TENSOR
from opcheck.draft.signature import parameters_of, parameters_of_constructor


class Attention(torch.autograd.Function):
    """Attend.

    Args:
        scale: of shape (heads, 1)
    """

    @staticmethod
    def forward(ctx, q, k, scale):
        """
        q size: (bsz, n_heads, seq_len, head_dim)
        k size: (bsz, 1, seq_len, head_dim)
        """
        return q * scale + k


def test_apply_is_documented_by_its_function_and_its_forward():
    ((q, k, scale),) = parameters_of(Attention.apply, "attention.Attention.apply")
    assert (q.name, q.shapes) == ("q", ((2, 2, 3, 4),))
    assert (k.name, k.shapes, k.options[0]) == ("k", ((2, 1, 3, 4),), TENSOR)  # where nothing is said, k is a number
    assert (scale.name, scale.shapes) == ("scale", ((2, 1),))


def test_a_function_of_torch_has_the_parameters_of_its_schemas():
    first, *_ = parameters_of(torch.add, "torch.add")
    assert [(one.name, one.required) for one in first] == [("self", True), ("other", True), ("alpha", False)]


class Scale(torch.nn.Module):
    def __init__(self, shape: tuple[int, ...], factor: float = 2.0):
        super().__init__()


class Passes(Scale):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class Named(Scale):
    def __init__(self, bias, *, shift=0.0, **kwargs):
        super().__init__(**kwargs)


class Plain(Scale):
    def __init__(self):
        super().__init__((2,))


def test_what_a_constructor_passes_on_is_what_that_of_its_base_takes():
    assert [one.name for one in parameters_of_constructor(Passes)] == ["shape", "factor"]
    assert [(one.name, one.required, one.keyword) for one in parameters_of_constructor(Named)] == [
        ("bias", True, False),
        ("shift", False, True),
        ("shape", False, True),  # an error asks for it
        ("factor", False, True),
    ]
    assert parameters_of_constructor(Plain) == []
    assert [one.name for one in parameters_of_constructor(torch.nn.Linear)][:2] == ["in_features", "out_features"]
