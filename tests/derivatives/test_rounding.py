"""The bound on rounding errors, against closed forms and against errors as they happen."""

from itertools import cycle
from math import sqrt

import pytest
import torch

from opcheck.derivatives.rounding import ROUNDINGS, Computation, Exact, mismatch, nudges, rounding_unit

UNITS = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.complex64: 2.0**-24}


def exact(function, *inputs, unit=2.0**-8):
    others = [(function(*(move(x) for x in inputs)),) for move in nudges(unit, 8)]
    return Exact.of((function(*inputs),), others, unit)


def condition(function, *inputs, unit=1e-8):
    """The condition of each entry, without that of the length."""
    return exact(function, *inputs, unit=unit).condition[:-1]


@pytest.mark.parametrize(("dtype", "unit"), UNITS.items())
def test_the_rounding_unit_is_half_the_distance_to_the_next_number(dtype, unit):
    assert rounding_unit(dtype) == unit


class TestNudges:
    def test_each_moves_by_the_unit_either_way(self):
        x = torch.tensor([1.0, -2.0, 0.0, 4.0], dtype=torch.float64)
        moved = torch.stack([move(x) for move in nudges(0.125, 8)])
        assert len(moved) == 8
        assert torch.equal((moved / x - 1).abs()[:, [0, 1, 3]], torch.full((8, 3), 0.125, dtype=torch.float64))
        assert not bool(moved[:, 2].any())  # zeros are part of the structure of a matrix
        assert len({tuple(row.tolist()) for row in moved}) > 1

    def test_complex_numbers_keep_their_phase_and_integers_their_value(self):
        z, n = torch.tensor([3 + 4j]), torch.tensor([7])
        for move in nudges(0.125, 8):
            assert torch.allclose((move(z) / z - 1).abs(), torch.tensor([0.125]))
            assert move(n) is n

    def test_they_are_the_same_each_time(self):
        x = torch.ones(5, dtype=torch.float64)
        assert all(map(torch.equal, [move(x) for move in nudges(0.5, 8)], [move(x) for move in nudges(0.5, 8)]))

    def test_what_requires_grad_still_does(self):
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        assert all(move(x).requires_grad and move(x).is_leaf for move in nudges(0.5, 8))


class TestCondition:
    def test_of_an_elementwise_function_it_is_exact(self):
        x = torch.linspace(0.1, 2, 7, dtype=torch.float64)
        torch.testing.assert_close(condition(torch.sin, x), (x * x.cos()).abs(), rtol=1e-6, atol=1e-7)

    def test_of_a_product_it_is_that_of_both_factors(self):
        x, y = torch.tensor([3.0], dtype=torch.float64), torch.tensor([5.0], dtype=torch.float64)
        assert float(condition(torch.mul, x, y)) == pytest.approx(30.0, rel=1e-6)

    def test_of_a_sum_it_lies_between_random_and_worst_case(self):
        x = torch.ones(100, dtype=torch.float64)
        assert 0.5 * sqrt(100) < float(condition(lambda x: x.sum().reshape(1), x)) < 100

    def test_of_cancelling_numbers_it_is_that_of_the_numbers(self):
        x = torch.tensor([1.0, -1.0], dtype=torch.float64)
        assert float(condition(lambda x: x.sum().reshape(1), x)) == pytest.approx(2.0)

    def test_a_jump_within_rounding_counts(self):
        x = torch.tensor([1.0], dtype=torch.float64)
        assert float(condition(lambda x: (x >= 1.0).double(), x, unit=0.125)) == pytest.approx(8.0)

    def test_where_a_moved_result_is_nan_nothing_is_known(self):
        x = torch.tensor([1.0, 0.5], dtype=torch.float64)
        found = condition(lambda x: torch.sqrt(1 - x), x)
        assert found[0] == float("inf")
        assert found[1] < 1


class TestBound:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_in_half_precision_a_well_conditioned_result_may_be_off_by_a_few_units(self, dtype):
        x = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
        unit = rounding_unit(dtype)
        allowed = exact(torch.neg, x, unit=unit).allowed((dtype,), terms=3)[:-1]
        torch.testing.assert_close(allowed, unit * ((1 + ROUNDINGS) * x + 2.0), rtol=1e-2, atol=1e-6)

    def test_in_single_precision_it_is_the_worst_case(self):
        x = torch.tensor([1.0], dtype=torch.float64)
        unit = rounding_unit(torch.float32)
        found = exact(torch.neg, x, unit=unit)
        few, many = (found.allowed((torch.float32,), terms) for terms in (100, 1000))
        torch.testing.assert_close(many, 10 * few)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
    @pytest.mark.parametrize("seed", range(5))
    def test_errors_as_they_happen_are_within_it(self, dtype, seed):
        torch.manual_seed(seed)
        x, w = torch.randn(6, 8).to(dtype), torch.randn(8, 4).to(dtype)
        for function in (
            lambda x, w: x @ w, lambda x, w: torch.softmax(x @ w, -1), lambda x, w: torch.tanh(x @ w).sum(0),
            lambda x, w: torch.exp(x).mean(1), lambda x, w: torch.sin(x) * torch.cos(x),
        ):  # fmt: skip
            found = exact(function, x.double(), w.double(), unit=rounding_unit(dtype))
            error = (found.measured((function(x, w),)) - found.value).abs()
            assert bool((error <= found.allowed((dtype,), terms=x.numel() + w.numel())).all())

    def test_a_sum_in_its_own_precision_is_beyond_it_for_many_terms(self):
        x = torch.ones(1024, dtype=torch.bfloat16)  # 256 + 1 is 256
        total = torch.zeros((), dtype=torch.bfloat16)
        for value in x:
            total = total + value
        found = exact(lambda x: x.sum().reshape(1), x.double())
        assert abs(float(total) - 1024) > float(found.allowed((torch.bfloat16,), terms=1024)[0])

    def test_infinity_is_excused_beyond_the_range_only(self):
        found = Exact.of((torch.tensor([1e5, 1.0, -1e5, float("nan")], dtype=torch.float64),), [], 1e-3)
        inf = float("inf")
        got = torch.tensor([inf, inf, inf, float("nan")], dtype=torch.float64)
        assert found.is_excusable(torch.cat([got, got[:1]]), [torch.float16]).tolist()[:4] == [True, False, False, True]


class TestLength:
    def test_what_is_off_by_a_factor_shows_in_it_first(self):
        torch.manual_seed(0)
        x = torch.rand(1000, dtype=torch.float64) + 0.5
        found = exact(torch.neg, x)
        rounded = -x.bfloat16().double()
        error = (found.measured((1.01 * rounded,)) - found.value).abs()
        beyond = error > found.allowed((torch.bfloat16,), terms=1000)
        assert bool(beyond[-1])
        assert not bool(beyond[:-1].any())
        error = (found.measured((rounded,)) - found.value).abs()
        assert not bool((error > found.allowed((torch.bfloat16,), terms=1000)).any())

    def test_each_tensor_has_its_own(self):
        one, two = torch.tensor([3.0, 4.0], dtype=torch.float64), torch.tensor([5.0, 12.0], dtype=torch.float64)
        assert Exact.of((one, two), [], 1e-3).value.tolist() == [3.0, 4.0, 5.0, 12.0, 5.0, 13.0]

    def test_nothing_is_known_of_what_is_not_finite(self):
        wide = torch.tensor([float("inf"), 1.0], dtype=torch.float64)
        assert float(Exact.of((wide,), [], 1e-3).value[-1]) == 0.0


class TestComputation:
    @staticmethod
    def deviation(function, x, dtype, result=None, **more):
        computation = Computation(lambda move: (function(move(x)),), dtype, terms=x.numel(), **more)
        got = function(x.to(dtype)) if result is None else result
        return computation.deviation(tuple, (got,), ("y",))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.complex64, torch.float64])
    @pytest.mark.parametrize("function", [torch.sin, torch.neg, lambda x: torch.softmax(x.real, 0), torch.cumsum])
    def test_rounded_results_pass_and_others_do_not(self, function, dtype):
        call = (lambda x: torch.cumsum(x, 0)) if function is torch.cumsum else function
        x = torch.linspace(0.5, 2, 9, dtype=torch.complex128 if dtype.is_complex else torch.float64)
        x = x.to(dtype).to(x.dtype)  # both sides have the same numbers
        assert self.deviation(call, x, dtype) is None
        wrong = call(x.to(dtype))
        wrong[3] *= 1.25
        found = self.deviation(call, x, dtype, wrong)
        assert found is not None
        assert found.headline().startswith("y[3]")
        assert "of 9" in "\n".join(found.lines()).replace("of 18", "of 9")

    def test_inputs_are_moved_only_where_a_result_is_off_by_more_than_one_rounding(self):
        calls = []

        def sine(x):
            calls.append(1)
            return torch.sin(x)

        x = torch.tensor([0.5, 1.0], dtype=torch.float64)
        assert self.deviation(sine, x, torch.bfloat16, torch.sin(x).bfloat16()) is None
        assert len(calls) == 1
        assert self.deviation(sine, x, torch.bfloat16, torch.sin(x).bfloat16() + 0.5) is not None
        assert (
            len(calls) == 1 + 1 + 8 + 8 + 8
        )  # the result of each call, eight moves, eight far ones, and eight near ones

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_a_jump_is_excused_as_far_away_as_the_bound_allows(self, dtype):
        unit = rounding_unit(dtype)

        def signed(x):
            return x * torch.where(x >= 1, 1.0, -1.0)

        def of(distance, result):
            x = torch.tensor([1 + distance * unit], dtype=torch.float64)
            return self.deviation(signed, x, dtype, (result * x).to(dtype))

        for distance in (1, ROUNDINGS - 1):  # decided by a comparison of what was rounded before
            assert of(distance, 1) is None
            assert of(distance, -1) is None
            assert of(distance, 20) is not None
        assert of(ROUNDINGS + 2, 1) is None
        assert of(ROUNDINGS + 2, -1) is not None

    def test_where_inputs_may_not_be_moved_nothing_is_excused(self):
        def strict(x):
            if not bool((x == 1).all()):
                raise ValueError("ones only")
            return 3 * x

        x = torch.ones(2, dtype=torch.float64)
        assert self.deviation(strict, x, torch.bfloat16, torch.tensor([3.0, 3.0]).bfloat16()) is None
        assert self.deviation(strict, x, torch.bfloat16, torch.tensor([3.0, 3.5]).bfloat16()) is not None

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64])
    @pytest.mark.parametrize(
        ("times", "signs", "holds"), [(1.2, (1, -1), True), (1.2, (1, 1), False), (2.5, (1, -1), False)]
    )
    def test_an_error_by_chance_averages_out_nearby(self, dtype, times, signs, holds):
        wide = torch.complex128 if dtype.is_complex else torch.float64
        x = torch.linspace(0.5, 2, 4, dtype=wide).to(dtype).to(wide)
        bound = 7 * rounding_unit(dtype) * (64 if dtype.is_complex else 1)  # of a well-conditioned entry
        each = cycle(signs)
        seen = {"exact": [], "tested": []}

        def exact(move):
            seen["exact"].append(move(x))
            return (-seen["exact"][-1],)

        def tested(move):
            moved = move(x)
            seen["tested"].append(moved.to(dtype).to(wide))
            return (-moved * (1 + next(each) * times * bound * torch.tensor([1.0, -1.0, 1.0, -1.0])),)

        got = tested(lambda tensor: tensor)
        deviation = Computation(exact, dtype, terms=4).deviation(tuple, got, ("y",), None, tested)
        assert (deviation is None) == holds
        if times < 2:  # both computations have the same numbers, which the dtype can represent
            assert all(map(torch.equal, seen["exact"][-8:], seen["tested"][-8:]))
        assert Computation(exact, dtype, terms=4).deviation(tuple, got, ("y",)) is not None
        assert Computation(exact, dtype, terms=4).deviation(tuple, got, ("y",), (0.0, bound), tested) is not None

    def test_if_both_sides_are_rounded_twice_as_much_is_allowed(self):
        x = torch.tensor([1.0], dtype=torch.float64)
        off = torch.tensor([1 + 10 * 2.0**-8]).bfloat16()  # the bound of a well-conditioned entry is 7 units
        assert self.deviation(lambda x: 1 * x, x, torch.bfloat16, off) is not None
        assert self.deviation(lambda x: 1 * x, x, torch.bfloat16, off, sides=2) is None

    def test_a_stated_tolerance_is_the_last_word(self):
        x = torch.tensor([0.1], dtype=torch.float64)
        computation = Computation(lambda move: (torch.sin(move(x)),), torch.bfloat16, terms=1)
        got = (torch.sin(x).bfloat16(),)
        assert computation.deviation(tuple, got, ("y",)) is None
        assert computation.deviation(tuple, got, ("y",), (0.0, 1e-9)) is not None
        assert computation.deviation(tuple, (got[0] + 0.05,), ("y",), (0.1, 0.0)) is None

    def test_the_largest_numbers_do_not_excuse_each_other(self):
        wide = torch.tensor([1.7e308, 1.0], dtype=torch.float64)
        found = self.deviation(lambda x: 1 * x, wide, torch.bfloat16, torch.tensor([3e38, 1.0]).bfloat16())
        assert found is not None
        assert found.headline().startswith("y[0]")

    def test_whole_numbers_are_exact_unless_rounding_moves_them(self):
        x = torch.tensor([1.0, 1.0 + 2.0**-12, 0.5], dtype=torch.float64)
        assert self.deviation(torch.argmax, x, torch.bfloat16, torch.tensor(0)) is None  # a tie to bfloat16
        found = self.deviation(torch.argmax, torch.tensor([1.0, 3.0]), torch.bfloat16, torch.tensor(0))
        assert found.headline() == "y[] is 0, not 1"

    def test_they_wrap_around_and_truncate_as_their_dtype_does(self):
        x = torch.tensor([100, 7], dtype=torch.int64)
        assert self.deviation(lambda x: x * x, x, torch.int8) is None  # 10,000 modulo 256
        assert self.deviation(lambda x: x * x, x, torch.int8, torch.tensor([17, 49], dtype=torch.int8)) is not None
        assert self.deviation(lambda x: x > 50, x, torch.int8) is None
        half = self.deviation(lambda x: x / 2, x, torch.int64, torch.tensor([50, 3]))
        assert half.headline() == "y[1] is 3, not 3.5"

    @pytest.mark.parametrize(("off", "is_whole"), [(-(2.0**-51), True), (2.0**-51, True), (-1e-9, False)])
    def test_what_double_precision_rounds_may_be_whole(self, off, is_whole):
        exact = torch.tensor([3 + off], dtype=torch.float64)
        computation = Computation(lambda move: (exact,), torch.int64, terms=2)
        assert (computation.deviation(tuple, (torch.tensor([3]),), ("y",)) is None) is is_whole
        assert computation.deviation(tuple, (torch.tensor([2]),), ("y",)) is not None

    def test_double_precision_has_a_say_about_whole_numbers_that_it_holds(self):
        exact = torch.tensor([100.0, -(2.0**60)], dtype=torch.float64)
        computation = Computation(lambda move: (exact,), torch.int64, terms=2)
        assert (
            computation.deviation(tuple, (torch.tensor([100, 2**60]),), ("y",)) is None
        )  # nobody knows about the second
        assert computation.deviation(tuple, (torch.tensor([101, 0]),), ("y",)).headline() == "y[0] is 101, not 100"

    def test_sparse_results_are_compared_as_dense_ones(self):
        x = torch.tensor([[0.0, 1.1], [2.3, 0.0]], dtype=torch.float64)
        computation = Computation(lambda move: (move(x).to_sparse(),), torch.bfloat16, terms=4)
        assert computation.deviation(tuple, (x.bfloat16().to_sparse(),), ("y",)) is None
        assert computation.deviation(tuple, ((1.5 * x).bfloat16().to_sparse(),), ("y",)).headline().startswith("y[")

    def test_as_a_whole_a_tensor_is_compared_until_its_bound_says_nothing(self):
        calls = []

        def cancelled(x):  # its condition is about 1e6
            calls.append(1)
            return x - x.detach().round()

        x = torch.tensor([1 + 2.0**-20, 2 + 2.0**-20], dtype=torch.float64)
        got = (torch.zeros(2, dtype=torch.bfloat16),)
        computation = Computation(lambda move: (cancelled(move(x)),), torch.bfloat16, terms=2)
        assert computation.deviation(tuple, got, ("y",), most=0.5) is None
        assert len(calls) == 1 + 2  # two moves show it, and further ones would only raise the bound
        single = torch.tensor([1.0, 1.0], dtype=torch.float64)
        computation = Computation(lambda move: (2 * move(single),), torch.bfloat16, terms=2)
        found = computation.deviation(tuple, ((2 * single).bfloat16() * 1.5,), ("y",), most=0.5)
        assert found.factors() == ["y as a whole is 1.5 times what it should be; allowed: 1 +- 0.026"]
        one_entry = torch.tensor([2.0, 2.1]).bfloat16()
        assert computation.deviation(tuple, (one_entry,), ("y",), most=0.5) is None

    def test_a_value_that_is_a_rounding_error_may_be_a_larger_one_in_a_coarser_dtype(self):
        x = torch.linspace(0.5, 2, 9, dtype=torch.float32).double()
        third = torch.full_like(x, 1 / 3).sqrt()

        def about_zero(x):
            return x - (x * third.to(x.dtype)) * third.to(x.dtype) * 3

        assert 0 < float(about_zero(x).abs().max()) < 1e-15
        assert self.deviation(about_zero, x, torch.float32) is None
        assert self.deviation(about_zero, x, torch.float32, torch.full_like(x, 1e-3).float()) is not None
        tiny = 1e-20 * x  # every digit of it is right
        assert self.deviation(torch.neg, tiny, torch.float32, 2 * tiny.float()) is not None

    def test_a_factor_is_said_of_the_tensor_that_has_it_alone(self):
        torch.manual_seed(0)
        x = torch.rand(1000, dtype=torch.float64) + 0.5
        computation = Computation(lambda move: (-move(x), 1 * move(x)), torch.bfloat16, terms=1000)
        found = computation.deviation(tuple, ((-1.01 * x).bfloat16(), x.bfloat16()), ("y", "z"))
        assert found.headline().startswith("y as a whole is 1.01 times what it should be")
        assert [line.split()[0] for line in found.lines()] == ["y"]

    def test_whether_anything_stays_finite_counts_moved_inputs(self):
        edge = torch.tensor([1.0], dtype=torch.float64)
        whole = Computation(lambda move: (torch.sqrt(1 - move(edge)),), torch.bfloat16, terms=1)
        assert not whole.stays_finite(tuple)
        assert Computation(lambda move: (torch.sqrt(move(edge)),), torch.bfloat16, terms=1).stays_finite(tuple)


class TestMismatch:
    @pytest.mark.parametrize(
        ("got", "right", "text"),
        [
            ((torch.ones(2),), (torch.ones(2),), ""),
            ((torch.ones(2),), (), "1 results, not 0"),
            ((torch.ones(2),), (torch.ones(2, 1),), "y has the shape [2], not [2, 1]"),
            ((torch.ones(2) * 1j,), (torch.ones(2),), "y is complex, and should not be"),
            ((torch.ones(2),), (torch.ones(2) * 1j,), "y is real, and should not be"),
        ],
    )
    def test_it_says_why_results_cannot_be_compared(self, got, right, text):
        assert mismatch(got, right, ("y",)) == text
