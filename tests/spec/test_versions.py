"""Claims that hold with some versions of torch: when they apply, and that mistakes are found whatever is installed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opcheck.spec import Library, Operator
from opcheck.spec.versions import meets, torch_meets

Load = Callable[..., Library]
Mistakes = Callable[..., list[str]]
TorchIs = Callable[[str], None]

SIN = """[[operator]]
name = "torch.sin"
samples = [{ args = [{ shape = [2] }] }]
"""

VERSIONS = (
    SIN
    + """
supports = { vmap = false }
dtypes = "floating"

  [operator.per_torch."<2.14"]
  supports = { forward_ad = false }
  dtypes.exact = true

  [operator.per_torch."<2.12"]
  dtypes = ["float64"]
  samples = [{ args = [{ shape = [2] }] }, { args = [{ shape = [3] }] }]
  errors = [{ raises = "TypeError", match = "old" }]
"""
)


def only(library: Library) -> Operator:
    (operator,) = library
    return operator


class TestConditions:
    @pytest.mark.parametrize(
        ("version", "condition", "met"),
        [
            ("2.13.0", "<2.14", True),
            ("2.13.0+cpu", "<2.14", True),
            ("2.14.1+cu130", "<2.14", False),
            ("2.14.1", ">=2.6,<3", True),
            ("2.14.0.dev20260301+cu130", "<2.14", False),
            ("2.14.0.dev20260301+cu130", ">=2.14", False),
        ],
    )
    def test_are_held_against_the_release(self, version: str, condition: str, met: bool) -> None:
        assert meets(version, condition) is met

    @pytest.mark.parametrize("without", [True, False])
    def test_without_torch_the_caller_decides(self, torch_is: TorchIs, without: bool) -> None:
        for version, met in (("", without), ("2.13.0", True), ("2.14.0", False)):
            torch_is(version)
            assert torch_meets("<2.14", without=without) is met


class TestPerTorch:
    @pytest.mark.parametrize("version", ["2.14.0", ""])
    def test_where_no_condition_is_met_the_operator_is_as_written(
        self, loaded: Load, torch_is: TorchIs, version: str
    ) -> None:
        torch_is(version)
        operator = only(loaded(VERSIONS))
        assert operator.spec.supports.disclaimed() == ("vmap",)
        assert (operator.spec.dtypes.forward, operator.spec.dtypes.exact) == (("floating",), False)
        assert (len(operator.samples), operator.spec.errors) == (1, [])

    def test_tables_are_merged_over_those_of_the_operator(self, loaded: Load, torch_is: TorchIs) -> None:
        torch_is("2.13.0")
        operator = only(loaded(VERSIONS))
        assert operator.spec.supports.disclaimed() == ("forward_ad", "vmap")
        assert (operator.spec.dtypes.forward, operator.spec.dtypes.exact) == (("floating",), True)

    def test_all_that_are_met_apply_in_their_order_and_arrays_are_replaced(
        self, loaded: Load, torch_is: TorchIs
    ) -> None:
        torch_is("2.11.0")
        operator = only(loaded(VERSIONS))
        assert operator.spec.supports.disclaimed() == ("forward_ad", "vmap")
        assert (operator.spec.dtypes.forward, operator.spec.dtypes.exact) == (("float64",), True)
        assert len(operator.samples) == 2
        assert [claim.raises for claim in operator.spec.errors] == ["TypeError"]

    def test_an_operator_has_precedence_over_all_defaults(self, loaded: Load, torch_is: TorchIs) -> None:
        torch_is("2.13.0")
        defaults = '[defaults]\nper_torch."<2.14".supports = { vmap = false, out = false }\n'
        operator = only(loaded(defaults + SIN + "supports = { vmap = true }\n"))
        assert operator.spec.supports.disclaimed() == ("out",)

    def test_what_it_is_with_other_versions_is_known(self, loaded: Load, torch_is: TorchIs) -> None:
        torch_is("2.13.0")
        operator = only(loaded(VERSIONS))
        assert [one.spec.dtypes.forward for one in operator.elsewhere] == [("floating",), ("floating",), ("float64",)]
        assert only(loaded(SIN)).elsewhere == ()


class TestMistakes:
    @pytest.mark.parametrize("version", ["2.13.0", "2.14.0", ""])
    def test_are_found_whatever_is_installed_and_reported_once(
        self, mistakes: Mistakes, torch_is: TorchIs, version: str
    ) -> None:
        torch_is(version)
        text = SIN + '  [operator.per_torch."<2.14"]\n  supports.vmapp = false\n  samples = [{ use = "unry" }]\n'
        key, template = mistakes(text)
        assert key.startswith('spec.toml:5:12: unknown key "vmapp"; expected one of backward, forward_ad, ')
        assert template.startswith('spec.toml:6:22: unknown template "unry"; ')

    @pytest.mark.parametrize("version", ["2.13.0", "2.14.0"])
    def test_of_merged_values_are_placed_where_they_are_written(
        self, mistakes: Mistakes, torch_is: TorchIs, version: str
    ) -> None:
        torch_is(version)
        text = f"[defaults]\nsupports = {{ out = 1 }}\n{SIN}dtypes = ['floatin']\n"
        text += 'per_torch."<2.14".dtypes = ["complx"]\n'
        lines = [line.split(";")[0] for line in mistakes(text)]
        assert lines[0] == "spec.toml:2:20: wrong type for out: an integer (1)"
        assert lines[-1] == 'spec.toml:7:29: unknown dtype "complx"'
        assert set(lines[1:-1]) == {'spec.toml:6:11: unknown dtype "floatin"'}

    def test_a_key_that_does_not_differ_by_version_is_unknown(self, mistakes: Mistakes) -> None:
        (line,) = mistakes(SIN + 'per_torch."<2.14".tolerance = { atol = 1 }\n')
        assert line.startswith('spec.toml:4:19: unknown key "tolerance"; expected one of dtypes, supports, samples, ')

    @pytest.mark.parametrize("condition", ["2.x", "old"])
    def test_a_condition_must_be_one(self, mistakes: Mistakes, condition: str) -> None:
        (line,) = mistakes(SIN + f'per_torch."{condition}".supports.vmap = false\n')
        assert line.startswith(
            f'spec.toml:4:11: "{condition}" is not a version condition; expected a condition such as'
        )

    @pytest.mark.parametrize("written", ["per_torch = 1", 'per_torch."<2.14" = 1'])
    def test_it_is_a_table_of_tables(self, mistakes: Mistakes, written: str) -> None:
        (line,) = mistakes(SIN + written + "\n")
        assert "wrong type for" in line
        assert line.endswith("an integer (1); expected a table")
