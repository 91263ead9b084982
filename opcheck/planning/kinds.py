"""All checks: built-in ones, those of installed plugins, and those that a project's own plugins register.

The implementation of a check is given by its import path and imported when a case runs, so that planning needs no
torch. An installed plugin adds a check by an entry point of the group `opcheck.checks` that refers to a CheckKind; a
project adds one by `opcheck.register_check`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module

from opcheck.settings import Settings
from opcheck.spec.checks import BUILTIN, CheckKind
from opcheck.spec.problems import Problem, SpecError, listing, nearest
from opcheck.text import class_of, message_of

GROUP = "opcheck.checks"
"""The group of entry points for checks."""


@lru_cache(maxsize=1)
def check_kinds() -> dict[str, CheckKind]:
    """Return all checks by name: built-in ones, those of installed plugins, and registered ones.

    Raises SpecError if a check of an installed plugin rests on an unknown check or, directly or indirectly, on itself.
    """
    from importlib.metadata import entry_points

    kinds = {kind.name: kind for kind in BUILTIN}
    places = {}
    for entry in entry_points(group=GROUP):
        kind = entry.load()
        kinds.setdefault(kind.name, kind)
        places[kind.name] = f"entry point {entry.name}{f' of {entry.dist.name}' if entry.dist is not None else ''}"
    kinds |= REGISTERED
    problems = [
        Problem(place, 1, 1, f'{GROUP}: the check "{name}" {what}', expected, near)
        for name, place in places.items()
        for what, expected, near in _wrong_roots(kinds[name], kinds)
    ]
    if problems:
        raise SpecError(problems)
    return kinds


def _wrong_roots(kind: CheckKind, kinds: Mapping[str, CheckKind]) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with `rests_on` of a check, what was expected, and the nearest valid name."""
    others = [name for name in kinds if name != kind.name]
    for name in kind.rests_on:
        if name not in kinds:
            yield f'rests on an unknown check "{name}"', listing(others), nearest(name, others)
        elif way := _way(name, kind.name, kinds):
            roots = ["itself"] if name == kind.name else way
            yield f"rests on {', which rests on '.join(roots)}", "a more basic check", ""


def _way(start: str, goal: str, kinds: Mapping[str, CheckKind]) -> list[str]:
    """Return the shortest chain of checks from `start` to `goal`, each resting on the next, or an empty list."""
    ways, seen = [[start]], {start}
    for way in ways:
        if way[-1] == goal:
            return way
        further = [name for name in kinds[way[-1]].rests_on if name in kinds and name not in seen]
        seen.update(further)
        ways += [[*way, name] for name in further]
    return []


REGISTERED: dict[str, CheckKind] = {}
"""The checks registered in this process, by name."""


def register(kind: CheckKind) -> None:
    """Register a check in this process. It replaces a registered check of the same name."""
    REGISTERED[kind.name] = kind
    check_kinds.cache_clear()


def load_plugins(settings: Settings) -> None:
    """Import the plugins of a project, in order.

    Raises SpecError with a problem for each module that does not exist or cannot be imported, and for each check of an
    installed plugin that rests on an unknown check or on itself.
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
    text = " ".join(message_of(error).split())
    return settings.problem(place, f'importing the plugin "{name}" failed: {class_of(error)}: {text}')


def _nearest(settings: Settings, name: str) -> str:
    """Return the module that was probably meant, among those beside pyproject.toml and those already imported."""
    beside = [path.stem for path in settings.root.glob("*.py")]
    beside += [path.parent.name for path in settings.root.glob("*/__init__.py")]
    return nearest(name, [*beside, *sys.modules])
