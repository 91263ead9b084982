"""Cotangents and tangents are random, the same every time, and lose no entry."""

from __future__ import annotations

import pytest
import torch

from opcheck.derivatives.cotangents import directions, probe, vectors_like
from opcheck.strides import with_gaps

REAL, COMPLEX = torch.float64, torch.complex128


@pytest.mark.parametrize("size", [0, 1, 7, 512, 513])
def test_a_probe_is_the_same_every_time_and_nobody_elses(size):
    one = probe(size)
    expected = one.clone()
    assert one.shape == (size,)
    assert bool((one.abs() <= 1).all())
    one.zero_()
    assert torch.equal(probe(size), expected)
    assert not size or not torch.equal(probe(size, 1), expected)


def test_directions_are_unit_vectors_or_random_ones_that_lose_no_entry():
    assert torch.equal(directions(3), torch.eye(3, dtype=REAL))
    inputs, outputs = directions(50, 8), directions(50, 8, "outputs")
    assert inputs.shape == outputs.shape == (8, 50)
    assert float(inputs.abs().min()) >= 0.5
    assert float(inputs.abs().max()) <= 1
    assert int(torch.linalg.matrix_rank(torch.cat([inputs, outputs]))) == 16


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
def test_with_gaps_the_values_are_the_same(dtype):
    tensor = torch.rand(3, 2, dtype=dtype)
    apart = with_gaps(tensor)
    assert torch.equal(apart, tensor)
    assert apart.stride() == (4, 2)


def test_vectors_like_tensors_have_plain_memory_and_the_same_numbers_each_time():
    like = [torch.zeros(2, 3).T, torch.zeros(2, dtype=torch.complex128)]
    found, again = vectors_like(like), vectors_like(like)
    assert [(v.shape, v.dtype, v.is_contiguous()) for v in found] == [(t.shape, t.dtype, True) for t in like]
    assert all(torch.equal(*pair) for pair in zip(found, again, strict=True))
    assert not torch.equal(found[0], vectors_like(like, 1)[0])
