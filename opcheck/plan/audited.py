"""Loads specs with every mistake that can be seen without torch, those in expectations included."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from opcheck.plan.expectations import audit
from opcheck.plan.plugins import load_plugins
from opcheck.spec.library import Library
from opcheck.spec.load import Loader
from opcheck.spec.problems import SpecError
from opcheck.spec.settings import Settings


def load_audited(paths: Iterable[Path | str], settings: Settings | None = None) -> Library:
    """Load spec files and folders. Raises SpecError with all mistakes found: those of `load`, and those of `audit`.

    The plugins of the project are imported first: specs may name their checks.
    """
    settings = settings or Settings()
    load_plugins(settings)
    loader = Loader(settings)
    for path in paths:
        loader.add(Path(path))
    library = loader.sound()
    problems = audit(library, loader.devices.values()) if loader.devices is not None else []
    if loader.problems or problems:
        raise SpecError([*loader.problems, *problems])
    return library
