"""Tensors become rows of real coordinates and come back as they were: values, dtype, strides, lazy conjugation."""

import pytest
import torch
from operators.closed_forms import numbers

from opcheck.derivatives.coordinates import deviation, real_size, rows_of, tensors_of, vector

REAL, COMPLEX = torch.float64, torch.complex128
INF, NAN = float("inf"), float("nan")

KINDS = {
    "plain": lambda dtype: numbers(2, 3, dtype=dtype),
    "rank 0": lambda dtype: numbers(dtype=dtype),
    "empty": lambda dtype: numbers(2, 0, dtype=dtype),
    "transposed": lambda dtype: numbers(3, 2, dtype=dtype).t(),
    "with gaps": lambda dtype: numbers(4, 6, dtype=dtype)[::2, ::3],
    "one column": lambda dtype: numbers(3, 4, dtype=dtype)[:, 1],
    "channels last": lambda dtype: numbers(2, 3, 2, 2, dtype=dtype).to(memory_format=torch.channels_last),
    "size one with an odd stride": lambda dtype: numbers(8, dtype=dtype).as_strided((1, 3), (7, 1)),
}
LAZY = {
    "conjugated": lambda: numbers(2, 3, dtype=COMPLEX).conj(),
    "conjugated and transposed": lambda: numbers(3, 2, dtype=COMPLEX).t().conj(),
    "conjugated and empty": lambda: numbers(0, 2, dtype=COMPLEX).conj(),
    "negated": lambda: numbers(3, dtype=COMPLEX).conj().imag,
}
TENSORS = [
    *(pytest.param(make(dtype), id=f"{name}-{dtype}") for name, make in KINDS.items() for dtype in (REAL, COMPLEX)),
    *(pytest.param(make(), id=name) for name, make in LAZY.items()),
]


def as_it_was(found, tensor):
    assert (found.dtype, found.shape, found.is_conj()) == (tensor.dtype, tensor.shape, tensor.is_conj())
    sizes_and_strides = [zip(t.shape, t.stride(), strict=True) for t in (found, tensor)]
    if tensor.numel():
        one, other = ([stride for size, stride in pairs if size > 1] for pairs in sizes_and_strides)
        assert one == other
    assert torch.equal(found, tensor)


@pytest.mark.parametrize("tensor", TENSORS)
def test_tensors_of_a_vector_are_those_it_was_made_of(tensor):
    row = vector([tensor])
    assert (row.shape, row.dtype) == ((real_size(tensor),), REAL)
    (found,) = tensors_of(row, [tensor])
    as_it_was(found, tensor)


@pytest.mark.parametrize("tensor", TENSORS)
def test_each_row_of_a_batch_is_laid_out_like_the_tensor(tensor):
    matrix = torch.stack([vector([tensor]) + shift for shift in range(3)])
    (batch,) = tensors_of(matrix, [tensor])
    assert batch.shape == (3, *tensor.shape)
    as_it_was(batch[0], tensor)
    assert torch.equal(rows_of([batch], 3), matrix)


def test_real_and_imaginary_parts_alternate():
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert vector([z]).tolist() == [1, 2, 3, -4]
    assert vector([z.conj()]).tolist() == [1, -2, 3, 4]
    assert vector([z.conj().imag]).tolist() == [-2, 4]


@pytest.mark.parametrize("odd", [1, 2, 3])
def test_several_tensors_follow_one_another_whatever_their_dtypes(odd):
    # A complex tensor may begin in the middle of a pair of numbers.
    tensors = [numbers(odd), numbers(2, dtype=COMPLEX).conj(), numbers(0), numbers(dtype=torch.complex64), numbers(3)]
    row = vector(tensors)
    assert len(row) == odd + 4 + 0 + 2 + 3
    for found, tensor in zip(tensors_of(row, tensors), tensors, strict=True):
        as_it_was(found, tensor)
    matrix = torch.stack([row, 2 * row])
    batches = tensors_of(matrix, tensors)
    assert torch.equal(rows_of(batches, 2).float(), matrix.float())
    for batch, tensor in zip(batches, tensors, strict=True):
        assert torch.equal(batch[1], 2 * tensor)


def test_coordinates_are_double_precision_whatever_the_dtype():
    assert vector([torch.ones(2, dtype=torch.float32), torch.ones(1, dtype=torch.int64)]).dtype == REAL
    assert rows_of([torch.ones(2, 3, dtype=torch.complex64)], 2).dtype == REAL


def test_nothing_at_all_has_no_coordinates():
    assert vector([]).shape == (0,)
    assert rows_of([], 4).shape == (4, 0)


def test_tensors_have_memory_of_their_own():
    row = torch.zeros(4, dtype=REAL)
    for tensor in (numbers(2, 2), numbers(2, dtype=COMPLEX)):
        (found,) = tensors_of(row, [tensor])
        found.fill_(1)
    assert row.tolist() == [0] * 4


def test_elements_that_share_their_memory_get_memory_of_their_own():
    expanded = numbers(1, 2).expand(3, 2)
    row = torch.arange(6, dtype=REAL)
    assert torch.equal(tensors_of(row, [expanded])[0], row.reshape(3, 2))


@pytest.mark.parametrize(
    "tensor",
    [numbers(3, 6)[:, :1].expand(3, 2), numbers(3, 10)[:, :3].unfold(1, 2, 1)],
    ids=["expanded", "unfolded"],
)
def test_elements_that_share_their_memory_get_memory_of_their_own_where_there_are_gaps(tensor):
    row = torch.arange(tensor.numel(), dtype=REAL)
    assert torch.equal(tensors_of(row, [tensor])[0], row.reshape(tensor.shape))


def test_zeros_without_memory_are_zeros():
    zeros = torch._efficientzerotensor(2, dtype=COMPLEX)
    assert vector([zeros]).tolist() == [0] * 4
    assert rows_of([torch._efficientzerotensor(2, 3)], 2).tolist() == [[0] * 3] * 2


def test_a_graph_is_left_behind():
    assert not vector([numbers(2).requires_grad_() * 2]).requires_grad


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([INF, NAN, -INF], [INF, NAN, -INF], 0.0),
        ([INF], [-INF], INF),
        ([], [], 0.0),
    ],
)
def test_results_of_one_call_deviate_where_they_are_not_the_same(one, other, expected):
    assert deviation(torch.tensor(one), torch.tensor(other)) == expected


@pytest.mark.parametrize("other", [1.0, INF])
def test_what_is_no_number_in_one_result_alone_deviates_by_no_number(other):
    assert not deviation(torch.tensor([NAN, 0.0]), torch.tensor([other, 0.0])) <= 1e300
