"""Device profiles: the name of a device, what it lacks, and what differs on it."""

import os
from functools import lru_cache
from pathlib import Path

from pydantic import Field, ValidationError

from opcheck.spec.claims import USUAL_TOLERANCES, Expect, Strings, Tolerances
from opcheck.spec.document import Document
from opcheck.spec.explain import explain
from opcheck.spec.files import shown
from opcheck.spec.model import DtypeEntry, Frozen, MarkName, Model
from opcheck.spec.positions import Path as KeyPath
from opcheck.spec.problems import Problem, SpecError

BUILTIN = Path(__file__).parent / "builtin" / "devices"


class Hint(Model):
    """Signs that a device may be present, found without torch. When a case runs, torch has the last word."""

    always: bool = Field(default=False, description="it is part of every machine")
    paths: Strings = Field(default=(), description="device files, one of which exists")
    module: str | None = Field(default=None, description="a Python module that can be found")


class DeviceProfile(Model):
    """`[device]` of a profile file."""

    name: MarkName = Field(description="name in case ids and for --device")
    torch: str | None = Field(default=None, description="torch's device string; default: the name")
    about: str = Field(default="", description="what the device is")
    module: str | None = Field(default=None, description="module to import before use (an out-of-tree backend)")
    hint: Hint = Field(default=Hint.model_construct(), description="signs that it may be present")
    lacks: Frozen[DtypeEntry] = Field(default=(), description="dtypes that the device does not have")
    tolerance: Tolerances = Field(
        default_factory=lambda: USUAL_TOLERANCES, description="tolerances of comparisons on this device"
    )
    allow: Strings | None = Field(default=None, description="operators (glob patterns) to test there; default: all")
    deny: Strings = Field(default=(), description="operators (glob patterns) not to test there")
    expect: list[Expect] = Field(default_factory=list, description="failures known on this device")

    _document: Document | None = None

    def problem(self, path: KeyPath, *words: str, key: bool = False) -> Problem:
        """Return a mistake at a value (or key) of the profile's file."""
        if self._document is None:
            return Problem(f"device {self.name}", 1, 1, *words)
        return self._document.problem(("device", *path), *words, key=key)

    @property
    def signs(self) -> Hint:
        """The hint; if the profile gives none, its module is one."""
        return self.hint if "hint" in self.model_fields_set else Hint(module=self.module)

    @property
    def device_string(self) -> str:
        """The string for `torch.device`."""
        return self.torch or self.name


class ProfileFile(Model):
    """A file that holds a device profile."""

    device: DeviceProfile = Field(description="a device")


def read_profile(path: Path) -> DeviceProfile:
    """Read one profile. Raises SpecError."""
    document = Document.read(path)
    try:
        profile = ProfileFile.model_validate(document.data).device
    except ValidationError as error:
        raise SpecError(explain(error, ProfileFile, document.data, document.problem)) from None
    profile._document = document
    return profile


@lru_cache(maxsize=8)
def profiles(folders: tuple[Path, ...] = ()) -> dict[str, DeviceProfile]:
    """Return the built-in profiles and those in some folders, by name. Later ones replace earlier ones.

    Raises SpecError with the mistakes in all of them.
    """
    found: dict[str, DeviceProfile] = {}
    problems: list[Problem] = []
    for folder in (BUILTIN, *folders):
        if not os.path.isdir(folder):
            problems.append(Problem(shown(folder), 1, 1, "no such folder", "a folder of device profiles"))
            continue
        for path in sorted(folder.glob("*.toml")):
            try:
                profile = read_profile(path)
            except SpecError as error:
                problems += error.problems
            else:
                found[profile.name] = profile
    if problems:
        raise SpecError(problems)
    return found
