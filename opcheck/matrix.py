"""The matrix of a project, `[tool.opcheck.matrix]`: the jobs in which a CI service runs the project's cases."""

from collections.abc import Collection, Iterator
from itertools import product
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self

from opcheck.spec.dtypes import GROUPS, expand, known
from opcheck.spec.model import Frozen, Model, Positive, matching, refuse
from opcheck.spec.positions import KeyPath
from opcheck.spec.problems import Mistake, listing, nearest, unknown

T = TypeVar("T")

AXES = ("device", "torch", "python", "dtypes")


def _version(text: str) -> str:
    from packaging.version import InvalidVersion, Version  # imported here, since packaging takes 40 ms

    try:
        Version(text)
    except InvalidVersion:
        raise refuse(f'"{text}" is not a version of torch', 'a version such as "2.13.0"') from None
    return text


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _some(values: tuple[T, ...]) -> tuple[T, ...]:
    # Not min_length, since pydantic would also report an array of wrong elements as too short.
    if not values:
        raise refuse("an empty array", "at least one element")
    return values


Several = Annotated[Frozen[T], AfterValidator(_some)]
OneOrMore = Annotated[Several[str], BeforeValidator(_listed)]
"""A string, or an array of strings."""
TorchVersion = Annotated[str, AfterValidator(_version)]
PythonVersion = Annotated[str, matching(r"3\.[0-9]{1,2}t?", "is not a version of Python", 'a version such as "3.12"')]
Job = dict[str, Any]
"""A job, with the keys id, name, device, torch, python, dtype, shard and runner."""
Combination = tuple[str, str, str, str]
"""A value of each axis, with commas between dtypes. Empty values: what is installed, and all dtypes."""


class Inclusion(Model):
    """A further combination."""

    device: str = Field(description="a device")
    torch: TorchVersion = Field(default="", description="a version of torch; default: the installed version")
    python: PythonVersion = Field(default="", description="a version of Python; default: the installed version")
    dtypes: OneOrMore = Field(default=(), description="dtypes or groups of them; default: all")

    @property
    def combination(self) -> Combination:
        """The values."""
        return self.device, self.torch, self.python, ",".join(self.dtypes)


class Exclusion(Model):
    """Combinations to leave out: those that have one of the listed values for each given key."""

    device: OneOrMore | None = Field(default=None, description="devices")
    torch: OneOrMore | None = Field(default=None, description="versions of torch")
    python: OneOrMore | None = Field(default=None, description="versions of Python")
    dtypes: OneOrMore | None = Field(
        default=None, description="groups of dtypes; commas separate the dtypes of a group, as in `float64,complex128`"
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise refuse("an exclusion without keys leaves out everything", f"one of {', '.join(AXES)}")
        return self

    def covers(self, one: Combination) -> bool:
        """Return whether the exclusion leaves out a combination."""
        wanted = (getattr(self, key) for key in AXES)
        return all(each is None or value in each for each, value in zip(wanted, one, strict=True))


class Matrix(Model):
    """`[tool.opcheck.matrix]`: each device with each version of torch and of Python, in each group of dtypes."""

    devices: Several[str] = Field(default=("cpu",), description="devices")
    torch: Several[TorchVersion] = Field(default=("",), description="versions of torch; default: the installed version")
    python: Several[PythonVersion] = Field(
        default=("",), description="versions of Python; default: the installed version"
    )
    dtypes: Several[OneOrMore] = Field(
        default=((),), description="groups of dtypes, each a name or an array of names; default: all in one"
    )
    shards: Positive | dict[str, Positive] = Field(
        default=1, description="number of shards per combination, or a table from device to number"
    )
    exclude: Frozen[Exclusion] = Field(default=(), description="combinations to leave out")
    include: Frozen[Inclusion] = Field(default=(), description="further combinations")
    runners: dict[str, OneOrMore] = Field(
        default_factory=dict, description="by device, the labels of the machines that run its jobs"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for axis, values in self._axes().items():
            for index, value in enumerate(values):
                if value in values[:index]:
                    raise refuse(f'"{value}" is listed twice in {axis}', "each value once", at=(axis, index))
        for number, exclusion in enumerate(self.exclude):
            for key, values in zip(AXES, self._axes().values(), strict=True):
                for index, value in enumerate(getattr(exclusion, key) or ()):
                    if value not in values:
                        what = f'this exclusion matches nothing: the matrix has no {key} "{value}"'
                        raise refuse(what, listing(values), nearest(value, values), ("exclude", number, key, index))
        combinations = self.combinations()
        first = len(combinations) - len(self.include)
        for number, inclusion in enumerate(self.include):
            if inclusion.combination in combinations[: first + number]:
                raise refuse("the matrix has this combination already", "another one", at=("include", number))
        devices = [*dict.fromkeys([*self.devices, *(one.device for one in self.include)])]
        for key, table in (("runners", self.runners), ("shards", self.shards)):
            for name in table if isinstance(table, dict) else ():
                if name not in devices:
                    what = f'the matrix has no device "{name}"'
                    raise refuse(what, listing(devices), nearest(name, devices), (key, name))
        if not combinations:
            raise refuse("the matrix is empty: everything is excluded", "at least one job", at=("exclude",))
        return self

    def _axes(self) -> dict[str, tuple[str, ...]]:
        dtypes = tuple(",".join(group) for group in self.dtypes)
        return {"devices": self.devices, "torch": self.torch, "python": self.python, "dtypes": dtypes}

    def combinations(self) -> list[Combination]:
        """Return all combinations of the axes except the excluded ones, followed by the included ones."""
        devices, torch, python, dtypes = self._axes().values()
        every = product(devices, torch, python, dtypes)
        left = (one for one in every if not any(exclusion.covers(one) for exclusion in self.exclude))
        return [*left, *(inclusion.combination for inclusion in self.include)]

    def jobs(self, runner: str = "") -> list[Job]:
        """Return the jobs, in a fixed order. runner: the machine label for devices without an entry in `runners`.

        The id of a job, such as `cpu-torch2.13.0-py3.12-float64+half`, can be used as a file name.
        """
        jobs = []
        for device, torch, python, dtypes in self.combinations():
            in_id = (device, torch and f"torch{torch}", python and f"py{python}", dtypes.replace(",", "+"))
            in_name = (device, torch and f"torch {torch}", python and f"Python {python}", dtypes.replace(",", " "))
            labels = self.runners.get(device, (runner,))
            count = self.shards.get(device, 1) if isinstance(self.shards, dict) else self.shards
            shards = [f"{number}/{count}" for number in range(1, count + 1)] if count > 1 else [""]
            for shard in shards:
                jobs.append({
                    "id": "-".join(filter(None, (*in_id, shard.replace("/", "of")))),
                    "name": ", ".join(filter(None, (*in_name, shard and f"shard {shard}"))),
                    "device": device, "torch": torch, "python": python, "dtype": dtypes, "shard": shard,
                    "runner": labels[0] if len(labels) == 1 else list(labels),
                })  # fmt: skip
        return jobs

    def unknown_names(self, devices: Collection[str]) -> Iterator[Mistake]:
        """Yield a mistake for each unknown device or dtype, and for each group of dtypes that overlaps an earlier one.

        devices: the names of all known devices. Call this within `declared`, since device profiles may declare dtypes.
        """
        named: list[tuple[KeyPath, str]] = [(("devices", index), name) for index, name in enumerate(self.devices)]
        named += [(("include", index, "device"), one.device) for index, one in enumerate(self.include)]
        yield from (Mistake(place, *unknown("device", name, devices)) for place, name in named if name not in devices)
        groups: list[tuple[KeyPath, tuple[str, ...]]] = [
            *((("dtypes", index), group) for index, group in enumerate(self.dtypes)),
            *((("include", index, "dtypes"), one.dtypes) for index, one in enumerate(self.include)),
        ]
        choices = [*GROUPS, *known()]
        for place, group in groups:
            for index, name in enumerate(group):
                if name not in choices:
                    yield Mistake((*place, index), *unknown("dtype", name, choices, 30))
        seen: dict[str, str] = {}
        for index, group in enumerate(self.dtypes):
            twice = next((name for name in expand(group) if name in seen), None)
            if twice is not None:
                what = f'"{",".join(group)}" and "{seen[twice]}" both have {twice}'
                yield Mistake(("dtypes", index), what, "groups without common dtypes, so that a case has one job")
            seen |= dict.fromkeys(expand(group), ",".join(group))
