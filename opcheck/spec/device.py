"""Device profiles: what a device is called, what it lacks, and what differs on it. Never imports torch."""

import importlib.util
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from opcheck.spec.claims import Expect, Strings, Tolerances
from opcheck.spec.document import Document
from opcheck.spec.explain import explain
from opcheck.spec.model import DtypeEntry, Frozen, Identifier, Model
from opcheck.spec.problems import SpecError

BUILTIN = Path(__file__).parent / "builtin" / "devices"


class Hint(Model):
    """Signs, readable without torch, that a device may be present; torch has the last word when tests run."""

    always: bool = Field(False, description="it is part of every machine")
    paths: Strings = Field((), description="device files, one of which exists")
    module: str | None = Field(None, description="a Python module that can be found")

    def holds(self) -> bool:
        """Tell whether any of the signs is there."""
        found = self.module is not None and importlib.util.find_spec(self.module.split(".")[0]) is not None
        return self.always or found or any(Path(path).exists() for path in self.paths)


class DeviceProfile(Model):
    """`[device]` of a profile file."""

    name: Identifier = Field(description="name in case ids and for --device")
    torch: str | None = Field(None, description="torch's device string; default: the name")
    about: str = ""
    module: str | None = Field(None, description="module to import before use (an out-of-tree backend)")
    hint: Annotated[Hint, Field(default_factory=Hint)]
    lacks: Frozen[DtypeEntry] = Field((), description="dtypes that the device does not have")
    tolerance: Tolerances = Field(default_factory=Tolerances)
    allow: Strings | None = Field(None, description="operators (glob patterns) to test there; default: all")
    deny: Strings = Field((), description="operators (glob patterns) not to test there")
    expect: list[Expect] = Field(default_factory=list, description="failures known on this device")

    @property
    def device_string(self) -> str:
        """What `torch.device` takes."""
        return self.torch or self.name


class ProfileFile(Model):
    """A device profile as a file."""

    device: DeviceProfile


def read_profile(path: Path) -> DeviceProfile:
    """Read one profile. Raises SpecError."""
    document = Document.read(path)
    try:
        return ProfileFile.model_validate(document.data).device
    except ValidationError as error:
        raise SpecError(explain(error, ProfileFile, document.data, document.problem)) from None


@lru_cache(maxsize=8)
def profiles(folders: Iterable[Path] = ()) -> dict[str, DeviceProfile]:
    """Return the built-in profiles and those in the given folders, by name; later ones replace earlier ones."""
    found: dict[str, DeviceProfile] = {}
    for folder in (BUILTIN, *folders):
        for path in sorted(folder.glob("*.toml")):
            profile = read_profile(path)
            found[profile.name] = profile
    return found
