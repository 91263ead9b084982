"""The settings of a project: `[tool.opcheck]` in its pyproject.toml."""

import shlex
import sys
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from opcheck.matrix import Matrix
from opcheck.spec.checks import Derive
from opcheck.spec.claims import Jacobian
from opcheck.spec.device_profile import DeviceProfile, profiles
from opcheck.spec.document import PROJECT, Document, read_bytes, shown
from opcheck.spec.limits import Limits
from opcheck.spec.load import builtin_folder
from opcheck.spec.model import Count, Frozen, Located, ModuleName, Positive
from opcheck.spec.positions import KeyPath
from opcheck.spec.problems import Problem, SpecError, nearest
from opcheck.spec.wording import validated

FOLDER = "specs"
"""The folder of specs in a project whose settings name none."""
LONGEST = 1e9
"""The largest time limit, in seconds. The timers of operating systems do not support much longer times."""
SIGN = b"opcheck"
"""What every pyproject.toml with settings contains."""
NO_SPECS = (
    "no specs here: name files or folders of them, or write `specs = [...]` under [tool.opcheck] in pyproject.toml; "
    "`builtin` is the shipped library"
)
"""The error message if neither the command line nor the project names specs."""


class Settings(Located):
    """The settings of a project. Paths are relative to its pyproject.toml."""

    specs: Frozen[str] = Field(default=(), description="files and folders of specs")
    modules: Frozen[ModuleName] = Field(
        default=Limits.modules, description="modules that specs may take callables and objects from"
    )
    devices: Frozen[str] = Field(
        default=(), description="folders of device profiles, besides those that installed packages bring"
    )
    plugins: Frozen[ModuleName] = Field(
        default=(), description="modules that register checks, imported before planning"
    )
    seed: Count = Field(0, description="seed of the sample values")
    max_elements: Positive = Field(Limits.max_elements, description="most elements of one tensor of a sample")
    max_outputs: Positive = Field(65536, description="most elements of all outputs of a sample")
    max_samples: Positive = Field(Limits.max_samples, description="most samples of one operator")
    engine: Literal["batched", "torch"] = Field(default="batched", description="what computes the derivative evidence")
    jacobian: Jacobian = Field(
        default="auto", description="whole Jacobians, random projections, or what size and structure allow"
    )
    batch_memory: Positive = Field(
        256, description="MiB that a batch of evaluations, or a Jacobian wanted in full, may take"
    )
    derive: Derive = Field(default="standard", description="how many samples to derive from each written one")
    timeout: Annotated[float, Field(gt=0, le=LONGEST)] | None = Field(
        default=None, description="seconds that a case may take"
    )
    memory: Positive | None = Field(
        default=None, description="MiB that the process of a case may take in `opcheck run`"
    )
    matrix: Matrix | None = Field(default=None, description="the jobs of a CI service, as `opcheck matrix` prints them")

    _place: KeyPath = ("tool", "opcheck")
    _root: Path | None = None
    _profiles: tuple[Path, ...] = ()

    @property
    def root(self) -> Path:
        """The folder that the paths in the settings are relative to."""
        return self._root or Path.cwd()

    @property
    def limits(self) -> Limits:
        """The limits that specs must keep to."""
        return Limits(self.modules, self.max_elements, self.max_samples)

    def spec_paths(self) -> list[Path]:
        """Return the files and folders of specs that the settings name; by default, the folder `specs` if it exists."""
        usual = self.root / FOLDER
        return [self.root / path for path in self.specs] or ([usual] if usual.is_dir() else [])

    def required_specs(self) -> list[Path]:
        """Return `spec_paths()`. Raises SpecError for those that do not exist."""
        if missing := self._missing("specs", "file or folder", "a TOML file, or a folder of them", Path.exists):
            raise SpecError(missing)
        return self.spec_paths()

    def device_folders(self) -> tuple[Path, ...]:
        """Return the folders of device profiles."""
        return tuple(self.root / path for path in self.devices)

    @cached_property
    def profiles(self) -> dict[str, DeviceProfile]:
        """The device profiles by name, including those given on the command line.

        Raises SpecError for folders that do not exist, and with the mistakes in all profiles.
        """
        problems = self._missing("devices", "folder", "a folder of device profiles", Path.is_dir)
        found = {}
        try:
            found = profiles(tuple(filter(Path.is_dir, self.device_folders())), self._profiles)
        except SpecError as error:
            problems += error.problems
        if problems:
            raise SpecError(problems)
        return found

    def _missing(self, key: str, kind: str, expected: str, is_there: Callable[[Path], bool]) -> list[Problem]:
        """Return a problem for each path under a key that does not exist. kind, expected: what it should be."""
        problems = []
        for index, name in enumerate(getattr(self, key)):
            path = self.root / name
            if not is_there(path):
                near = nearest(path.name, (one.name for one in path.parent.glob("*") if is_there(one)))
                meant = str(Path(name).with_name(near)) if near else ""
                problems.append(self.problem((key, index), f'no such {kind}: "{name}"', expected, meant))
        return problems

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes that device profiles declare. Raises SpecError as `profiles` does."""
        return tuple(dict.fromkeys(name for profile in self.profiles.values() for name in profile.dtypes))

    def others(self, specs: Iterable[Path]) -> list[str]:
        """Return a line for each other project that specs belong to and that seems to have settings: they do not apply.

        A folder of specs is data, which must not choose the modules that may be called. Raises SpecError if the
        pyproject.toml of a project cannot be read.
        """
        own = None if self._root is None else self._root / PROJECT
        paths = [path.resolve() for path in specs]
        files = {_project_of(path) for path in paths if builtin_folder() not in (path, *path.parents)} - {own}
        used = f"{Path.cwd()} and the folders above have no {PROJECT}" if own is None else f"those of {shown(own)} do"
        return [
            f"the settings of {shown(file)} do not apply: {used}; expected opcheck to run in {shown(file.parent)}"
            for file in sorted(filter(None, files))
            if SIGN in read_bytes(file)
        ]

    def option_for(self, profile: DeviceProfile) -> str:
        """Return the `--device-profile` option that `opcheck run` needs for a device; empty if it needs none."""
        own = profile.file in map(shown, self._profiles)
        return f"--device-profile {shlex.quote(profile.file)}" if own else ""

    def put_on_path(self) -> None:
        """Append folders to sys.path, so that the project's modules can be imported without being installed.

        These are the root, and those that pyproject.toml names for pytest as `pythonpath`.
        """
        named: Any = self._document.data
        for key in ("tool", "pytest", "ini_options", "pythonpath"):
            named = named.get(key) if isinstance(named, dict) else None
        folders = named.split() if isinstance(named, str) else named or ()
        sys.path += [path for one in ("", *folders) if (path := str(self.root / one)) not in sys.path]

    @classmethod
    def find(cls, start: Path | None = None, profiles: Iterable[str | Path] = ()) -> "Settings":
        """Read the settings of the project that `start` (default: the current folder) belongs to.

        profiles: files of further device profiles, from the command line; relative to `start`.
        Raises SpecError if `[tool.opcheck]` has a mistake.
        """
        start = (start or Path.cwd()).resolve()
        project = _project_of(start)
        settings = cls() if project is None else cls.read(project)
        settings._profiles = tuple(start / path for path in profiles)
        return settings

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """Read the settings in a pyproject.toml. Raises SpecError."""
        settings = cls()
        if SIGN in read_bytes(path):  # fast path: do not parse files of projects without opcheck
            document = settings._document = Document.read(path, within=settings._place)
            tools = document.data.get("tool")
            if isinstance(tools, dict) and "opcheck" in tools:
                settings = validated(cls, tools["opcheck"], settings.problem)
                settings._document = document
        settings._root = path.parent
        return settings


def _project_of(path: Path) -> Path | None:
    """Return the pyproject.toml of the project that a file or folder belongs to: the nearest one, or None."""
    return next((file for folder in (path, *path.parents) if (file := folder / PROJECT).is_file()), None)
