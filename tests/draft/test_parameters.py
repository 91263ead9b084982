"""What is tried for a parameter follows from its name, annotation, default and documentation."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import pytest
import torch

from opcheck.draft.parameters import (
    INDEX,
    IS_TENSOR,
    NONE,
    REQUIRED,
    TENSOR,
    TENSORS,
    Parameter,
    documented,
    parameters_of,
    parameters_of_constructor,
    shapes_in,
)  # fmt: skip
from opcheck.samples.resolve import resolve


class Mode(Enum):
    FAST = 1
    SLOW = 2


def options(name, annotation="", default=REQUIRED):
    return list(Parameter.of(name, annotation, default).options)


@pytest.mark.parametrize(
    ("name", "annotation", "first"),
    [
        ("x", "Tensor", TENSOR),
        ("x", "torch.Tensor", TENSOR),
        ("xs", "list[Tensor]", TENSORS),
        ("x", "", TENSOR),
        ("dim", "int", -1),
        ("n_iter", "int", 2),
        ("p", "float", 0.5),
        ("alpha", "float", 1.5),
        ("flag", "bool", False),
        ("size", "Tuple[int, int]", {"tuple": [2, 2]}),
        ("size", tuple[int, int, int], {"tuple": [2, 2, 2]}),
        ("sizes", "list[int]", [2, 2]),
        ("sigma", "tuple[float, float]", {"tuple": [2, 2]}),
        ("cutoffs", "Sequence[float]", [0.5, 0.25]),
        ("mode", Literal["fast", "slow"], "fast"),
        ("mode", Literal[3] | None, 3),
        ("mode", Mode, {"object": f"{__name__}.Mode.FAST"}),
        ("mode", str | int | Mode, {"object": f"{__name__}.Mode.FAST"}),
        ("transform", "Callable[[int, int], Module]", {"object": "torch.tanh"}),
        ("net_create_fn", "", {"object": "torch.tanh"}),
        ("dim", "", -1),
        ("sections", "", [1, 1]),
        ("to", torch.dtype, {"dtype": "float64"}),
        ("to", "str | torch.device", "cpu"),
        ("net", torch.nn.Module, {"call": "torch.nn.Identity"}),
    ],
)
def test_the_likeliest_value_comes_first(name, annotation, first):
    assert options(name, annotation)[0] == first


def test_a_tensor_may_be_one_of_indices():
    assert options("target", "Tensor") == options("x", "Tensor") == [TENSOR, INDEX]


def test_what_may_be_none_is_none_where_nothing_else_is_guessed():
    assert options("config", Mode | None) == options("config", Mode)
    assert options("config", dict | None) == [NONE]
    assert options("weight", torch.Tensor | None) == [TENSOR, INDEX, NONE]


def test_nothing_is_guessed_for_what_is_no_tensor_and_no_number():
    assert options("config", "Config") == []
    assert options("path", "str") == []


@pytest.mark.parametrize(
    ("name", "annotation", "first"),
    [
        ("in_features", "int", 3),
        ("num_heads", "", 1),
        ("kernel_size", "", 2),
        ("rows", "", 2),
        ("p", "float", 0.5),
        ("weight", "Tensor", TENSOR),
        ("net", torch.nn.Module, {"call": "torch.nn.Identity"}),
    ],
)
def test_constructors_take_numbers(name, annotation, first):
    assert Parameter.of(name, annotation, constructor=True).options[0] == first


def test_a_constructor_may_take_what_cannot_be_guessed():
    assert Parameter.of("type", "str", constructor=True).options == ()


@pytest.mark.parametrize(
    ("name", "default", "tried"),
    [
        ("keepdim", False, [True]),
        ("inplace", False, []),
        ("training", True, [False]),
        ("create_graph", False, []),
        ("reduction", "mean", ["sum", "none"]),
        ("weight", None, [TENSOR]),
        ("eps", 1e-5, []),
        ("mode", Mode.FAST, [{"object": f"{__name__}.Mode.SLOW"}]),
    ],
)
def test_only_flags_reductions_members_and_tensors_are_tried_besides_their_defaults(name, default, tried):
    assert options(name, default=default) == tried


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("a tensor of shape :math:`(*, 3, 3)`", [(2, 3, 3), (3, 3)]),
        ("must be a Bx2x3 tensor", [(2, 2, 3)]),
        ("Expected shape: ['B', '4', '4']", [(2, 4, 4)]),
        ("(B, 3) or (3,)", [(2, 3), (3,)]),
        ("Float[Tensor, 'batch 3']", [(2, 3)]),
        ("torch.Size([2, 5])", [(2, 5)]),
        ("the quaternion (w, x, y, z), see f(x)", []),
        ("(1000, 1000)", []),
        ("Tensor of shape (batch_size, num_heads, seq_len, head_dim)", [(2, 2, 3, 4)]),
        ("size: [bsz, 1, hidden_size]", [(2, 1, 4)]),
        ("the size (int, optional), the shape (tuple, list)", []),
    ],
)
def test_shapes_are_read(text, shapes):
    assert shapes_in(text) == shapes


def test_documentation_belongs_to_its_parameter():
    doc = "Rotate.\n\nArgs:\n    x: points of shape\n      :math:`(*, 2)`.\n    y: of shape (N, 3).\n\nReturns: (N, 7)"
    assert shapes_in(documented(doc, "x")) == [(2, 2), (2,)]
    assert shapes_in(documented(doc, "y")) == [(2, 3)]
    assert documented(doc, "z") == ""
    assert shapes_in(documented("q size: (bsz, seq_len, rotary_dim)\nk: (2, 2)", "q")) == [(2, 3, 4)]


@pytest.mark.parametrize(
    ("doc", "is_tensor"),
    [
        ("alpha : `torch.Tensor`\n    the angle", True),
        ("alpha (Tensor): the angle", True),
        ("alpha (torch.Tensor, optional): the angle", True),
        (":param alpha: FloatTensor of angles", True),
        ("alpha (float): scale of the tensor", False),
        ("alpha: scale of a Tensor", False),
        ("alpha (int or Tensor): the angle", False),
        ("beta (Tensor): the angle", False),
    ],
)
def test_documentation_says_what_is_a_tensor(doc, is_tensor):
    assert bool(IS_TENSOR.search(documented(doc, "alpha"))) is is_tensor


def test_strings_that_documentation_quotes_are_tried_where_a_string_is_taken():
    def drop(x, p: float, mode: str, fmt: str = "xyxy", by="rows"):
        """Drop.

        Args:
            x (Tensor): the input, not "y"
            p: probability, one of 'a' and 'b'
            mode (str): ``"batch"`` or ``"row"``: the input's "batches" are dropped
            fmt: one of 'xyxy', 'xywh'.
            by: 'rows' or a number

        >>> drop(x, 0.5, "none")
        """

    (parameters,) = parameters_of(drop, "demo.drop")
    options = {one.name: one.options for one in parameters}
    assert options["mode"] == ("batch", "row", "batches", "none")
    assert options["fmt"] == ("xywh",)
    assert options["by"] == ()
    assert not any(isinstance(value, str) for name in ("x", "p") for value in options[name])


def test_an_annotation_that_is_none_is_none_at_all():
    """torch's BroadcastingList2[int] is None when it runs."""

    def pool(x, output_size: None, eps: float): ...

    (parameters,) = parameters_of(pool, "demo.pool")
    assert parameters[1].options[0] == 2


def test_dims_are_lists_of_whole_numbers_from_zero_on():
    def permute(x, dims: list[int]): ...

    (parameters,) = parameters_of(permute, "demo.permute")
    assert parameters[1].options[0] == [0]


def test_a_documented_tensor_is_tried_first_whatever_its_name():
    def turned(alpha, beta):
        """Turn.

        Args:
            alpha (Tensor): the angle
            beta (float): the share
        """

    ((alpha, beta),) = parameters_of(turned, "turned")
    assert alpha.options[0] == TENSOR
    assert beta.options[0] != TENSOR


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


def test_k_beside_q_is_a_tensor():
    ((_, k, _),) = parameters_of(lambda q, k, v: q @ k @ v, "own.attended")
    assert k.options[0] == TENSOR
    ((_, k),) = parameters_of(lambda x, k: x.topk(k).values, "own.largest")
    assert k.options[0] == 2


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


class Plain(Scale):
    def __init__(self):
        super().__init__((2,))


class Loss(torch.nn.Module):
    def __init__(self, mode: str):
        """A loss.

        Args:
            mode: 'binary' or 'multiclass'
        """
        super().__init__()


def test_a_constructor_may_be_documented_by_itself():
    (mode,) = parameters_of_constructor(Loss)
    assert mode.options == ("binary", "multiclass")


def test_what_a_constructor_passes_on_is_what_that_of_its_base_takes():
    passed = parameters_of_constructor(Passes)
    assert [(one.name, one.required, one.keyword) for one in passed] == [("shape", True, True), ("factor", False, True)]
    assert parameters_of_constructor(Plain) == []
    assert [one.name for one in parameters_of_constructor(torch.nn.Linear)][:2] == ["in_features", "out_features"]


def plain(n: int, sizes: tuple[int, ...], how: Literal["a"], dtype: torch.dtype | None = None): ...


def listed(parts: list): ...


def partly(n: int, x): ...


def starred(n: int, *rest: int): ...


def unknown(n: Missing): ...  # noqa: F821


def untyped(*shape, dtype=None, device=None): ...


def nothing(): ...


@pytest.mark.parametrize(
    ("path", "takes_none"),
    [
        ("torch.rand", True),
        ("torch.arange", True),
        ("torch.fft.fftfreq", True),
        ("torch.signal.windows.hann", True),
        ("torch.add", False),
        ("torch.normal", False),  # one overload takes numbers, others do not
        ("torch.as_tensor", False),
        ("torch.tensor", False),
        ("torch.quantize_per_tensor", False),
    ],
)
def test_schemas_show_that_no_tensor_is_taken(path, takes_none):
    assert is_plain(resolve(path, ["torch"]), path) is takes_none


def is_plain(function, path):
    return all(one.is_plain for each in parameters_of(function, path) for one in each)


@pytest.mark.parametrize(
    ("function", "takes_none"),
    [
        (plain, True),
        (untyped, True),
        (nothing, True),
        (listed, False),
        (partly, False),
        (starred, False),
        (unknown, False),
    ],
)
def test_annotations_show_that_no_tensor_is_taken(function, takes_none):
    assert is_plain(function, "mylib.function") is takes_none


def test_a_builtin_of_another_library_is_not_the_function_of_torch_that_has_its_name():
    assert not is_plain(torch.rand, "mylib.rand")
