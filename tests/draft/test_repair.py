"""A guess that is refused becomes one that is not: errors name shapes, ranks and dtypes."""

from __future__ import annotations

import pytest

from opcheck.draft.parameters import TENSOR, Parameter
from opcheck.draft.repair import repairs_of
from opcheck.spec.operator import SampleSpec

X = [Parameter("x", (TENSOR,), True), Parameter("context", (), False)]


@pytest.mark.parametrize(
    ("value", "said", "source", "better"),
    [
        ({"shape": [3]}, "ValueError: Input must be a (*, 4) tensor. Got torch.Size([3])", "", {"shape": [2, 4]}),
        ({"shape": [2, 3]}, "ValueError: Expected features = 5, got 3.", "", {"shape": [2, 5]}),
        ({"shape": [2, 3]}, "RuntimeError: shapes cannot be multiplied (2x3 and 4x2)", "", {"shape": [2, 4]}),
        ({"shape": [2, 3]}, "RuntimeError: shapes cannot be multiplied (2x3 and 256x2)", "", {"shape": [2, 256]}),
        ({"shape": [2, 3]}, "RuntimeError: running_mean should contain 3 elements not 24", "", {"shape": [2, 24]}),
        ({"shape": [2, 3]}, "RuntimeError: x should contain 3 elements not 6", "", {"shape": [3]}),
        ({"shape": [2, 3]}, "RuntimeError: size of tensor a (3) must match b (4)", "", {"shape": [2, 4]}),
        ({"shape": [2, 3]}, "RuntimeError: expected 3D input", "", {"shape": [2, 2, 3]}),
        ({"shape": [2, 3]}, "AssertionError", "assert x.dim() == 3", {"shape": [2, 2, 3]}),
        ({"shape": [2, 3]}, "AssertionError", "assert x.shape[-1] == 7", {"shape": [2, 7]}),
        ({"shape": [3]}, "IndexError: Dimension out of range", "", {"shape": [2, 3]}),
        ({"shape": [3]}, "IndexError: tensors used as indices must be long", "",
         {"shape": [3], "dtype": "int64", "low": 0, "high": 2}),
        ({"shape": [3]}, "NotImplementedError: \"bincount_cpu\" not implemented for 'Double'", "",
         {"shape": [3], "dtype": "int64", "low": 0, "high": 2}),
        ({"shape": [3], "dtype": "int64", "low": 0, "high": 2}, "RuntimeError: m1 and m2 must have the same dtype",
         "", {"shape": [3]}),
        ({"shape": [3, 3]}, "ValueError: the matrices are not orthogonal", "",
         {"shape": [3, 3], "through": "orthogonal"}),
        ({"shape": [3, 3]}, "AssertionError", "assert torch.allclose(torch.det(x), x.new_tensor(1))",
         {"shape": [3, 3], "through": "orthogonal"}),
        ({"shape": [3]}, "RuntimeError: view_as_real is only supported for complex tensors", "",
         {"shape": [3], "dtype": "complex"}),
        ({"shape": [3]}, "RuntimeError: imag is not implemented for tensors with non-complex dtypes.", "",
         {"shape": [3], "dtype": "complex"}),
        ({"shape": [3]}, "InputOutsideDomain", "", {"shape": [3], "low": 0.1, "high": 0.9}),
        ([2, 2], "ValueError: not enough values to unpack (expected 3, got 2)", "", [2, 2, 2]),
        (2, "TypeError: x must be Tensor, not int", "", {"shape": [2, 3]}),
        ({"shape": [3, 3]}, "NotPSDError: Matrix not positive definite", "",
         {"shape": [3, 3], "structure": "positive_definite", "through": "symmetrize"}),
        ({"shape": [3]}, "TypeError: expected 'indices' to be integer dtype", "",
         {"shape": [3], "dtype": "int64", "low": 0, "high": 2}),
        ({"shape": [3]}, "RuntimeError: input_lengths must be integral", "",
         {"shape": [3], "dtype": "int64", "low": 0, "high": 2}),
        ({"shape": [3]}, "RuntimeError: not differentiable with respect to argument 'x'", "",
         {"shape": [3], "grad": False}),
        ({"shape": [3], "grad": False}, "the result is not finite", "",
         {"shape": [3], "grad": False, "low": 0.1, "high": 0.9}),
        ([2, 2], "RuntimeError: it needs 4d (spatial) or 5d (volumetric) inputs", "", [2, 2, 2, 2]),
        ({"none": True}, "TypeError: 'size' must be tuple of ints, not NoneType", "", [2, 2]),
        ({"shape": [3]}, "RuntimeError: expected BoolTensor for mask", "", {"shape": [3], "dtype": "bool"}),
        ({"shape": [3]}, "TypeError: 'Tensor' object is not callable", "", {"object": "torch.tanh"}),
        (
            {"object": "torch.tanh"},
            "TypeError: tanh() takes 1 positional argument but 2 were given",
            "",
            {"object": "torch.add"},
        ),
        (2, "TypeError: object of type 'int' has no len()", "", [2, 2]),
        ({"shape": [2, 3]}, "ValueError: length (3) must be larger than 8", "", {"shape": [2, 9]}),
        ({"shape": [2, 3]}, "ValueError: length must be more than 1024 samples", "", {"shape": [1, 1025]}),
        ({"shape": [2, 3]}, "TypeError: 'Tensor' object cannot be interpreted as an integer", "", 2),
        ({"shape": [2, 3]}, "TypeError: arange() received an invalid combination of arguments - got (Tensor, Tensor), "
         "but expected one of: * (Number end, *, Tensor out = None)", "", 2),
        ({"tuple": [2, 2]}, "ValueError: not enough values to unpack (expected 3, got 2)", "", {"tuple": [2, 2, 2]}),
    ],
)  # fmt: skip
def test_a_refused_guess_teaches_the_next(value, said, source, better):
    lessons = list(repairs_of({"args": [value]}, said, source, X))
    assert {"args": [better]} in lessons
    for lesson in lessons:
        SampleSpec.model_validate(lesson)


def test_no_size_makes_a_tensor_huge():
    repairs = list(repairs_of({"args": [{"shape": [2, 3]}]}, "RuntimeError: expected 1000 columns", "", X))
    shapes = [repair["args"][0]["shape"] for repair in repairs]
    assert shapes == [[2, 1000], [1000, 1]]  # 3 times 1000 elements would be too many


def test_tensors_that_are_alike_are_changed_one_by_one_and_together():
    before, after = {"shape": [2, 3]}, {"shape": [2, 4]}
    said = "RuntimeError: shape '[2, 4]' is invalid for input of size 6"
    repairs = list(repairs_of({"args": [before, before, 2]}, said, "", X))
    assert repairs.index({"args": [after, before, 2]}) < repairs.index({"args": [after, after, 2]})


def test_an_optional_tensor_that_is_missing_is_added():
    said = "TypeError: sigmoid(): argument 'input' must be Tensor, not NoneType"
    lessons = list(repairs_of({"args": [{"shape": [2]}]}, said, "", X))
    assert {"args": [{"shape": [2]}], "kwargs": {"context": {"shape": [2]}}} in lessons


@pytest.mark.parametrize(
    ("said", "source"),
    [
        ("ValueError: a context is required", ""),
        ("TypeError: call() missing 1 required keyword-only argument: 'context'", ""),
        ("KeyError: 'context'", ""),
        ("AssertionError", "assert context is not None"),
    ],
)
def test_an_optional_argument_may_be_a_tensor_like_the_first_or_a_class_for_each_row(said, source):
    repairs = repairs_of({"args": [{"shape": [2, 3]}]}, said, source, X)
    added = [one["kwargs"]["context"] for one in repairs if "kwargs" in one]
    assert added == [{"shape": [2, 3]}, {"shape": [2], "dtype": "int64", "low": 0, "high": 2}, 2, [2, 2]]


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
    assert [one["kwargs"]["dim"] for one in repairs] == [5, 7, 2, [2, 2]]  # and no tensor


def test_a_keyword_argument_that_the_error_names_is_changed_first():
    sample = {"args": [{"shape": [2, 3]}], "kwargs": {"labels": {"shape": [2, 3]}}}
    own = [X[0], Parameter("labels", (), False)]
    first, *_ = repairs_of(sample, "ValueError: labels must be 1D, of shape (batch_size,)", "", own)
    assert first == {"args": [{"shape": [2, 3]}], "kwargs": {"labels": {"shape": [2]}}}


def test_what_says_nothing_teaches_nothing():
    assert list(repairs_of({"args": [{"shape": [2, 3]}]}, "RuntimeError: not today", "", X)) == []


def test_a_number_that_the_error_names_becomes_one_that_it_lists():
    said = "ValueError: Sample rate must be 44100 (audio-CD) or 48000, and 16 bits"
    own = [Parameter("x", (TENSOR,), True), Parameter("sample_rate", (2,), True), Parameter("gain", (2,), True)]
    repaired = [one["args"] for one in repairs_of({"args": [{"shape": [2]}, 2, 2]}, said, "", own)]
    assert repaired[:3] == [[{"shape": [2]}, number, 2] for number in (44100, 48000, 16)]
    assert all(gain == 2 for _, _, gain in repaired)
    said = "AssertionError: rank (64) must be less than sample_rate (2)"
    repaired = [one["args"] for one in repairs_of({"args": [{"shape": [2]}, 2, 2]}, said, "", own)]
    assert [{"shape": [2]}, 65, 2] in repaired
