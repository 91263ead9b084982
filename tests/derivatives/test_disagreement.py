"""The worst entry of two Jacobians is found, placed and shown."""

import pytest
import torch
from operators import pairs
from operators.looped import to_real, units

from opcheck.derivatives.coordinates import index_text, split


def pair(n, a, output=None, leaf=None):
    n, a = torch.tensor(n, dtype=torch.float64), torch.tensor(a, dtype=torch.float64)
    output = torch.zeros(n.shape[0], dtype=torch.float64) if output is None else output
    leaf = torch.zeros(n.shape[1], dtype=torch.float64) if leaf is None else leaf
    return pairs.pair(n, a, [output], [leaf]).mismatch()


def test_equal_jacobians_have_no_mismatch():
    assert pair([[1.0, 2.0]], [[1.0, 2.0 + 1e-6]]) is None


def test_the_entry_furthest_beyond_its_tolerance_is_the_worst():
    found = pair([[100.0, 1.0], [0.0, 0.0]], [[100.15, 1.0], [0.2, 0.0]])
    assert (found.row, found.column, found.worst.numerical, found.worst.analytical) == (1, 0, 0.0, 0.2)
    assert (found.wrong, found.entries) == (2, 4)


def test_nan_is_infinitely_wrong_on_one_side_and_on_both():
    assert pair([[1.0, 1.0]], [[float("nan"), 5.0]]).column == 0
    assert pair([[float("nan")]], [[float("nan")]]).wrong == 1
    assert pair([[float("inf")]], [[float("inf")]]) is None


@pytest.mark.parametrize(("off", "part"), [((0.1, 0.9), "imag"), ((0.9, 0.1), "real"), ((0.1, float("nan")), "imag")])
def test_of_a_complex_entry_the_worse_part_is_shown(off, part):
    found = pair([[1.0, 1.0]], [[1 + off[0], 1 + off[1]]], leaf=torch.zeros(1, dtype=torch.complex128))
    assert found.worst.leaf_part == part
    assert (found.column, found.wrong, found.entries) == (["real", "imag"].index(part), 2, 2)


def test_places_are_indices_of_the_tensors():
    found = pair(
        [[0.0] * 4] * 6, [[0.0] * 4] * 5 + [[0.0, 0.0, 0.0, 1.0]],
        torch.zeros(2, 3), torch.zeros(2, dtype=torch.complex128),
    )  # fmt: skip
    assert (found.worst.output_index, found.worst.leaf_index, found.worst.leaf_part) == ((1, 2), (1,), "imag")


def test_the_description_shows_both_numbers_and_the_neighbourhood():
    text = pair([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, -1.0]]).describe()
    assert "1 of 4 entries differ" in text
    assert "d output 0[1] / d input 0[1] = 1 numerically, -1 analytically" in text
    assert "-1*" in text


def test_rank_zero_has_the_empty_index():
    assert index_text(*split(0, torch.zeros(()))) == "[]"
    assert index_text(*split(1, torch.zeros((), dtype=torch.complex64))) == "[].imag"


def test_real_coordinates_keep_real_and_imaginary_parts_together():
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert to_real(z).tolist() == [1, 2, 3, -4]
    assert to_real(z.conj()).tolist() == [1, -2, 3, 4]
    assert [to_real(unit).tolist() for unit in units(z[:1])] == [[1, 0], [0, 1]]
