"""The names that the JSON Schema of specs offers: those that opcheck ships, or those of a project."""

from __future__ import annotations

import os

from opcheck.planning.kinds import check_kinds, load_plugins
from opcheck.settings import Settings
from opcheck.spec.checks import BUILTIN
from opcheck.spec.load import Catalogue
from opcheck.spec.schema import Vocabulary
from opcheck.spec.templates import builtin


def vocabulary(project: Settings | None = None) -> Vocabulary:
    """Return all names that the specs of a project may use. Import the plugins of the project.

    project: the settings of the project; None: no project, so that the names are those that opcheck ships, and the
        vocabulary is not complete.
    Raises SpecError if a plugin cannot be imported, or a template or device profile is invalid.
    """
    settings = project or Settings()
    if project is not None:
        load_plugins(settings)
    catalogue = Catalogue()
    folders = [path for path in project.spec_paths() if os.path.isdir(path)] if project is not None else []
    own = [file for folder in folders for named in catalogue.templates(folder).values() for file in named]
    replaced = {file.stem for file in own}
    shipped = [file for name, files in builtin().items() if name not in replaced for file in files]
    return Vocabulary(
        checks={kind.name: kind.claim for kind in (BUILTIN if project is None else check_kinds().values())},
        devices={name: profile.about for name, profile in settings.profiles.items()},
        templates=tuple(map(catalogue.template, dict.fromkeys([*own, *shipped]))),
        complete=project is not None,
        dtypes=settings.dtypes,
    )
