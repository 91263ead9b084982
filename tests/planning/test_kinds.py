"""The checks there are, as planning knows them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import opcheck
from opcheck.planning import CheckKind, check_kinds
from opcheck.spec import SpecError
from opcheck.spec.checks import BUILTIN
from opcheck.spec.claims import Supports
from opcheck.spec.device_profile import profiles


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CheckKind]]:
    """Checks put into this list are found as entry points."""
    found: list[CheckKind] = []

    class Entry:
        name, value, dist = "checks", "mylib.checks:mine", None

        def __init__(self, kind: CheckKind) -> None:
            self.kind = kind

        def load(self) -> CheckKind:
            if isinstance(self.kind, BaseException):
                raise self.kind
            return self.kind

    def entry_points(**wanted: Any) -> list[Entry]:
        assert wanted == {"group": "opcheck.checks"}
        return [Entry(kind) for kind in found]

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    check_kinds.cache_clear()
    yield found
    check_kinds.cache_clear()


def test_names_are_unique_and_every_check_says_what_a_pass_means() -> None:
    assert len({kind.name for kind in BUILTIN}) == len(BUILTIN)
    assert all(kind.claim for kind in BUILTIN)


def test_what_a_check_needs_are_keys_of_supports() -> None:
    assert {key for kind in BUILTIN for key in kind.needs} <= set(Supports.model_fields)


@pytest.mark.parametrize("kind", BUILTIN, ids=lambda kind: kind.name)
def test_the_module_of_every_check_exists(kind: CheckKind) -> None:
    module, _, function = kind.implementation.partition(":")
    assert function == "check"
    assert Path(opcheck.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py").is_file()


def test_a_plugin_adds_a_check_after_the_built_in_ones(plugins: list[CheckKind]) -> None:
    plugins.append(CheckKind("mine", "it is fine", "mylib.checks:check"))
    assert list(check_kinds()) == [*(kind.name for kind in BUILTIN), "mine"]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (ModuleNotFoundError("No module named 'mylib'"), "importing mylib.checks:mine failed: ModuleNotFoundError: No"),
        (SystemExit(3), "importing mylib.checks:mine failed: SystemExit: 3"),
        (pytest, "mylib.checks:mine is not a check, but of type module"),
    ],
)
def test_a_plugin_without_a_check_is_a_mistake(plugins: list[Any], broken: object, why: str) -> None:
    plugins += [broken, CheckKind("mine", "it is fine", "mylib.checks:check")]
    with pytest.raises(SpecError) as error:
        check_kinds()
    (problem,) = error.value.problems
    assert str(problem).startswith(f"entry point checks:1:1: opcheck.checks: {why}")
    assert problem.expected == "a CheckKind: package.module:NAME"


def test_a_plugin_cannot_replace_a_built_in_check(plugins: list[CheckKind]) -> None:
    plugins.append(CheckKind("backward", "anything goes", "mylib.checks:check"))
    with pytest.raises(SpecError, match='the check "backward" is one of opcheck itself; expected another name'):
        check_kinds()


def test_two_plugins_cannot_have_checks_of_one_name(plugins: list[CheckKind]) -> None:
    plugins += [CheckKind("own", "all is well", "mylib.checks:check")] * 2  # the same, as if installed twice
    assert check_kinds()["own"].claim == "all is well"
    check_kinds.cache_clear()
    plugins.append(CheckKind("own", "all is well", "other.checks:check"))
    with pytest.raises(SpecError, match=r'the check "own" is one of .+, too; expected another name'):
        check_kinds()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"needs": ("bakward",)}, 'unknown key of supports "bakward"; .+ did you mean "backward"?'),
        ({"dtypes": "float64"}, 'unknown rule for dtypes "float64"; expected one of derivative, coarse, values'),
    ],
)
def test_words_that_a_check_of_a_plugin_uses_must_exist(
    plugins: list[CheckKind], keys: dict[str, Any], says: str
) -> None:
    plugins.append(CheckKind("own", "all is well", "mylib.checks:check", **keys))
    with pytest.raises(SpecError, match=f'the check "own": {says}'):
        check_kinds()


def test_an_exception_of_applies_names_the_check_and_the_operator(loaded: Any) -> None:
    (operator,) = loaded('[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [2] }] }]\n')
    kind = CheckKind("own", "all is well", "", applies=lambda one: one.nosuch)
    with pytest.raises(SpecError, match=r'spec.toml:2:8: `applies` of the check "own" raised AttributeError'):
        kind.claimed(operator, profiles()["cpu"], operator.spec.supports)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("backward", "backward"),
        ("batched_forward_grad", "batched_forward_grad"),
        ("rev_over_rev", "second_order"),
        ("fwd_over_rev", "fwd_over_rev"),
        ("rev_over_fwd", "rev_over_fwd"),
        ("fwd_over_fwd", "fwd_over_fwd"),
        ("rev_over_rev_over_rev", "third_order"),
        ("masked", "masked"),
        ("vmap", "vmap"),
        ("grad_dtypes", "backward"),
    ],
)
def test_the_remedy_disclaims_the_most_specific_claim_that_a_check_needs(name: str, key: str) -> None:
    assert check_kinds()[name].remedy == f"if this is intended, set supports.{key} = false"


def test_the_remedy_for_what_a_spec_asks_for_is_not_to_ask() -> None:
    kind = check_kinds()["scalarized_second_order"]
    assert kind.remedy == 'if this is intended, remove "scalarized_second_order" from orders'


def test_a_check_that_needs_no_claim_has_no_remedy() -> None:
    assert check_kinds()["variants"].remedy == ""


def test_the_check_of_a_plugin_has_a_remedy(plugins: list[CheckKind]) -> None:
    plugins.append(CheckKind("mine", "it is fine", "mylib.checks:check", needs=("backward", "second_order")))
    assert check_kinds()["mine"].remedy == "if this is intended, set supports.second_order = false"
