"""Shards: complete, disjoint, whole groups, about equally long, and the same in every process."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentTypeError
from collections import Counter, defaultdict
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opcheck
from opcheck.planning import Case
from opcheck.planning.shards import OVERHEAD, Durations, Group, Shard, Shared, Taken, groups_in
from opcheck.spec.load import builtin_folder

CASES = opcheck.plan(opcheck.load(builtin_folder() / "reduction"), device="cpu")


def record(case: Case, seconds: float) -> Taken:
    return Taken(case.id, case.operator.id, case.check, seconds)


def divided(count: int, durations: Durations | None = None, cases: list[Case] = CASES) -> list[list[Case]]:
    shards = [groups_in(Shard(number, count), cases, durations) for number in range(1, count + 1)]
    return [[case for case in cases if Group.of(case) in shard] for shard in shards]


class TestNames:
    @pytest.mark.parametrize("text", ["1/1", "3/8", "8/8", "10/999999"])
    def test_a_shard_has_a_number_and_a_count(self, text: str) -> None:
        assert str(Shard.parse(text)) == text

    @pytest.mark.parametrize("text", ["", "3", "0/8", "9/8", "1/0", "a/b", "3/8/1", " 3/8", "-1/8", "1/1e3", "٣/٨"])
    def test_all_else_is_refused_with_an_example(self, text: str) -> None:
        with pytest.raises(ArgumentTypeError, match="is not a shard; expected NUMBER/COUNT, from 1/8 to 8/8"):
            Shard.parse(text)


@pytest.mark.parametrize("count", [1, 2, 5, 64])
def test_each_case_is_in_exactly_one_shard(count: int) -> None:
    taken = Counter(case.id for shard in divided(count) for case in shard)
    assert taken == Counter(case.id for case in CASES)


def test_shards_keep_the_order_of_the_cases() -> None:
    order = {case.id: place for place, case in enumerate(CASES)}
    for shard in divided(3):
        places = [order[case.id] for case in shard]
        assert places == sorted(places)


def test_what_shares_evidence_stays_together() -> None:
    homes: defaultdict[Group, set[int]] = defaultdict(set)
    for number, shard in enumerate(divided(7)):
        for case in shard:
            homes[Group.of(case)].add(number)
    assert len(homes) > 100
    assert {len(numbers) for numbers in homes.values()} == {1}


def test_without_durations_shards_have_about_equally_many_cases() -> None:
    counts = [len(shard) for shard in divided(5)]
    largest = max(Counter(map(Group.of, CASES)).values())
    assert max(counts) - min(counts) <= largest
    assert max(counts) <= 1.02 * len(CASES) / 5


def test_with_durations_shards_take_about_equally_long() -> None:
    taken = {case.id: 10.0 if case.check == "backward" else 0.01 * place for place, case in enumerate(CASES)}
    durations = Durations.of([record(case, taken[case.id]) for case in CASES], "a.json")
    loads = [sum(taken[case.id] for case in shard) for shard in divided(5, durations)]
    assert max(loads) <= 1.05 * sum(loads) / 5


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1, 1e4), min_size=1, max_size=30), st.integers(1, 12))
def test_no_shard_exceeds_the_bound_of_the_greedy_division(seconds: list[float], count: int) -> None:
    cases = CASES[:400]
    records = [record(case, each) for case, each in zip(cases, cycle(seconds), strict=False)]
    durations = Durations.of(records, "a.json")
    weights: Counter[Group] = Counter()
    for case in cases:
        weights[Group.of(case)] += durations.of_case(case)
    shards = divided(count, durations, cases)
    assert Counter(case.id for shard in shards for case in shard) == Counter(case.id for case in cases)
    heaviest = max(sum(durations.of_case(case) for case in shard) for shard in shards)
    assert heaviest <= (sum(weights.values()) / count + max(weights.values())) * (1 + 1e-9)


def test_more_shards_than_groups_leave_some_empty() -> None:
    few = [case for case in CASES if case.subject == "torch.sum" and case.dtype == "float64"]
    sizes = sorted(map(len, divided(4, cases=few)))
    assert sizes == [0, 0, 0, len(few)]


def test_what_a_shard_has_is_told() -> None:
    assert str(Shared("2/5", 1, 7)) == "shard 2/5: 1 case; the other shards have 7"
    assert str(Shared("2/5", 0, 7)) == "shard 2/5: no cases; the other shards have 7"


class TestDurations:
    def test_a_case_with_several_records_takes_their_mean(self) -> None:
        durations = Durations.of([record(CASES[0], 1.0), record(CASES[0], 3.0)], "a.json")
        assert durations.of_case(CASES[0]) == 2.0 + OVERHEAD

    def test_a_case_without_one_takes_as_long_as_others_of_its_check(self) -> None:
        first = next(case for case in CASES if case.check == "backward")
        second = next(case for case in CASES if case.check == "vmap")
        durations = Durations.of([record(first, 1.0), record(second, 5.0)], "a.json")
        unknown = {case.check: durations.of_case(case) for case in CASES if case not in (first, second)}
        assert unknown["backward"] == 1.0 + OVERHEAD
        assert unknown["vmap"] == 5.0 + OVERHEAD
        assert unknown["dtypes"] == 3.0 + OVERHEAD  # a check that did not run takes as long as all

    def test_those_of_other_operators_are_no_use(self) -> None:
        known = [case for case in CASES if case.operator.id == "torch.sum"]
        others = [case for case in CASES if case.operator.id == "torch.mean"]
        durations = Durations.of([record(known[0], 1.0)], "old.json")
        assert durations.mistake([*others, known[-1]]) == ""
        assert durations.mistake(others).startswith("old.json has no duration of any selected operator; expected")

    def test_without_records_there_are_none(self) -> None:
        assert Durations.of([], "a.json").mistake(CASES)


SCRIPT = """
import opcheck
from opcheck.planning.shards import Group, Shard, groups_in
cases = opcheck.plan(opcheck.load("{folder}/reduction"), device="cpu")
own = groups_in(Shard(2, 5), reversed(cases))
print(*(case.id for case in cases if Group.of(case) in own), sep="\\n")
"""


def test_another_process_finds_the_same_in_any_order() -> None:
    script = SCRIPT.format(folder=builtin_folder())
    here = Path(__file__).parent  # the settings of this project decide what is planned
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=here)
    assert done.stdout.splitlines() == [case.id for case in divided(5)[1]]
