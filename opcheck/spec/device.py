"""Device profiles: the name of a device, what it lacks, and what differs on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from opcheck.spec.claims import USUAL_TOLERANCES, Expect, Strings, Tolerances, When
from opcheck.spec.document import Document, merge
from opcheck.spec.dtypes import KNOWN, expand
from opcheck.spec.explain import explain
from opcheck.spec.files import shown
from opcheck.spec.installed import installed_folders
from opcheck.spec.model import DeviceName, Dotted, DtypeEntry, Frozen, MarkName, Model, NewDtype, refuse
from opcheck.spec.positions import Path as KeyPath
from opcheck.spec.problems import Problem, SpecError, listing, nearest

BUILTIN = Path(__file__).parent / "builtin" / "devices"


class Hint(Model):
    """Signs that a device may be present, found without torch. When a case runs, torch has the last word."""

    always: bool = Field(default=False, description="it is part of every machine")
    paths: Strings = Field(default=(), description="device files, one of which exists")
    module: str | None = Field(default=None, description="a Python module that can be found")


class DeviceWhen(When):
    """The cases that an expectation of a profile applies to. Each key is a value or a list of values."""

    operator: str | Strings | None = Field(default=None, description="ids, names or glob patterns of operators")

    @property
    def operators(self) -> tuple[str, ...]:
        """The patterns of operators; empty if it applies to all of them."""
        return (self.operator,) if isinstance(self.operator, str) else self.operator or ()


class DeviceExpect(Expect):
    """A failure known on a device, and the reason for it."""

    when: DeviceWhen = Field(description="the cases it applies to: a table with at least one key")

    _place: Callable[..., Problem] | None = None

    def problem(self, path: KeyPath, *words: str) -> Problem:
        """Return a mistake at a key of this entry, in the file of the profile that has it."""
        return Problem("device", 1, 1, *words) if self._place is None else self._place(path, *words)


def _resources(amounts: dict[str, float]) -> dict[str, float]:
    for name, amount in amounts.items():
        if name in RESERVED:
            expected = "num_cpus, num_gpus, or a resource of your own"
            raise refuse(f'"{name}" is reserved by Ray', expected, RESERVED[name], at=(name,))
        if not (0 <= amount < 1 or (amount >= 1 and amount % 1 == 0)):
            raise refuse(f"{amount:g} is no amount of a resource", "a fraction below 1, or a whole number", at=(name,))
    return amounts


RESERVED = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "", "object_store_memory": ""}
"""Names that a resource cannot have in a profile, and what was probably meant."""


class DeviceProfile(Model):
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
        default={}, description="what a task of `opcheck run --ray` asks for: num_cpus, num_gpus, resources of your own"
    )
    lacks: Frozen[DtypeEntry] = Field(default=(), description="dtypes that the device does not have")
    dtypes: Frozen[NewDtype] = Field(default=(), description="dtypes that exist only there")
    tolerance: Tolerances = Field(
        default_factory=lambda: USUAL_TOLERANCES, description="tolerances of comparisons on this device"
    )
    allow: Strings | None = Field(default=None, description="operators (glob patterns) to test there; default: all")
    deny: Strings = Field(default=(), description="operators (glob patterns) not to test there")
    expect: list[DeviceExpect] = Field(default_factory=list, description="failures known on this device")

    _document: Document | None = None
    _written: DeviceProfile | None = None
    _path: Path | None = None

    def problem(self, path: KeyPath, *words: str, key: bool = False) -> Problem:
        """Return a mistake at a value (or key) of the profile's file."""
        if self._document is None:
            return Problem(f"device {self.name}", 1, 1, *words)
        return self._document.problem(("device", *path), *words, key=key)

    @property
    def file(self) -> str:
        """The file of the profile, relative if possible; empty for a profile made in Python."""
        return "" if self._document is None else self._document.file

    @property
    def path(self) -> Path | None:
        """The path of that file."""
        return self._path

    @property
    def written(self) -> DeviceProfile:
        """The profile as its file has it, without what it inherits."""
        return self._written or self

    @property
    def signs(self) -> Hint:
        """The hint; if the profile gives none, its module is one."""
        return self.hint if "hint" in self.model_fields_set else Hint(module=self.module)

    @property
    def device_string(self) -> str:
        """The string for `torch.device`."""
        return self.torch or self.name

    def has(self, dtype: str) -> bool:
        """Return whether the device has a dtype."""
        return dtype not in expand(self.lacks) and (dtype in KNOWN or dtype in self.dtypes)

    def inheriting(self, parent: DeviceProfile) -> DeviceProfile:
        """Return the profile with the keys of its parent where it has none.

        Lists of `lacks`, `deny` and `expect` are joined, and tolerances merged. A profile that names a module of its
        own does not inherit the hint: that one is about another module.
        """
        own = {key: getattr(self, key) for key in self.model_fields_set}
        both = {key: getattr(parent, key) for key in parent.model_fields_set} | own
        if "module" in own and "hint" not in own:
            both.pop("hint", None)
        both["torch"] = self.torch or parent.device_string
        for key in ("lacks", "deny", "expect"):
            both[key] = getattr(parent, key) + getattr(self, key)
        if "tolerance" in own:
            written = (one.tolerance.model_dump(exclude_unset=True) for one in (parent, self))
            both["tolerance"] = Tolerances(**merge(*written))
        profile = DeviceProfile.model_construct(set(both), **both)
        profile._document, profile._path, profile._written = self._document, self._path, self
        return profile


class ProfileFile(Model):
    """A file that holds a device profile."""

    device: DeviceProfile = Field(description="a device")


def read_profile(path: Path) -> DeviceProfile:
    """Read one profile, without what it inherits. Raises SpecError."""
    document = Document.read(path)
    try:
        profile = ProfileFile.model_validate(document.data).device
    except ValidationError as error:
        raise SpecError(explain(error, ProfileFile, document.data, document.problem)) from None
    profile._document, profile._path = document, path
    for index, expect in enumerate(profile.expect):
        expect._place = _placed(profile, index)
    return profile


def _placed(profile: DeviceProfile, index: int) -> Callable[..., Problem]:
    return lambda path, *words: profile.problem(("expect", index, *path), *words)


@lru_cache(maxsize=8)
def profiles(folders: tuple[Path, ...] = (), files: tuple[Path, ...] = ()) -> dict[str, DeviceProfile]:
    """Return all profiles by name: built-in ones, those of installed packages, those in folders, those in files.

    A later profile replaces an earlier one of the same name, and may inherit from it.

    Raises SpecError with the mistakes in all of them.
    """
    shelf = _Shelf()
    brought, shelf.problems = installed_folders()
    for folder in (BUILTIN, *brought, *folders):
        if os.path.isdir(folder):
            shelf.read(sorted(folder.glob("*.toml")))
        else:
            shelf.problems.append(Problem(shown(folder), 1, 1, "no such folder", "a folder of device profiles"))
    shelf.read(files)
    known = shelf.resolved()
    if shelf.problems:
        raise SpecError(shelf.problems)
    return known


class _Shelf:
    """Profiles as they are written, and what becomes of them with what they inherit."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._written: dict[str, list[DeviceProfile]] = {}
        """The profiles of each name, in the order in which they replace one another."""

    def read(self, paths: Iterable[Path]) -> None:
        """Read some files."""
        for path in paths:
            try:
                profile = read_profile(path)
            except SpecError as error:
                self.problems += error.problems
            else:
                self._written.setdefault(profile.name, []).append(profile)

    def resolved(self) -> dict[str, DeviceProfile]:
        """Return the last profile of each name, with what it inherits."""
        return {name: self._whole(same[-1]) for name, same in self._written.items()}

    def _whole(self, profile: DeviceProfile, *heirs: DeviceProfile) -> DeviceProfile:
        if profile.inherits is None:
            return profile
        parent = self._parent(profile, profile.inherits)
        if parent is None:
            others = [name for name, same in self._written.items() if name != profile.name or len(same) > 1]
            self._refuse(
                profile, f'unknown device "{profile.inherits}"', listing(others), nearest(profile.inherits, others)
            )
            return profile
        line = (*heirs, profile)
        if any(parent is heir for heir in line):
            start = next(index for index, heir in enumerate(line) if heir is parent)
            circle = " inherits ".join(one.name for one in (*line[start:], parent))
            expected = "a profile that inherits from none of these"
            self._refuse(profile, f"profiles inherit in a circle: {circle}", expected)
            return profile
        return profile.inheriting(self._whole(parent, *line))

    def _parent(self, profile: DeviceProfile, name: str) -> DeviceProfile | None:
        """Return the profile of a name, as it is written. Of its own name, it means the one that it replaces."""
        same = self._written.get(name, [])
        if name == profile.name:
            same = same[: next(index for index, one in enumerate(same) if one is profile)]
        return same[-1] if same else None

    def _refuse(self, profile: DeviceProfile, *words: str) -> None:
        self.problems.append(profile.problem(("inherits",), *words))
