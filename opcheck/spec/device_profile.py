"""Device profiles: the name of a device, the dtypes that it lacks, its tolerances and known failures."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from opcheck.spec.claims import USUAL_TOLERANCES, Expect, Tolerances, When
from opcheck.spec.document import Document, merge
from opcheck.spec.dtypes import KNOWN, expand
from opcheck.spec.model import (
    DeviceName,
    Dotted,
    DtypeEntries,
    Frozen,
    Located,
    MarkName,
    Model,
    NewDtype,
    Some,
    refuse,
)
from opcheck.spec.positions import KeyPath
from opcheck.spec.problems import Problem, SpecError, place_of, unknown
from opcheck.spec.wording import validated

GROUP = "opcheck.devices"
"""The group of entry points for profiles. Each value names a folder as a package: `torch_npu.opcheck`."""
BUILTIN = Path(__file__).parent / "builtin" / "devices"


class Hint(Model):
    """Signs that a device may be present, found without torch. When a case runs, torch decides."""

    always: bool = Field(default=False, description="the device is on every machine")
    paths: Frozen[str] = Field(default=(), description="device files; the device may be present if any of them exists")
    module: str | None = Field(default=None, description="a Python module that can be found")


class DeviceWhen(When):
    """The cases that an expectation of a profile applies to. Each key is a value or a list of values."""

    operator: str | Some[str] | None = Field(default=None, description="ids, names or glob patterns of operators")


class DeviceExpect(Expect):
    """A known failure on a device and the reason for it."""

    when: DeviceWhen = Field(description="the cases it applies to: a table with at least one key")


def _resources(amounts: dict[str, float]) -> dict[str, float]:
    for name, amount in amounts.items():
        if name in RESERVED:
            expected = "num_cpus, num_gpus, or a resource of your own"
            raise refuse(f'"{name}" is reserved by Ray', expected, RESERVED[name], at=(name,))
        if not (0 <= amount < 1 or (amount >= 1 and amount % 1 == 0)):
            expected = "a fraction below 1, or a whole number"
            raise refuse(f"{amount:g} is not an amount of a resource", expected, at=(name,))
    return amounts


RESERVED = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "", "object_store_memory": ""}
"""Names of resources that Ray reserves, and the keys that were probably meant."""


class DeviceProfile(Located):
    """`[device]` of a profile file."""

    name: MarkName = Field(description="name in case ids and for --device")
    inherits: DeviceName | None = Field(
        default=None,
        description="another profile, whose keys apply where this one has none",
    )
    torch: str | None = Field(default=None, description="torch's device string; default: the name")
    about: str = Field(default="", description="what the device is")
    module: str | None = Field(default=None, description="module to import before use (an out-of-tree backend)")
    hint: Hint = Field(default=Hint.model_construct(), description="signs that it may be present")
    seed: Dotted | None = Field(
        default=None, description="function that seeds its random generator, given an integer; default: torch's own"
    )
    synchronize: Dotted | None = Field(
        default=None, description="function that waits until it has finished all work; default: torch's own"
    )
    resources: Annotated[dict[str, float], AfterValidator(_resources)] = Field(
        default={},
        description="Ray resources that each task of `opcheck run --ray` requests: num_cpus, num_gpus, or "
        "custom resources",
    )
    lacks: DtypeEntries = Field(default=(), description="dtypes that the device does not have")
    dtypes: Frozen[NewDtype] = Field(default=(), description="dtypes that exist only there")
    tolerance: Tolerances = Field(
        default_factory=lambda: USUAL_TOLERANCES, description="tolerances of comparisons on this device"
    )
    allow: Frozen[str] | None = Field(default=None, description="operators (glob patterns) to test there; default: all")
    deny: Frozen[str] = Field(default=(), description="operators (glob patterns) not to test there")
    expect: list[DeviceExpect] = Field(default_factory=list, description="failures known on this device")

    _place: KeyPath = ("device",)
    _written: DeviceProfile | None = None

    @property
    def file(self) -> str:
        """The file of the profile, relative if possible; `Python` for a profile made in Python."""
        return self._document.file

    @property
    def written(self) -> DeviceProfile:
        """The profile as written in its file, without inherited keys."""
        return self._written or self

    @property
    def signs(self) -> Hint:
        """The hint of the profile; by default, that its module can be found."""
        return self.hint if "hint" in self.model_fields_set else Hint(module=self.module)

    @property
    def device_string(self) -> str:
        """The string for `torch.device`."""
        return self.torch or self.name

    def has(self, dtype: str) -> bool:
        """Return whether the device has a dtype."""
        return dtype not in expand(self.lacks) and (dtype in KNOWN or dtype in self.dtypes)

    def inheriting(self, parent: DeviceProfile) -> DeviceProfile:
        """Return the profile with its missing keys taken from its parent.

        The lists `lacks`, `deny` and `expect` are joined, and tolerances merged. A profile with a `module` of its own
        does not inherit the hint, which is about the module of the parent.
        """
        own = self.stated()
        if "module" in own:
            own.setdefault("hint", self.signs)
        own["torch"] = self.torch or parent.device_string
        for key in ("lacks", "deny", "expect"):
            own[key] = getattr(parent, key) + getattr(self, key)
        if "tolerance" in own:
            written = (one.tolerance.model_dump(exclude_unset=True) for one in (parent, self))
            own["tolerance"] = Tolerances(**merge(*written))
        profile = parent.model_copy(update=own)
        profile._document, profile._written = self._document, self
        return profile


class ProfileFile(Model):
    """A file that holds a device profile."""

    device: DeviceProfile = Field(description="a device")


def read_profile(path: Path) -> DeviceProfile:
    """Return the profile in a file, without inherited keys. Raises SpecError if it is invalid."""
    document = Document.read(path)
    profile = validated(ProfileFile, document.data, document.problem).device
    profile._document = document
    for index, expect in enumerate(profile.expect):
        expect._document, expect._place = document, ("device", "expect", index)
    return profile


def profiles(folders: tuple[Path, ...] = (), files: tuple[Path, ...] = ()) -> dict[str, DeviceProfile]:
    """Return all profiles by name: built-in ones, then those of installed packages, of folders and of files.

    A later profile replaces an earlier one of the same name, and may inherit from it. Folders and files are read anew
    in each call.

    Raises SpecError with the mistakes in all profiles.
    """
    installed, mistakes = read_installed()
    further, more = _read(folders, files)
    written, problems = [*installed, *further], [*mistakes, *more]
    whole: dict[str, DeviceProfile] = {}
    for name, profile in {one.name: one for one in written}.items():
        try:
            whole[name] = _with_inherited(profile, written)
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return whole


@lru_cache(maxsize=1)
def read_installed() -> tuple[list[DeviceProfile], list[Problem]]:
    """Return the built-in profiles and those of installed packages, and the mistakes in them. They are read once."""
    folders, problems = _installed_folders()
    written, mistakes = _read((BUILTIN, *folders))
    return written, [*problems, *mistakes]


def _read(folders: Iterable[Path], files: Iterable[Path] = ()) -> tuple[list[DeviceProfile], list[Problem]]:
    """Return the profiles in folders and files, and the mistakes in them."""
    problems: list[Problem] = []
    written: list[DeviceProfile] = []
    for path in (*(path for folder in folders for path in sorted(folder.glob("*.toml"))), *files):
        try:
            written.append(read_profile(path))
        except SpecError as error:
            problems += error.problems
    return written, problems


def _with_inherited(
    profile: DeviceProfile, written: list[DeviceProfile], heirs: tuple[DeviceProfile, ...] = ()
) -> DeviceProfile:
    """Return a profile with inherited keys. Raises SpecError if a parent does not exist, or if profiles form a circle.

    written: all profiles, without inherited keys. heirs: those that inherit from this one, the furthest first.
    """
    if profile.inherits is None:
        return profile
    same = [one for one in written if one.name == profile.inherits]
    if profile in same:  # its own name refers to the profile that it replaces
        same = same[: same.index(profile)]
    if not same:
        others = dict.fromkeys(one.name for one in written if one is not profile)
        raise SpecError([profile.problem(("inherits",), *unknown("device", profile.inherits, others))])
    parent, line = same[-1], (*heirs, profile)
    if parent in line:
        circle = " inherits ".join(one.name for one in (*line[line.index(parent) :], parent))
        expected = "a profile that inherits from none of these"
        raise SpecError([profile.problem(("inherits",), f"profiles inherit in a circle: {circle}", expected)])
    return profile.inheriting(_with_inherited(parent, written, line))


def _installed_folders() -> tuple[list[Path], list[Problem]]:
    """Return the profile folders of installed packages, and a problem for each entry point whose folder is missing.

    No package is imported: only the first component of a name is looked up, since looking up a subpackage imports its
    parent packages.
    """
    folders: list[Path] = []
    problems: list[Problem] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        first, *rest = entry.value.split(".")
        try:
            package = importlib.util.find_spec(first)
        except (ImportError, ValueError):
            package = None
        places = package.submodule_search_locations if package is not None else None
        own = [folder for folder in (Path(place, *rest) for place in places or ()) if folder.is_dir()]
        folders += own
        if not own:
            what = f'{GROUP}: no folder "{entry.value}" in an installed package'
            problems.append(Problem(place_of(entry), 1, 1, what, "such as mypackage.devices"))
    return list(dict.fromkeys(folders)), problems
