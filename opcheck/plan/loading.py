"""Loads the specs of a project, and finds every mistake that can be found without torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from opcheck.plan.audit import audit
from opcheck.plan.plugins import load_plugins
from opcheck.settings import Settings
from opcheck.spec.catalogue import Catalogue
from opcheck.spec.device import DeviceProfile, profiles
from opcheck.spec.library import Library
from opcheck.spec.load import Loader
from opcheck.spec.problems import Problem, SpecError


def load(paths: Iterable[Path | str], settings: Settings | None = None) -> Library:
    """Load spec files and folders (`builtin`: the shipped library).

    settings: of the project; default: those of a project that sets none. Its plugins are imported first: specs may name
    their checks.
    Raises SpecError with all the mistakes in specs and in device profiles.
    """
    settings = settings or Settings()
    load_plugins(settings)
    library, problems = examine(paths, settings)
    if problems:
        raise SpecError(problems)
    return library


def examine(
    paths: Iterable[Path | str], settings: Settings, catalogue: Catalogue | None = None, root: Path | None = None
) -> tuple[Library, list[Problem]]:
    """Return the operators that have no mistakes, and all mistakes found.

    catalogue: the files read so far, if several calls share them.
    root: the folder that templates and the families of operators belong to; default: found from each path.
    """
    problems: list[Problem] = []
    devices: dict[str, DeviceProfile] | None = None
    try:
        devices = profiles(settings.device_folders())
    except SpecError as error:
        problems += error.problems
    loader = Loader(settings.limits, tuple(settings.spec_paths()), devices, catalogue or Catalogue())
    for path in paths:
        loader.add(Path(path), root)
    library = loader.sound()
    problems += loader.problems
    if devices is not None:
        problems += audit(library, devices.values())
    return library, problems
