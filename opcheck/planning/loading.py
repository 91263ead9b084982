"""Loads the specs of a project, and finds every mistake that can be found without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from opcheck.planning.audit import audit, unmatched
from opcheck.planning.kinds import load_plugins
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.dtypes import declared
from opcheck.spec.library import Library
from opcheck.spec.load import BUILTIN, Catalogue, Loader, builtin_folder
from opcheck.spec.problems import Problem, SpecError


def load(paths: Iterable[Path | str], settings: Settings | None = None) -> Library:
    """Load spec files and folders (`builtin`: the shipped library).

    settings: those of the project; default: the default settings. The project's plugins are imported first, since
    specs may name their checks.
    Raises SpecError with all mistakes in specs and in device profiles. If all specs of the project are loaded, an
    expectation, or a pattern of `deny`, of a profile that matches no case is a mistake, too.
    """
    settings = settings or Settings()
    load_plugins(settings)
    places = [Path(path) for path in paths]
    library, problems = examine(places, settings)
    if not problems and _is_whole(places, settings):
        problems = list(_unmatched(library, settings.profiles.values()))
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
        devices = settings.profiles
    except SpecError as error:
        problems += error.problems
    with declared(() if devices is None else settings.dtypes):
        limits = replace(settings.limits, devices=devices)
        loader = Loader(limits, tuple(settings.spec_paths()), catalogue or Catalogue())
        for path in paths:
            loader.add(Path(path), root)
        library = loader.library()
        problems += loader.problems
        if devices is not None:
            problems += audit(library, devices.values())
    return library, problems


def _is_whole(paths: list[Path], settings: Settings) -> bool:
    """Return whether `paths` contain all specs of the project, or the shipped library if the project has none."""
    own = settings.spec_paths() or [builtin_folder()]
    loaded = {builtin_folder() if path == Path(BUILTIN) else path.resolve() for path in paths}
    return all({place, *place.parents} & loaded for place in (path.resolve() for path in own))


def _unmatched(library: Library, devices: Iterable[DeviceProfile]) -> Iterator[Problem]:
    """Yield a mistake for each part of a profile that matches no case of the project or of the shipped library.

    A profile serves the project and the shipped library, whichever is tested, so a match in one of them is enough.
    """
    for device in devices:
        if any(unmatched(device, library)):
            shipped = Loader()
            shipped.add(builtin_folder())
            yield from unmatched(device, Library((*library, *shipped.library())))
