"""All checks: built-in ones, those of installed plugins, and those that a project's own plugins register.

The implementation of a check is given by its import path and imported when a case runs, so that planning needs no
torch. An installed plugin adds a check by an entry point of the group `opcheck.checks` that refers to a CheckKind; a
project adds one by `opcheck.register_check`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args

from opcheck.settings import Settings
from opcheck.spec.checks import BUILTIN, CheckKind, DtypeRule
from opcheck.spec.claims import Supports
from opcheck.spec.problems import Problem, SpecError, listing, nearest, place_of, unknown
from opcheck.text import class_of, one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "opcheck.checks"
"""The group of entry points for checks."""


@lru_cache(maxsize=1)
def check_kinds() -> dict[str, CheckKind]:
    """Return all checks by name: built-in ones, those of installed plugins, and registered ones.

    Raises SpecError if a check of an installed plugin cannot be imported, has the name of another one, names something
    unknown, or rests on itself, directly or indirectly.
    """
    from importlib.metadata import entry_points

    kinds = {kind.name: kind for kind in BUILTIN}
    places, problems = dict[str, str](), list[Problem]()
    for entry in entry_points(group=GROUP):
        kind, place = _loaded(entry), place_of(entry)
        if not isinstance(kind, CheckKind):
            problems.append(Problem(place, 1, 1, f"{GROUP}: {kind}", "a CheckKind: package.module:NAME"))
            continue
        if kinds.get(kind.name, kind) != kind:
            whose = "opcheck itself" if kind.name not in places else f"{places[kind.name]}, too"
            what = f'{GROUP}: the check "{kind.name}" is one of {whose}'
            problems.append(Problem(place, 1, 1, what, "another name"))
            continue
        kinds[kind.name], places[kind.name] = kind, place
        for what, expected, near in unknown_words(kind, get_args(DtypeRule)):
            problems.append(Problem(place, 1, 1, f'{GROUP}: the check "{kind.name}": {what}', expected, near))
    kinds |= REGISTERED
    for name, place in places.items():
        for root in kinds[name].rests_on:
            if root not in kinds:
                what = f'{GROUP}: the check "{name}" rests on an unknown check "{root}"'
                problems.append(Problem(place, 1, 1, what, listing(kinds), nearest(root, kinds)))
    try:
        TopologicalSorter({name: kind.rests_on for name, kind in kinds.items()}).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        place = next(place for name, place in places.items() if name in circle)
        what = f"{GROUP}: checks rest on each other in a circle: {' rests on '.join(circle)}"
        problems.append(Problem(place, 1, 1, what, "a more basic check"))
    if problems:
        raise SpecError(problems)
    return kinds


def unknown_words(kind: CheckKind, rules: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with `needs` and `dtypes` of a check, as for `worded`. rules: the valid ones for dtypes."""
    listed = [("key of supports", word, (*Supports.model_fields,)) for word in kind.needs]
    for what, word, choices in (*listed, ("rule for dtypes", kind.dtypes, rules)):
        if word not in choices:
            yield unknown(what, word, choices)


def _loaded(entry: EntryPoint) -> CheckKind | str:
    """Return the check that an entry point refers to, or why there is none."""
    try:
        kind = entry.load()
    except (Exception, SystemExit) as error:
        return f"importing {entry.value} failed: {one_line(error)}"
    return kind if isinstance(kind, CheckKind) else f"{entry.value} is not a check, but of type {class_of(kind)}"


REGISTERED: dict[str, CheckKind] = {}
"""The checks registered in this process, by name."""


def register(kind: CheckKind) -> None:
    """Register a check in this process. It replaces a registered check of the same name."""
    REGISTERED[kind.name] = kind
    check_kinds.cache_clear()


def is_redefined(known: Any, other: Any) -> bool:
    """Return whether a function redefines another: its module was reloaded, or its notebook cell has run again."""
    same = [getattr(known, name, 0) == getattr(other, name, 1) for name in ("__module__", "__qualname__")]
    return all(same) and (place_in_code(known) == place_in_code(other) or other.__module__ == "__main__")


def place_in_code(function: Any) -> str:
    """Return the place of the code of a function, as `file:line`."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def load_plugins(settings: Settings) -> None:
    """Import the plugins of a project, in order.

    Raises SpecError with a problem for each module that does not exist or cannot be imported, and for the checks of
    installed plugins as `check_kinds` does.
    """
    if settings.plugins:
        settings.put_on_path()
    problems = []
    for index, name in enumerate(settings.plugins):
        try:
            import_module(name)
        except (Exception, SystemExit) as error:
            problems.append(_problem(settings, index, name, error))
    if problems:
        raise SpecError(problems)
    check_kinds()


def _problem(settings: Settings, index: int, name: str, error: BaseException) -> Problem:
    place = ("plugins", index)
    if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
        what = f'no module named "{error.name}"'
        return settings.problem(place, what, f"a module on sys.path or in {settings.root}", _nearest(settings, name))
    return settings.problem(place, f'importing the plugin "{name}" failed: {one_line(error)}')


def _nearest(settings: Settings, name: str) -> str:
    """Return the module that was probably meant, among those beside pyproject.toml and those already imported."""
    beside = [path.stem for path in settings.root.glob("*.py")]
    beside += [path.parent.name for path in settings.root.glob("*/__init__.py")]
    return nearest(name, [*beside, *sys.modules])
