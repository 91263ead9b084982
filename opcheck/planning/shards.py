"""Divides cases into shards, which separate machines run: complete, disjoint, and about equally long.

The cases of one group share samples and evidence, so that a group is never divided. Which shard has it depends on the
cases that are divided, on the number of shards and on the durations, and on nothing else: every process finds the same.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapreplace
from statistics import fmean
from typing import NamedTuple

from opcheck.planning.case import Case
from opcheck.text import counted

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
    means: Mapping[str, float]
    """In seconds, by id of the case, by check, and of all cases by an empty text."""
    operators: frozenset[str]

    @classmethod
    def of(cls, records: Iterable[Taken], source: str) -> Durations:
        """Return the durations in records, the mean of a case that has several."""
        seconds, operators = defaultdict[str, list[float]](list), set()
        for one in records:
            for key in (one.id, one.check, ""):
                seconds[key].append(max(one.seconds, 0.0))
            operators.add(one.operator)
        return cls(source, {key: fmean(own) for key, own in seconds.items()}, frozenset(operators))

    def of_case(self, case: Case) -> float:
        """Return how many seconds a case takes, as far as one knows."""
        return next((self.means[key] for key in (case.id, case.check, "") if key in self.means), 0.0) + OVERHEAD

    def mistake(self, cases: Iterable[Case]) -> str:
        """Return why the durations say nothing about some cases; an empty string if they do."""
        if any(case.operator.id in self.operators for case in cases):
            return ""
        return f"{self.source} has no duration of any selected operator; expected the report of an earlier run of them"


def groups_in(shard: Shard, cases: Iterable[Case], durations: Durations | None = None) -> frozenset[Group]:
    """Divide cases, and return the groups in a shard.

    The longest group comes first, and each goes to the shard that has least to do by then.

    durations: how long cases take; default: all of them equally long.
    """
    weights: defaultdict[Group, float] = defaultdict(float)
    for case in cases:
        weights[Group.of(case)] += durations.of_case(case) if durations else 1
    loads = [(0.0, number) for number in range(1, shard.count + 1)]  # a heap
    own = set()
    for group in sorted(weights, key=lambda group: (-weights[group], group)):
        load, number = loads[0]
        heapreplace(loads, (load + weights[group], number))
        if number == shard.number:
            own.add(group)
    return frozenset(own)


class Shared(NamedTuple):
    """How many of the selected cases a shard has, and how many the other shards have."""

    shard: str
    own: int
    others: int

    def __str__(self) -> str:
        """Return `shard 3/8: 17 cases; the other shards have 119`."""
        own = counted(self.own, "case") if self.own else "no cases"
        return f"shard {self.shard}: {own}; the other shards have {self.others}"
