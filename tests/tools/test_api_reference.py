"""docs/api.md: it names each public name, and its examples do what they say."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import opcheck
from opcheck.mutation import conditions
from opcheck.planning.kinds import REGISTERED, check_kinds

ROOT = Path(__file__).resolve().parent.parent.parent
PARAMETERS = (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### `opcheck\.(\w+)`\n(.*?)(?=^### |^<!-- end)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture
def registry() -> Iterator[None]:
    """Take out again what an example registers."""
    before, of_calls = dict(REGISTERED), dict(conditions.REGISTERED)
    yield
    for registry, entries in ((REGISTERED, before), (conditions.REGISTERED, of_calls)):
        registry.clear()
        registry.update(entries)
    check_kinds.cache_clear()


def test_it_names_exactly_the_public_names():
    assert sorted([*SECTIONS, "__version__"]) == sorted(opcheck.__all__)


@pytest.mark.parametrize("name", list(SECTIONS))
@pytest.mark.usefixtures("registry")
def test_the_examples_run(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```pycon\n(.*?)```", SECTIONS[name], re.DOTALL)
    assert f"opcheck.{name}" in "".join(blocks), "an example uses what it is an example of"
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name, "docs/api.md", 0)
    shown: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=shown.append)
    assert test.examples
    assert shown == []


@pytest.mark.parametrize(
    "name",
    ["check", "register_check", "gradcheck", "gradgradcheck", "cases", "load", "plan", "run", "register_condition"],
)
def test_functions_have_their_arguments_results_and_errors_described(name):
    for title in ("Arguments", "Returns", "Raises"):
        assert f"**{title}**" in SECTIONS[name]
    arguments = SECTIONS[name].split("**Arguments**")[1].split("**Returns**")[0]
    described = re.findall(r"^- `(\w+)`: ", arguments, re.MULTILINE)
    taken = list(inspect.signature(getattr(import_module(opcheck.HOMES[name]), name)).parameters)
    of_torch = [parameter for parameter in taken if name.startswith("grad") and parameter not in described]
    assert sorted([*described, *of_torch]) == sorted(taken)
    assert set(of_torch) <= set(re.findall(r"^\| `(\w+)` \|", PARAMETERS, re.MULTILINE))
