"""The modules that a project names under `plugins`: importing them registers their checks."""

from __future__ import annotations

import sys
from importlib import import_module

from opcheck.spec.problems import Problem, SpecError, nearest
from opcheck.spec.settings import Settings
from opcheck.text import class_of, message_of


def load_plugins(settings: Settings) -> None:
    """Import the plugins of a project, in their order. What was imported before is not imported again.

    Raises SpecError with a mistake for each module that does not exist or cannot be imported.
    """
    if not settings.plugins:
        return
    settings.put_on_path()
    problems = []
    for index, name in enumerate(settings.plugins):
        try:
            import_module(name)
        except (Exception, SystemExit) as error:
            problems.append(_problem(settings, index, name, error))
    if problems:
        raise SpecError(problems)


def _problem(settings: Settings, index: int, name: str, error: BaseException) -> Problem:
    place = ("plugins", index)
    missing = isinstance(error, ModuleNotFoundError) and error.name is not None
    if missing and (name == error.name or name.startswith(f"{error.name}.")):  # type: ignore[attr-defined]
        what = f'no module named "{error.name}"'  # type: ignore[attr-defined]
        return settings.problem(place, what, f"a module on sys.path or in {settings.root}", _nearest(settings, name))
    told = " ".join(message_of(error).split())
    return settings.problem(place, f'importing the plugin "{name}" failed: {class_of(error)}: {told}')


def _nearest(settings: Settings, name: str) -> str:
    """Return the module that a name was probably meant to be, among those beside pyproject.toml and those imported."""
    beside = [path.stem for path in settings.root.glob("*.py")]
    beside += [path.parent.name for path in settings.root.glob("*/__init__.py")]
    return nearest(name, [*beside, *sys.modules])
