"""Words name shapes, ranks and dtypes; a guess that is refused becomes one that is not."""

from __future__ import annotations

import pytest

from opcheck.draft.hint import Documented, documented, repairs_of, shapes_in
from opcheck.draft.parameter import TENSOR, Parameter
from opcheck.draft.signature import parameters_of
from opcheck.spec.operator import SampleSpec

X = [Parameter("x", (TENSOR,), True), Parameter("context", (), False)]


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
    assert documented(doc, "x").shapes == [(2, 2), (2,)]
    assert documented(doc, "y").shapes == [(2, 3)]
    assert documented(doc, "z") == Documented()
    assert documented("q size: (bsz, seq_len, rotary_dim)\nk: (2, 2)", "q").shapes == [(2, 3, 4)]


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
    assert documented(doc, "alpha").is_tensor is is_tensor


def test_strings_that_documentation_quotes_are_tried_where_a_string_is_taken():
    def drop(x, p: float, mode: str, fmt: str = "xyxy", by="rows"):
        """Drop.

        Args:
            x (Tensor): the input, not "y"
            p: probability, one of 'a' and 'b'
            mode (str): ``"batch"`` or ``"row"``: the input's "batches" are dropped
            fmt: one of 'xyxy', 'xywh'.
            by: 'rows' or a number
        """

    (parameters,) = parameters_of(drop, "demo.drop")
    options = {one.name: one.options for one in parameters}
    assert options["mode"] == ("batch", "row", "batches")
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


@pytest.mark.parametrize(
    ("value", "said", "source", "better"),
    [
        ({"shape": [3]}, "ValueError: Input must be a (*, 4) tensor. Got torch.Size([3])", "", {"shape": [2, 4]}),
        ({"shape": [2, 3]}, "ValueError: Expected features = 5, got 3.", "", {"shape": [2, 5]}),
        ({"shape": [2, 3]}, "RuntimeError: shapes cannot be multiplied (2x3 and 4x2)", "", {"shape": [2, 4]}),
        ({"shape": [2, 3]}, "RuntimeError: shapes cannot be multiplied (2x3 and 256x2)", "", {"shape": [2, 256]}),
        ({"shape": [2, 3]}, "RuntimeError: running_mean should contain 3 elements not 24", "", {"shape": [2, 24]}),
        ({"shape": [2, 3]}, "RuntimeError: size of tensor a (3) must match b (4)", "", {"shape": [2, 4]}),
        ({"shape": [2, 3]}, "RuntimeError: expected 3D input", "", {"shape": [2, 2, 3]}),
        ({"shape": [2, 3]}, "AssertionError", "assert x.dim() == 3", {"shape": [2, 2, 3]}),
        ({"shape": [2, 3]}, "AssertionError", "assert x.shape[-1] == 7", {"shape": [2, 7]}),
        ({"shape": [3]}, "IndexError: Dimension out of range", "", {"shape": [2, 3]}),
        ({"shape": [3]}, "IndexError: tensors used as indices must be long", "",
         {"shape": [3], "dtype": "int64", "low": 0, "high": 2}),
        ({"shape": [3]}, "InputOutsideDomain", "", {"shape": [3], "low": 0.1, "high": 0.9}),
        ([2, 2], "ValueError: not enough values to unpack (expected 3, got 2)", "", [2, 2, 2]),
        (2, "TypeError: x must be Tensor, not int", "", {"shape": [2, 3]}),
        (1.5, "TypeError: expected Tensor as element 0 in argument 0, but got float", "", {"shape": []}),
        ({"object": "torch.tanh"}, "TypeError: tanh() takes 1 positional argument but 2 were given", "",
         {"object": "torch.mul"}),
        ({"shape": [3, 3]}, "NotPSDError: Matrix not positive definite", "",
         {"shape": [3, 3], "structure": "positive_definite", "through": "symmetrize"}),
        ({"shape": [3]}, "TypeError: only one element tensors can be converted", "", 2),
        (2, "TypeError: Value after * must be an iterable, not int", "", [3]),
        ({"shape": [2, 3]}, "RuntimeError: A must be batches of square matrices", "", {"shape": [3, 3]}),
        ({"shape": [2, 3]}, "RuntimeError: x should contain 3 elements not 6", "", {"shape": [3]}),
        ({"shape": [3]}, "TypeError: expected 'indices' to be integer dtype", "",
         {"shape": [3], "dtype": "int64", "low": 0, "high": 2}),
        ({"shape": [3]}, "RuntimeError: input_lengths must be integral", "",
         {"shape": [3], "dtype": "int64", "low": 0, "high": 2}),
        ({"shape": [2, 3]}, "RuntimeError: expected sparse column compressed tensor layout but got Strided", "",
         {"shape": [2, 3], "layout": "sparse_csc"}),
        ({"shape": [3]}, "RuntimeError: not differentiable with respect to argument 'x'", "",
         {"shape": [3], "grad": False}),
        ({"shape": [3], "grad": False}, "the result is not finite", "",
         {"shape": [3], "grad": False, "low": 0.1, "high": 0.9}),
        ([2, 2], "RuntimeError: it needs 4d (spatial) or 5d (volumetric) inputs", "", [2, 2, 2, 2]),
        ({"tuple": [2, 2]}, "ValueError: not enough values to unpack (expected 3, got 2)", "", {"tuple": [2, 2, 2]}),
        (2, "RuntimeError: f() Expected a value of type 'Tensor' for argument 'k' but instead found type 'int'.", "",
         {"shape": []}),
        ({"none": True}, "TypeError: 'size' must be tuple of ints, not NoneType", "", [2, 2]),
    ],
)  # fmt: skip
def test_a_refused_guess_teaches_the_next(value, said, source, better):
    lessons = list(repairs_of({"args": [value]}, said, source, X))
    assert {"args": [better]} in lessons
    for lesson in lessons:
        SampleSpec.model_validate(lesson)


def test_no_size_makes_a_tensor_huge():
    repairs = list(repairs_of({"args": [{"shape": [2, 3]}]}, "RuntimeError: expected 1000 columns", "", X))
    assert repairs == [{"args": [{"shape": [2, 1000]}]}]  # 3 times 1000 elements would be too many


def test_tensors_that_are_alike_are_changed_one_by_one_and_together():
    before, after = {"shape": [2, 3]}, {"shape": [2, 4]}
    said = "RuntimeError: shape '[2, 4]' is invalid for input of size 6"
    repairs = list(repairs_of({"args": [before, before, 2]}, said, "", X))
    assert repairs.index({"args": [after, before, 2]}) < repairs.index({"args": [after, after, 2]})


def test_an_optional_tensor_that_is_missing_is_added():
    said = "TypeError: sigmoid(): argument 'input' must be Tensor, not NoneType"
    lessons = list(repairs_of({"args": [{"shape": [2]}]}, said, "", X))
    assert {"args": [{"shape": [2]}], "kwargs": {"context": {"shape": [2]}}} in lessons


@pytest.mark.parametrize("name", ["output_size", "output size"])
def test_an_optional_argument_that_is_asked_for_is_added(name):
    parameters = [*X, Parameter("output_size", (), False)]
    said = f"ValueError: it requires specifying either an {name}, or a ratio"
    lessons = list(repairs_of({"args": [{"shape": [2]}]}, said, "", parameters))
    assert {"args": [{"shape": [2]}], "kwargs": {"output_size": 2}} in lessons
    assert not any("context" in lesson.get("kwargs", {}) for lesson in lessons)


def test_one_of_the_optional_arguments_that_cannot_all_be_none_is_added():
    said, x = "ValueError: labels and mask cannot both be None", {"shape": [2, 3]}
    own = [*X, Parameter("labels", (), False), Parameter("mask", ({"tensor": "mask"}, TENSOR), False)]
    added = [one["kwargs"] for one in repairs_of({"args": [x]}, said, "", own)]
    assert {"labels": x} in added
    assert {"mask": x} in added
    assert not any("context" in kwargs for kwargs in added)


def test_an_optional_argument_gets_the_values_that_its_name_calls_for_first():
    own = [Parameter("dim", (5, 7), False, annotation="int")]
    repairs = repairs_of({"args": [{"shape": [2]}]}, "TypeError: missing a required argument: 'dim'", "", own)
    assert [one["kwargs"]["dim"] for one in repairs] == [5, 7, 2, [2], [2, 2], 0.5]  # and no tensor


def test_a_keyword_argument_that_the_error_names_is_changed_first():
    sample = {"args": [{"shape": [2, 3]}], "kwargs": {"labels": {"shape": [2, 3]}}}
    own = [X[0], Parameter("labels", (), False)]
    first, *_ = repairs_of(sample, "ValueError: labels must be 1D, of shape (batch_size,)", "", own)
    assert first == {"args": [{"shape": [2, 3]}], "kwargs": {"labels": {"shape": [2]}}}


def test_what_says_nothing_teaches_nothing():
    assert list(repairs_of({"args": [{"shape": [2, 3]}]}, "RuntimeError: not today", "", X)) == []


def test_images_are_as_large_as_a_kernel_all_of_them():
    said = (
        "RuntimeError: Calculated padded input size per channel: (4 x 4). Kernel size: (11 x 7). "
        "Kernel size can't be greater than actual input size"
    )
    sample = {"args": [{"shape": [1, 2, 4, 9]}, {"shape": [1, 2, 4, 9]}, {"shape": [2]}, 3]}
    first, *_ = repairs_of(sample, said, "", [])
    assert first == {"args": [{"shape": [1, 2, 11, 9]}, {"shape": [1, 2, 11, 9]}, {"shape": [2]}, 3]}


def test_a_number_that_the_error_names_becomes_one_that_it_lists():
    said = "ValueError: Sample rate must be 44100 (audio-CD) or 48000, and 16 bits"
    own = [Parameter("x", (TENSOR,), True), Parameter("sample_rate", (2,), True), Parameter("gain", (2,), True)]
    repaired = [one["args"] for one in repairs_of({"args": [{"shape": [2]}, 2, 2]}, said, "", own)]
    assert repaired[:3] == [[{"shape": [2]}, number, 2] for number in (44100, 48000, 16)]
    assert all(gain == 2 for _, _, gain in repaired)
