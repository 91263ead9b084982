"""Divides cases into shards, which separate machines run: complete, disjoint, and about equally long.

The cases of one group share samples and evidence, so that a group is never divided. Which shard has it depends on the
cases that are divided, on the number of shards and on the durations, and on nothing else: every process finds the same.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapreplace
from statistics import fmean
from typing import NamedTuple

from opcheck.planning.case import Case
from opcheck.text import n_cases

OVERHEAD = 0.002
"""Seconds that a case takes beside what its record says, in pytest."""

NO_SHARD = "durations are for shards; expected a shard, such as 1/8, as well"
"""The message for a request with durations that asks for no shard."""


class Group(NamedTuple):
    """Cases that share evidence: those of one operator and variant, in one dtype, on one device."""

    operator: str
    variant: str
    device: str
    dtype: str

    @classmethod
    def of(cls, case: Case) -> Group:
        """Return the group of a case."""
        return cls(case.operator.id, case.variant.kind, case.device.name, case.dtype)


@dataclass(frozen=True)
class Shard:
    """One of several shards, as in `3/8`."""

    number: int
    """From 1 to `count`."""
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard that a text such as `3/8` names. Raises ArgumentTypeError, since options have such texts."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        number, count = map(int, match.groups()) if match else (0, 0)
        if not 1 <= number <= count:
            raise ArgumentTypeError(f'"{text}" is not a shard; expected NUMBER/COUNT, from 1/8 to 8/8 for example')
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


class Taken(NamedTuple):
    """How long a case has taken."""

    id: str
    operator: str
    check: str
    seconds: float


@dataclass(frozen=True)
class Durations:
    """How long cases have taken, from the records of an earlier run. A case without a record gets an estimate.

    The estimate is the mean of all cases of the same check, else of all cases.
    """

    source: str
    """The file with the records."""
    by_case: Mapping[str, float] = field(default_factory=dict)
    by_check: Mapping[str, float] = field(default_factory=dict)
    mean: float = 0.0
    operators: frozenset[str] = frozenset()

    @classmethod
    def of(cls, records: Iterable[Taken], source: str) -> Durations:
        """Return the durations in records, the mean of a case that has several."""
        of_case: defaultdict[str, list[float]] = defaultdict(list)
        of_check: defaultdict[str, list[float]] = defaultdict(list)
        operators = set()
        for id, operator, check, seconds in records:
            of_case[id].append(max(seconds, 0.0))
            of_check[check].append(max(seconds, 0.0))
            operators.add(operator)
        every = [seconds for several in of_case.values() for seconds in several]
        return cls(source, _means(of_case), _means(of_check), fmean(every) if every else 0.0, frozenset(operators))

    def of_case(self, case: Case) -> float:
        """Return how many seconds a case takes, as far as one knows."""
        return self.by_case.get(case.id, self.by_check.get(case.check, self.mean)) + OVERHEAD

    def mistake(self, cases: Iterable[Case]) -> str:
        """Return why the durations say nothing about some cases; an empty string if they do."""
        if any(case.operator.id in self.operators for case in cases):
            return ""
        return f"{self.source} has no duration of any selected operator; expected the report of an earlier run of them"


def _means(groups: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: fmean(seconds) for name, seconds in groups.items()}


class Division:
    """Some cases, divided into shards: the longest group first, each onto the shard that has least to do by then."""

    def __init__(self, cases: Iterable[Case], shard: Shard, durations: Durations | None = None) -> None:
        """Divide cases.

        shard: the one that `takes` is asked about. durations: how long cases take; default: all of them equally long.
        """
        self.shard = shard
        weights: defaultdict[Group, float] = defaultdict(float)
        for case in cases:
            weights[Group.of(case)] += durations.of_case(case) if durations else 1
        loads = [(0.0, number) for number in range(1, shard.count + 1)]  # a heap
        self._shards: dict[Group, int] = {}
        for group in sorted(weights, key=lambda group: (-weights[group], group)):
            load, number = loads[0]
            heapreplace(loads, (load + weights[group], number))
            self._shards[group] = number

    def takes(self, case: Case) -> bool:
        """Tell whether a case is in the shard."""
        return self._shards[Group.of(case)] == self.shard.number

    def count(self, cases: Iterable[Case]) -> Shared:
        """Return how many of some cases the shard has, and how many the others have."""
        counts = Counter(self.takes(case) for case in cases)
        return Shared(str(self.shard), counts[True], counts[False])


class Shared(NamedTuple):
    """How many of the selected cases a shard has, and how many the other shards have."""

    shard: str
    own: int
    others: int

    def __str__(self) -> str:
        """Return `shard 3/8: 17 cases; the other shards have 119`."""
        own = n_cases(self.own) if self.own else "no cases"
        return f"shard {self.shard}: {own}; the other shards have {self.others}"
