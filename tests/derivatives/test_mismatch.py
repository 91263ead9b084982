"""The worst entry of two Jacobians is found, placed and shown."""

import torch
from operators.looped import to_real, units

from opcheck.derivatives.coordinates import place, split
from opcheck.derivatives.mismatch import find_mismatch
from opcheck.derivatives.numbers import DOUBLE


def pair(n, a, output=None, leaf=None):
    n, a = torch.tensor(n, dtype=torch.float64), torch.tensor(a, dtype=torch.float64)
    output = torch.zeros(n.shape[0], dtype=torch.float64) if output is None else output
    leaf = torch.zeros(n.shape[1], dtype=torch.float64) if leaf is None else leaf
    return find_mismatch([[n]], [[a]], [output], [leaf], DOUBLE)


def test_equal_jacobians_have_no_mismatch():
    assert pair([[1.0, 2.0]], [[1.0, 2.0 + 1e-6]]) is None


def test_the_entry_furthest_beyond_its_tolerance_is_the_worst():
    found = pair([[100.0, 1.0], [0.0, 0.0]], [[100.15, 1.0], [0.2, 0.0]])
    assert (found.row, found.column, found.numerical, found.analytical) == (1, 0, 0.0, 0.2)
    assert (found.wrong, found.entries) == (2, 4)


def test_nan_on_one_side_is_infinitely_wrong_and_on_both_sides_agreement():
    assert pair([[1.0, 1.0]], [[float("nan"), 5.0]]).column == 0
    assert pair([[float("nan")]], [[float("nan")]]) is None


def test_places_are_indices_of_the_tensors():
    found = pair(
        [[0.0] * 4] * 6, [[0.0] * 4] * 5 + [[0.0, 0.0, 0.0, 1.0]],
        torch.zeros(2, 3), torch.zeros(2, dtype=torch.complex128),
    )  # fmt: skip
    assert (found.output_place, found.leaf_place) == ("[1, 2]", "[1].imag")


def test_the_description_shows_both_numbers_and_the_neighbourhood():
    text = pair([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, -1.0]]).describe()
    assert "1 of 4 entries differ" in text
    assert "d output[1] / d input[1] = 1 numerically, -1 analytically" in text
    assert "-1*" in text


def test_rank_zero_has_the_empty_index():
    assert place(*split(0, torch.zeros(()))) == "[]"
    assert place(*split(1, torch.zeros((), dtype=torch.complex64))) == "[].imag"


def test_real_coordinates_keep_real_and_imaginary_parts_together():
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert to_real(z).tolist() == [1, 2, 3, -4]
    assert to_real(z.conj()).tolist() == [1, -2, 3, 4]
    assert [to_real(unit).tolist() for unit in units(z[:1])] == [[1, 0], [0, 1]]
