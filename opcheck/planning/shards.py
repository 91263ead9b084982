"""Divides cases into shards for separate machines: complete, disjoint, and of about equal duration.

The cases of a group share samples and evidence, so a group is never divided. The division depends only on the cases,
the number of shards and the durations, so that every process computes the same division.
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
"""The time that pytest takes for a case, in seconds, which recorded durations do not include."""

NO_SHARD = "durations are for shards; expected a shard, such as 1/8, as well"
"""The message for durations that are given without a shard."""


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
        """Return the shard for a text such as `3/8`. Raises ArgumentTypeError, since the text comes from an option."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        number, count = map(int, match.groups()) if match else (0, 0)
        if not 1 <= number <= count:
            raise ArgumentTypeError(f'"{text}" is not a shard; expected NUMBER/COUNT, from 1/8 to 8/8 for example')
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


class Taken(NamedTuple):
    """The recorded duration of a case."""

    id: str
    operator: str
    check: str
    seconds: float


@dataclass(frozen=True)
class Durations:
    """The durations of cases, from the records of an earlier run.

    For a case without a record, the estimate is the mean of all cases of its check, else of all cases.
    """

    source: str
    """The file with the records."""
    means: Mapping[str, float]
    """Mean durations in seconds, by id of a case and by check. The key of the mean of all cases is an empty string."""
    operators: frozenset[str]

    @classmethod
    def of(cls, records: Iterable[Taken], source: str) -> Durations:
        """Return the durations in records. Several records of a case are averaged."""
        seconds, operators = defaultdict[str, list[float]](list), set()
        for one in records:
            for key in (one.id, one.check, ""):
                seconds[key].append(max(one.seconds, 0.0))
            operators.add(one.operator)
        return cls(source, {key: fmean(own) for key, own in seconds.items()}, frozenset(operators))

    def of_case(self, case: Case) -> float:
        """Return the duration of a case in seconds, recorded or estimated, with overhead."""
        return next((self.means[key] for key in (case.id, case.check, "") if key in self.means), 0.0) + OVERHEAD

    def mistake(self, cases: Iterable[Case]) -> str:
        """Return a message if there are durations for no operator of the cases; else an empty string."""
        if any(case.operator.id in self.operators for case in cases):
            return ""
        return f"{self.source} has no duration of any selected operator; expected the report of an earlier run of them"


def groups_in(shard: Shard, cases: Iterable[Case], durations: Durations | None = None) -> frozenset[Group]:
    """Divide cases into shards, and return the groups in one of the shards.

    Groups are assigned from the longest to the shortest, each to the shard with the smallest load so far.

    durations: how long cases take; default: all cases take equally long.
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
    """The numbers of selected cases in a shard and in the other shards."""

    shard: str
    own: int
    others: int

    def __str__(self) -> str:
        """Return `shard 3/8: 17 cases; the other shards have 119`."""
        own = counted(self.own, "case") if self.own else "no cases"
        return f"shard {self.shard}: {own}; the other shards have {self.others:,}"
