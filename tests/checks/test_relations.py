"""Values that agree, to the last bit or within the tolerance, and values that do not."""

from types import SimpleNamespace

import pytest
import torch

from opcheck.checks.relations import agree

NAN, INFINITE = float("nan"), float("inf")


def verdict_of_all(got, expected, tolerance=None, **more):
    context = SimpleNamespace(value_tolerance=lambda: tolerance)
    return agree(SimpleNamespace(context=context, check="variants"), got, expected, "the function", **more)


def verdict(got, expected, **more):
    return verdict_of_all([got], [expected], **more)


def t(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (t(1.0, 2.0), t(1.0, 2.0)),
        (t(1.0), t(1.0 + 1e-9)),
        (t(NAN, INFINITE), t(NAN, INFINITE)),
        (t(1 + 2j, dtype=torch.complex128), t(1 + 2j, dtype=torch.complex128)),
        (t(True, dtype=torch.bool), t(True, dtype=torch.bool)),
        (torch.zeros(0, 2), torch.zeros(0, 2)),
        (torch.eye(2).to_sparse(), torch.eye(2).to_sparse()),
        (torch.eye(2).mT, torch.eye(2)),
    ],
)
def test_the_same_values_agree(got, expected):
    assert verdict(got, expected).passed


@pytest.mark.parametrize(
    ("got", "expected", "words"),
    [
        (t(1.0, 2.0), t(1.0, 2.1), "not close"),
        (t(NAN), t(1.0), "not close"),
        (t(INFINITE), t(-INFINITE), "not close"),
        (t(1.0), t(1.0, 2.0), "shape"),
        (t(1.0), t(1.0, dtype=torch.float32), "dtype"),
        (t(1, dtype=torch.int64), t(1, dtype=torch.int32), "dtype"),
        (torch.eye(2).to_sparse(), torch.eye(2), "layout"),
        (torch.eye(2).to_sparse(), 2 * torch.eye(2).to_sparse(), "not close"),
    ],
)
def test_other_values_shapes_dtypes_and_layouts_do_not(got, expected, words):
    found = verdict(got, expected)
    assert not found.passed
    assert found.title == "variants: output 0 is not that of the function"
    assert words in found.detail


def test_another_dtype_may_be_allowed():
    assert verdict(t(1.0), t(1.0, dtype=torch.float32), same_arithmetic=False).passed


def test_terms_that_cancel_may_round_in_another_order_but_not_in_another_implementation():
    got, expected = t(400.0, 1e-2, dtype=torch.float32), t(400.0, 1.01e-2, dtype=torch.float32)
    assert verdict(got, expected).passed
    assert not verdict(got, expected, same_arithmetic=False).passed
    assert not verdict_of_all([got], [expected], (1e-5, 1e-6)).passed  # the spec says how much
    assert not verdict(got, t(400.0, 1.1e-2, dtype=torch.float32)).passed
    assert not verdict(t(400, 2, dtype=torch.int64), t(400, 3, dtype=torch.int64)).passed


@pytest.mark.parametrize(("got", "expected"), [([], [t(1.0)]), ([t(1.0)], []), ([t(1.0)], [t(1.0), t(2.0)])])
def test_another_number_of_outputs_is_a_failure(got, expected):
    found = verdict_of_all(got, expected)
    assert not found.passed
    assert found.title == f"variants: {len(got)} outputs, not {len(expected)} as those of the function"


@pytest.mark.parametrize("index", [0, 1, 2])
def test_each_output_is_compared(index):
    expected = [t(1.0), t(2.0), t(3.0)]
    got = [2 * value if at == index else value for at, value in enumerate(expected)]
    assert verdict_of_all(got, expected).title == f"variants: output {index} is not that of the function"
    assert verdict_of_all(expected, expected).passed


@pytest.mark.parametrize(("atol", "rtol", "passes"), [(0.2, 0.0, True), (0.0, 0.2, True), (0.05, 0.02, False)])
def test_a_tolerance_of_the_spec_counts(atol, rtol, passes):
    assert verdict_of_all([t(1.1)], [t(1.0)], (atol, rtol)).passed is passes


def test_identical_numbers_of_another_dtype_are_not_the_same():
    assert not verdict(t(1.0), t(1.0, dtype=torch.float16)).passed
