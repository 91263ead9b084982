"""The settings of a project: `[tool.opcheck]` in its pyproject.toml."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from opcheck.spec.claims import Jacobian, Strings
from opcheck.spec.document import Document
from opcheck.spec.explain import explain
from opcheck.spec.files import PROJECT, read_bytes
from opcheck.spec.limits import Limits
from opcheck.spec.model import Model
from opcheck.spec.problems import Problem, SpecError

NO_SPECS = (
    "no specs here: name files or folders of them, or write `specs = [...]` under [tool.opcheck] in pyproject.toml; "
    "`builtin` is the shipped library"
)
"""The message for a request that names no specs in a project that names none either."""


class Settings(Model):
    """The settings of a project. Paths are relative to its pyproject.toml."""

    specs: Strings = Field(default=(), description="files and folders of specs")
    modules: Strings = Field(
        default=Limits.modules, description="modules that specs may take callables and objects from"
    )
    devices: Strings = Field(default=(), description="folders of device profiles")
    plugins: Strings = Field(default=(), description="modules that register checks, imported before planning")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="seed of the sample values")
    max_elements: Annotated[int, Field(ge=1)] = Field(
        Limits.max_elements, description="most elements of one tensor of a sample"
    )
    max_outputs: Annotated[int, Field(ge=1)] = Field(65536, description="most elements of all outputs of a sample")
    max_samples: Annotated[int, Field(ge=1)] = Field(Limits.max_samples, description="most samples of one operator")
    engine: Literal["batched", "torch"] = Field(default="batched", description="what computes the derivative evidence")
    jacobian: Jacobian = Field(
        default="auto", description="whole Jacobians, random projections, or what size and structure allow"
    )
    batch_memory: Annotated[int, Field(ge=1)] = Field(
        256, description="MiB that a batch of evaluations, or a Jacobian wanted in full, may take"
    )
    timeout: Annotated[float, Field(gt=0)] | None = Field(default=None, description="seconds that a case may take")
    memory: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="MiB that the process of a case may take in `opcheck run`"
    )

    _root: Path | None = None
    _document: Document | None = None

    @property
    def root(self) -> Path:
        """The folder that paths are relative to."""
        return self._root or Path.cwd()

    @property
    def limits(self) -> Limits:
        """The limits that specs must keep to."""
        return Limits(self.modules, self.max_elements, self.max_samples)

    def spec_paths(self) -> list[Path]:
        """Return the files and folders of specs."""
        return [self.root / path for path in self.specs]

    def device_folders(self) -> tuple[Path, ...]:
        """Return the folders of device profiles."""
        return tuple(self.root / path for path in self.devices)

    def problem(self, place: tuple[str | int, ...], *words: str) -> Problem:
        """Return a problem at the position of a value of `[tool.opcheck]`."""
        if self._document is None:
            return Problem("settings", 1, 1, *words)
        return self._document.problem(("tool", "opcheck", *place), *words)

    def put_on_path(self) -> None:
        """Append the root to sys.path, so that the project's modules can be imported without being installed."""
        if str(self.root) not in sys.path:
            sys.path.append(str(self.root))

    @classmethod
    def find(cls, start: Path | None = None) -> "Settings":
        """Read the settings of the project that `start` (default: the current folder) belongs to.

        Raises SpecError if `[tool.opcheck]` has a mistake.
        """
        start = (start or Path.cwd()).resolve()
        for folder in (start, *start.parents):
            path = folder / PROJECT
            if path.is_file():
                return cls.read(path)
        return cls()

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """Read the settings in a pyproject.toml. Raises SpecError."""
        raw = document = None
        if b"opcheck" in read_bytes(path):  # large files of other projects need no parsing
            document = Document.read(path, within=("tool", "opcheck"))
            tools = document.data.get("tool")
            raw = tools.get("opcheck") if isinstance(tools, dict) else None

        def locate(key_path: tuple[str | int, ...], *words: str, key: bool = False) -> Problem:
            assert document is not None
            return document.problem(("tool", "opcheck", *key_path), *words, key=key)

        try:
            settings = cls() if raw is None else cls.model_validate(raw)
        except ValidationError as error:
            raise SpecError(explain(error, cls, raw, locate)) from None
        settings._root, settings._document = path.parent, document
        return settings
