"""Which cases a person wants."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opcheck.planning import Case, Selection
from opcheck.spec import Library

Load = Callable[[str], Library]
Plan = Callable[..., list[Case]]

TEXT = """
[[operator]]
name = "torch.sin"
tags = ["waves"]
samples = [{ args = [{ shape = [2] }] }]

[[operator]]
name = "torch.div"
samples = [{ args = [{ shape = [2] }, 2] }]

[[operator]]
name = "torch.div"
variant = "floor"
samples = [{ args = [{ shape = [2] }, 2] }]
"""


def subjects(cases: list[Case]) -> list[str]:
    return list(dict.fromkeys(case.operator.id for case in cases))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ((), ["torch.sin", "torch.div", "torch.div[floor]"]),
        (("torch.sin",), ["torch.sin"]),
        (("torch.div",), ["torch.div", "torch.div[floor]"]),
        (("torch.div[floor]",), ["torch.div[floor]"]),
        (("*.d?v[*",), ["torch.div[floor]"]),
        (("*sin", "*floor]"), ["torch.sin", "torch.div[floor]"]),
        (("torch.cos",), []),
        (("TORCH.SIN",), []),
    ],
)
def test_operators_are_selected_by_id_name_or_pattern(planned: Plan, wanted: tuple[str, ...], found: list[str]) -> None:
    assert subjects(planned(TEXT, operators=wanted)) == found


def test_tags_select_operators(planned: Plan) -> None:
    assert subjects(planned(TEXT, tags=("waves", "other"))) == ["torch.sin"]


def test_checks_and_dtypes_select_cases(planned: Plan) -> None:
    cases = planned(TEXT, operators=("torch.sin",), checks=("backward", "vmap"), dtypes=("floating",))
    assert [case.id for case in cases] == ["torch.sin::backward[cpu-float64]", "torch.sin::vmap[cpu-float64]"]


def test_dtypes_can_be_groups_less_others(planned: Plan) -> None:
    cases = planned(TEXT, operators=("torch.sin",), checks=("dtypes",), dtypes=("floating", "-half"))
    assert sorted(case.dtype for case in cases) == ["float32", "float64"]


def test_negated_dtypes_alone_select_all_others(planned: Plan) -> None:
    every, some = (
        {case.dtype for case in planned(TEXT, checks=("dtypes",), dtypes=dtypes)}
        for dtypes in ((), ("-half", "-float64"))
    )
    assert every - some == {"float16", "bfloat16", "float64"}


def test_names_that_select_nothing_are_mistakes_with_the_nearest_name(loaded: Load) -> None:
    selection = Selection(
        operators=("torch.sine", "torch.sin", "*.zzz"),
        checks=("bakward", "-vmap"),
        dtypes=("flot64", "-half"),
        tags=("wave",),
    )
    lines = selection.mistakes(loaded(TEXT))
    assert [(line.split(";")[0], line.rpartition("; ")[2]) for line in lines] == [
        ('unknown check "bakward"', 'did you mean "backward"?'),
        ('unknown check "-vmap"', 'did you mean "vmap"?'),
        ('unknown dtype "flot64"', 'did you mean "float64"?'),
        ('unknown tag "wave"', 'did you mean "waves"?'),
        ('no operator matches "torch.sine"', 'did you mean "torch.sin"?'),
        ('no operator matches "*.zzz"', 'no operator matches "*.zzz"'),
    ]


def test_a_selection_without_mistakes_has_none(loaded: Load) -> None:
    assert Selection(operators=("torch.d*",), checks=("vmap",), dtypes=("half",)).mistakes(loaded(TEXT)) == []
