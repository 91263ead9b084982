"""Imports the modules that a project lists under `plugins`. They register checks."""

from __future__ import annotations

import sys
from importlib import import_module

from opcheck.planning.kinds import check_kinds
from opcheck.settings import Settings
from opcheck.spec.problems import Problem, SpecError, nearest
from opcheck.text import class_of, message_of


def load_plugins(settings: Settings) -> None:
    """Import the plugins of a project, in order.

    Raises SpecError with a problem for each module that does not exist or cannot be imported, and for each check of an
    installed plugin that rests on what it cannot.
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
    """Return the module that was probably meant: one beside pyproject.toml, or one that is already imported."""
    beside = [path.stem for path in settings.root.glob("*.py")]
    beside += [path.parent.name for path in settings.root.glob("*/__init__.py")]
    return nearest(name, [*beside, *sys.modules])
