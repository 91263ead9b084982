"""Numbers within bounds, away from points, apart from each other, or as they are given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from opcheck.samples.draw import MARGIN, draw
from opcheck.spec.recipe import Tensor

FLOATING = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
MANY = (40, 50)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def drawn(dtype: torch.dtype, shape: tuple[int, ...] = MANY, **keys: Any) -> torch.Tensor:
    keys = keys if "values" in keys else {"shape": list(shape)} | keys
    return draw(Tensor.model_validate(keys), shape, dtype)


def parts(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x) if x.is_complex() else x


class TestBounds:
    @pytest.mark.parametrize("dtype", [*FLOATING, torch.complex128, torch.complex64])
    def test_default_values_lie_between_minus_2_and_2_on_both_sides_of_zero(self, dtype: torch.dtype) -> None:
        values = parts(drawn(dtype)).double()
        assert values.min() >= -2
        assert values.min() < -1
        assert values.max() < 2
        assert values.max() > 1

    @pytest.mark.parametrize("dtype", FLOATING)
    def test_low_is_kept_and_high_is_never_reached(self, dtype: torch.dtype) -> None:
        values = drawn(dtype, (200, 500), low=0, high=1).double()
        assert values.min() >= 0
        assert values.max() < 1

    @pytest.mark.parametrize(
        ("keys", "least", "most"),
        [
            ({"low": 1.5}, 1.5, 5.5),
            ({"low": -8}, -8, 2),
            ({"low": 0.5}, 0.5, 2),
            ({"high": -1.5}, -5.5, -1.5),
            ({"high": 8}, -2, 8),
            ({"high": -0.5}, -2, -0.5),
            ({"low": 2}, 2, 6),
            ({"high": -2}, -6, -2),
        ],
    )
    def test_a_missing_bound_leaves_room_beside_the_given_one(
        self, keys: dict[str, float], least: float, most: float
    ) -> None:
        values = drawn(torch.float64, **keys)
        assert values.min() >= least
        assert values.max() <= most
        assert values.max() - values.min() > 0.9 * (most - least)

    @pytest.mark.parametrize("dtype", [torch.complex128, torch.complex64])
    def test_bounds_hold_for_real_and_imaginary_parts(self, dtype: torch.dtype) -> None:
        values = parts(drawn(dtype, low=0.5, high=0.75))
        assert values.min() >= 0.5
        assert values.max() < 0.75


class TestWholeNumbers:
    @pytest.mark.parametrize("dtype", WHOLE)
    def test_default_values_are_small_and_of_both_signs_where_the_dtype_has_them(self, dtype: torch.dtype) -> None:
        least = 0 if dtype is torch.uint8 else -10
        assert sorted(drawn(dtype).unique().tolist()) == list(range(least, 10))

    @pytest.mark.parametrize(
        ("keys", "least", "most"),
        [
            ({}, 0, 9),
            ({"high": 5}, 0, 4),
            ({"low": -3, "high": 0}, -3, -1),
            ({"low": 4}, 4, 9),
            ({"high": -2}, -12, -3),
        ],
    )
    def test_those_called_integers_are_not_negative_unless_a_bound_says_so(
        self, keys: dict[str, float], least: int, most: int
    ) -> None:
        recipe = Tensor.model_validate({"shape": MANY, "dtype": "integer", **keys})
        assert draw(recipe, MANY, torch.int64).unique().tolist() == list(range(least, most + 1))

    @pytest.mark.parametrize(
        ("keys", "least", "most"), [({}, -10, 9), ({"high": 5}, 0, 4), ({"high": 0}, -10, -1), ({"low": 3}, 3, 9)]
    )
    def test_those_of_a_named_dtype_begin_at_zero_where_only_high_is_given(
        self, keys: dict[str, float], least: int, most: int
    ) -> None:
        recipe = Tensor.model_validate({"shape": MANY, "dtype": "int64", **keys})
        assert draw(recipe, MANY, torch.int64).unique().tolist() == list(range(least, most + 1))

    @pytest.mark.parametrize("dtype", WHOLE)
    def test_bounds_that_are_no_whole_numbers_hold_inside(self, dtype: torch.dtype) -> None:
        assert sorted(drawn(dtype, low=1.1, high=4.5).unique().tolist()) == [2, 3, 4]

    def test_an_interval_between_two_whole_numbers_gives_the_next_one_above(self) -> None:
        assert drawn(torch.int64, low=0.25, high=0.75).unique().tolist() == [1]

    def test_low_far_below_the_default_is_kept(self) -> None:
        assert sorted(drawn(torch.int64, low=-14, high=-11).unique().tolist()) == [-14, -13, -12]

    @pytest.mark.parametrize(
        ("keys", "expected"),
        [({"low": 50}, range(50, 70)), ({"high": -20}, range(-40, -20)), ({"high": 3}, range(-10, 3))],
    )
    def test_a_missing_bound_leaves_room_beside_the_given_one(self, keys: dict[str, float], expected: range) -> None:
        assert sorted(drawn(torch.int64, **keys).unique().tolist()) == list(expected)

    @pytest.mark.parametrize(("dtype", "most"), [(torch.uint8, 255), (torch.int8, 127)])
    def test_bounds_beyond_the_dtype_give_its_last_number(self, dtype: torch.dtype, most: int) -> None:
        assert drawn(dtype, low=1000, high=2000).unique().tolist() == [most]

    def test_negative_bounds_of_an_unsigned_dtype_give_zero(self) -> None:
        assert drawn(torch.uint8, low=-5, high=-1).unique().tolist() == [0]

    def test_booleans_take_both_values_whatever_the_bounds(self) -> None:
        assert sorted(drawn(torch.bool, low=300, high=400, exclude=0).unique().tolist()) == [False, True]


class TestNormalValues:
    @pytest.mark.parametrize("dtype", [*FLOATING, torch.complex128, torch.complex64])
    def test_they_have_the_mean_and_the_standard_deviation(self, dtype: torch.dtype) -> None:
        values = drawn(dtype, (200, 500), mean=3.0, std=0.5).to(torch.complex128)
        assert abs(values.mean() - 3) < 0.01
        assert float((values - 3).abs().square().mean().sqrt()) == pytest.approx(0.5, rel=0.02)
        # some 5 % of real ones lie beyond two standard deviations; uniform ones would not reach that far
        assert bool(((values - 3).abs() > 1).any())

    def test_either_key_alone_is_enough(self) -> None:
        assert float(drawn(torch.float64, std=0.1).std()) == pytest.approx(0.1, rel=0.1)
        assert float(drawn(torch.float64, mean=7.0).mean()) == pytest.approx(7, abs=0.1)

    @pytest.mark.parametrize("dtype", WHOLE)
    def test_whole_numbers_are_rounded(self, dtype: torch.dtype) -> None:
        values = drawn(dtype, mean=20.0, std=0.4)
        assert values.dtype is dtype
        assert sorted(values.unique().tolist()) in ([19, 20, 21], [18, 19, 20, 21], [19, 20, 21, 22])

    def test_whole_numbers_stay_within_their_dtype(self) -> None:
        assert drawn(torch.uint8, mean=-300.0).unique().tolist() == [0]
        assert drawn(torch.int64, mean=1e30).unique().tolist() == [2**53]

    def test_booleans_take_both_values(self) -> None:
        assert drawn(torch.bool, mean=5.0).unique().tolist() == [False, True]

    def test_they_avoid_points(self) -> None:
        assert float(drawn(torch.float64, std=0.3, exclude=0.0).abs().min()) >= MARGIN

    def test_distinct_ones_are_apart(self) -> None:
        ordered = drawn(torch.float64, (20,), mean=1.0, structure="distinct").sort().values
        assert float(ordered.diff().min()) >= 0.1 * 4 / 20

    @pytest.mark.parametrize("keys", [{"low": 0}, {"high": 3}, {"values": [1.0]}, {"std": -1}])
    def test_they_have_no_bounds(self, keys: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"do not go with mean and std|does not apply to explicit|or equal to 0"):
            drawn(torch.float64, mean=0.0, **keys)


class TestExcludedPoints:
    @pytest.mark.parametrize("dtype", [*FLOATING, torch.complex128, torch.complex64])
    def test_values_keep_their_distance_from_every_point(self, dtype: torch.dtype) -> None:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        values = drawn(dtype, exclude=[0.0, 0.15, -1]).to(wide)
        assert min((values - point).abs().min().item() for point in (0.0, 0.15, -1)) >= MARGIN

    def test_values_stay_within_the_bounds_while_keeping_their_distance(self) -> None:
        values = drawn(torch.float64, low=0, high=0.25, exclude=[0.0, 0.25])
        assert values.min() >= 0.1
        assert values.max() <= 0.15

    def test_a_distribution_without_room_beside_the_points_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"no values between 0.15 and 0.15 keep a distance of 0.1 from \(0.1,\)"):
            drawn(torch.float64, (3,), mean=0.15, std=0, exclude=0.1)

    @pytest.mark.parametrize("dtype", WHOLE)
    def test_whole_numbers_avoid_the_point_itself(self, dtype: torch.dtype) -> None:
        assert sorted(drawn(dtype, low=0, high=5, exclude=[0, 3, 2.5]).unique().tolist()) == [1, 2, 4]

    def test_whole_numbers_take_an_excluded_point_where_nothing_else_is_left(self) -> None:
        assert drawn(torch.int64, low=-0.5, high=0.5, exclude=0).unique().tolist() == [0]

    @pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
    def test_rank_0_and_empty_tensors_have_points_too(self, shape: tuple[int, ...]) -> None:
        assert drawn(torch.float64, shape, exclude=0).shape == shape


class TestDistinctValues:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("keys", [{}, {"low": 0.5, "high": 1}, {"exclude": 0}, {"low": 0, "exclude": [0, 1]}])
    def test_no_two_are_closer_than_a_tenth_of_the_mean_distance(
        self, dtype: torch.dtype, keys: dict[str, float]
    ) -> None:
        values = drawn(dtype, (5, 10), structure="distinct", **keys).double().flatten().sort().values
        low, high = keys.get("low", -2), keys.get("high", 2)
        assert values[0] >= low
        assert values[-1] < high
        assert values.diff().min() >= 0.0999 * (high - low) / 50
        if "exclude" in keys:
            assert values.abs().min() >= MARGIN

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_has_no_ties(self, dtype: torch.dtype) -> None:
        assert len(drawn(dtype, (5, 6), structure="distinct").unique()) == 30

    @pytest.mark.parametrize(("dtype", "count"), [(torch.bfloat16, 1031), (torch.float16, 16384)])
    def test_more_than_a_coarse_dtype_has_cannot_be_distinct(self, dtype: torch.dtype, count: int) -> None:
        with pytest.raises(ValueError, match="cannot be distinct: it has too few"):
            drawn(dtype, (count,), structure="distinct")

    def test_complex_values_have_distinct_real_parts_and_imaginary_parts(self) -> None:
        values = drawn(torch.complex128, (5, 10), structure="distinct")
        assert values.real.flatten().sort().values.diff().min() >= 0.1 * 4 / 50
        assert values.imag.abs().max() > 1

    @pytest.mark.parametrize("dtype", WHOLE)
    def test_whole_numbers_stay_within_the_bounds_where_there_are_enough(self, dtype: torch.dtype) -> None:
        values = drawn(dtype, (2, 3), structure="distinct", low=1, high=8, exclude=4).flatten().tolist()
        assert len(set(values)) == 6
        assert set(values) <= {1, 2, 3, 5, 6, 7}

    def test_whole_numbers_go_past_the_upper_bound_where_there_are_too_few(self) -> None:
        assert sorted(drawn(torch.int64, (2, 3), structure="distinct", low=0, high=4).flatten().tolist()) == list(
            range(6)
        )

    @pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.int64, torch.bool])
    @pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0)])
    def test_rank_0_and_empty_tensors_are_distinct(self, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        values = drawn(dtype, shape, structure="distinct")
        assert (values.shape, values.dtype) == (shape, dtype)


class TestContainedValues:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.int64])
    def test_they_are_the_first_elements_of_random_ones(self, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        values = drawn(dtype, (3, 4), contains=[0, 12])
        torch.manual_seed(0)
        plain = drawn(dtype, (3, 4))
        assert values[0, :2].tolist() == [0, 12]
        assert torch.equal(values.flatten()[2:], plain.flatten()[2:])

    def test_points_that_others_avoid_may_be_among_them(self) -> None:
        values = drawn(torch.float64, (40,), contains=[0.0], exclude=0.0)
        assert (values == 0).sum() == 1

    @pytest.mark.parametrize(
        ("keys", "why"),
        [
            ({"shape": [2, 2], "structure": "hermitian"}, "contains would spoil the structure hermitian"),
            ({"shape": []}, "2 numbers do not fit into a tensor of 1 elements"),
            ({"values": [1, 2]}, "contains does not apply to explicit values"),
            ({"shape": [2], "dtype": "bool"}, "contains does not apply to masks"),
        ],
    )
    def test_where_they_cannot_stand_they_are_refused(self, keys: dict[str, Any], why: str) -> None:
        with pytest.raises(ValidationError, match=why):
            Tensor.model_validate({**keys, "contains": [0, 12]})


class TestExplicitValues:
    def test_they_are_taken_as_they_are(self) -> None:
        values = drawn(torch.float64, (2, 2), values=[[1, -0.1], [2.5, 1e-9]])
        assert values.tolist() == [[1, -0.1], [2.5, 1e-9]]
        assert values.dtype is torch.float64

    def test_float64_keeps_all_digits(self) -> None:
        assert drawn(torch.float64, (1,), values=[1 / 3]).item() == 1 / 3

    def test_whole_numbers_keep_all_digits(self) -> None:
        assert drawn(torch.int64, (1,), values=[2**53 + 1]).item() == 2**53 + 1

    def test_a_number_alone_is_of_rank_0(self) -> None:
        assert drawn(torch.float64, (), values=3).shape == ()

    @pytest.mark.parametrize(("values", "shape"), [([], (0,)), ([[], []], (2, 0))])
    def test_empty_arrays_are_empty_tensors(self, values: list[Any], shape: tuple[int, ...]) -> None:
        assert drawn(torch.float64, shape, values=values).shape == shape

    def test_complex_numbers_stand_beside_real_ones(self) -> None:
        values = drawn(torch.complex128, (2,), values=[{"complex": [1, -2]}, 3])
        assert values.tolist() == [1 - 2j, 3]

    def test_complex_numbers_are_refused_by_a_real_dtype(self) -> None:
        with pytest.raises(TypeError, match="complex"):
            drawn(torch.float64, (1,), values=[{"complex": [1, 2]}])

    @pytest.mark.parametrize(
        ("dtype", "expected"), [(torch.bool, [True, False]), (torch.int64, [-1, 0]), (torch.uint8, [255, 0])]
    )
    def test_they_are_converted_to_the_dtype(self, dtype: torch.dtype, expected: list[Any]) -> None:
        assert drawn(dtype, (2,), values=[-1, 0]).tolist() == expected

    def test_infinity_and_nan_are_values(self) -> None:
        values = drawn(torch.float64, (2,), values=[float("inf"), float("nan")])
        assert values.isinf().tolist() == [True, False]
        assert values.isnan().tolist() == [False, True]


@pytest.mark.parametrize("dtype", [*FLOATING, torch.complex64, torch.complex128, *WHOLE, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3)])
def test_shape_and_dtype_are_as_asked_for(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = drawn(dtype, shape)
    assert (values.shape, values.dtype, values.device.type) == (shape, dtype, "cpu")
