"""Names of dtypes and groups."""

from __future__ import annotations

import pytest

from opcheck.spec.dtypes import (
    EXOTIC,
    GROUPS,
    KNOWN,
    STANDARD,
    complex_of,
    expand,
    finer_than,
    integer_of,
    is_differentiable,
    real_of,
    unknown,
)


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        ([], ()),
        (["float64"], ("float64",)),
        (["double", "half"], ("float16", "bfloat16", "float64", "complex128")),
        (["floating", "-half"], ("float32", "float64")),
        (["all", "-complex", "-bool"], ("uint8", "int8", "int16", "int32", "int64", *GROUPS["floating"])),
        (["-half", "floating"], GROUPS["floating"]),
        (["float64", "float64"], ("float64",)),
    ],
)
def test_a_list_stands_for_its_dtypes_in_a_fixed_order(entries: list[str], names: tuple[str, ...]) -> None:
    assert expand(tuple(entries)) == names


def test_all_is_what_every_spec_makes_a_claim_about() -> None:
    assert expand(("all",)) == STANDARD
    assert not set(STANDARD) & set(EXOTIC)


def test_every_group_names_known_dtypes() -> None:
    assert {name for members in GROUPS.values() for name in members} <= set(KNOWN)


@pytest.mark.parametrize("entry", ["floating", "-floating", "float64", "-float64", "float8_e5m2"])
def test_names_and_groups_are_known_with_and_without_a_minus(entry: str) -> None:
    assert unknown(entry) is None


@pytest.mark.parametrize(
    ("entry", "near"),
    [
        ("flaoting", "floating"), ("-flot64", "-float64"), ("zzz", ""),
        ("long", "int64"), ("float", "float32"), ("-torch.half", "-float16"), ("torch.float64", "float64"),
    ],
)  # fmt: skip
def test_an_unknown_name_has_the_nearest_one(entry: str, near: str) -> None:
    mistake = unknown(entry)
    assert mistake is not None
    assert (mistake[0], mistake[2]) == (f'unknown dtype "{entry}"', near)


def test_gradients_exist_for_floating_and_complex_dtypes() -> None:
    differentiable = {name for name in KNOWN if is_differentiable(name)}
    assert differentiable == {*GROUPS["floating"], *GROUPS["complex"], "complex32"}


def test_real_and_complex_dtypes_of_one_precision_belong_together() -> None:
    assert [complex_of(name) for name in ("float32", "float64", "bfloat16")] == ["complex64", "complex128", "bfloat16"]
    assert [real_of(name) for name in ("complex64", "complex128", "float32")] == ["float32", "float64", "float32"]


@pytest.mark.parametrize(
    ("dtype", "claimed", "finer"),
    [
        ("float16", ["floating"], "float64"),
        ("float16", ["half", "float32"], "float32"),
        ("float32", ["floating"], "float64"),
        ("float64", ["all"], None),
        ("complex64", ["all"], "complex128"),
        ("complex64", ["real", "complex64"], None),
        ("uint8", ["all"], "int64"),
        ("uint8", ["real", "uint8"], "float64"),
        ("int64", ["all"], "float64"),
        ("int64", ["integral"], None),
        ("bool", ["all"], "int64"),
    ],
)
def test_the_finest_dtype_claimed_is_the_measure_of_a_coarser_one(
    dtype: str, claimed: list[str], finer: str | None
) -> None:
    assert finer_than(dtype, expand(tuple(claimed))) == finer


def test_integers_are_those_of_the_case_or_int64() -> None:
    assert [integer_of(name) for name in ("int8", "uint16", "float32", "bool")] == ["int8", "uint16", "int64", "int64"]
