"""The tables of a spec file: operators, samples, uses of templates, defaults."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from opcheck.spec.claims import (
    USUAL_TOLERANCES,
    Dtypes,
    ErrorClaim,
    Expect,
    Gradcheck,
    Jacobian,
    Order,
    Outputs,
    Reference,
    Strings,
    Supports,
    Tolerances,
)
from opcheck.spec.model import (
    FURTHER_KEYS,
    Dotted,
    DtypeEntry,
    Frozen,
    Identifier,
    Keyword,
    MarkName,
    Model,
    refuse,
)
from opcheck.spec.values import Layout, Tensor, Value


class Grid(Model):
    """What samples and uses of templates share: keyword arguments, a grid of them, a name, a restriction."""

    name: Identifier | None = Field(
        default=None, description="name of the sample in messages and `expect`; default: its number"
    )
    kwargs: dict[Keyword, Value] = Field(default_factory=dict, description="keyword arguments")
    grid: dict[Keyword, Annotated[list[Value], Field(min_length=1)]] = Field(
        default_factory=dict, description="keyword arguments with several values: one sample for each combination"
    )
    skip: list[dict[str, Value]] = Field(default_factory=list, description="combinations of the grid to leave out")
    dtypes: Frozen[DtypeEntry] | None = Field(default=None, description="only for these dtypes; default: for all")


class SampleSpec(Grid):
    """Arguments that the operator is tested at."""

    args: list[Value] = Field(default_factory=list, description="positional arguments")
    grad_outputs: list[Tensor] | None = Field(
        default=None, description="cotangents of the differentiable outputs at second order; default: random ones"
    )


class TemplateUse(Grid):
    """The samples of a template; further keys set its parameters."""

    model_config = FURTHER_KEYS

    use: str = Field(description="name of the template")

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters given, by name."""
        return dict(self.__pydantic_extra__ or {})


def _kind(value: Any) -> str:
    used = "use" in value if isinstance(value, dict) else isinstance(value, TemplateUse)
    return "<use>" if used else "<sample>"


SampleEntry = Annotated[
    Annotated[SampleSpec, Tag("<sample>")] | Annotated[TemplateUse, Tag("<use>")], Discriminator(_kind)
]


class VariantTarget(Model):
    """A variant whose callable does not follow from the operator's name."""

    kind: Literal["method", "inplace"] = Field(description="method or inplace")
    target: Dotted = Field(description="the dotted path of the callable")


def _one_of_a_kind(variants: list[str | VariantTarget]) -> list[str | VariantTarget]:
    kinds = [entry if isinstance(entry, str) else entry.kind for entry in variants]
    if len(set(kinds)) < len(kinds):
        raise refuse("variants names one kind twice", "method and inplace at most once each")
    return variants


class PerDevice(Model):
    """What differs on one device."""

    dtypes: Dtypes | None = None
    supports: dict[str, bool] = Field(default_factory=dict, description="keys of `supports` that differ")
    tolerance: Tolerances | None = None


class Claims(Model):
    """The keys that an operator and the defaults of a file have in common."""

    variants: Annotated[list[Literal["method", "inplace"] | VariantTarget], AfterValidator(_one_of_a_kind)] = Field(
        default_factory=list, description="further ways of calling: `torch.Tensor.sin`, `torch.Tensor.sin_`"
    )
    dtypes: Dtypes = Field(default=Dtypes.model_construct(), description="for which dtypes it works")
    devices: Strings | None = Field(default=None, description="devices it runs on; default: all")
    per_device: dict[str, PerDevice] = Field(default_factory=dict, description="what differs, by device")
    samples: list[SampleEntry] = Field(default_factory=list, description="what it is tested at")
    supports: Supports = Field(default=Supports.model_construct(), description="kinds of differentiation and calling")
    outputs: Outputs = Field(
        default=Outputs.model_construct(), description="which outputs are tested, and how they are seen"
    )
    tolerance: Tolerances = Field(
        default_factory=lambda: USUAL_TOLERANCES, description="numbers that comparisons allow for"
    )
    gradcheck: Gradcheck = Field(default=Gradcheck.model_construct(), description="settings of torch's gradcheck")
    reseed: bool = Field(default=False, description="a random operator: reset the generator before each call")
    jacobian: Jacobian | None = Field(
        default=None, description="full, projected (random directions) or auto (by size); default: that of the project"
    )
    orders: Frozen[Order] = Field(default=(), description="further derivatives of second and third order to test")
    registered: bool | None = Field(
        default=None, description="registered with torch.library; default: where the target starts with torch.ops"
    )
    layouts: Frozen[Layout] = Field(
        default=("strided",),
        max_length=8,
        description="repeat each strided sample with its first tensor in these layouts",
    )
    masked: bool = Field(default=False, description="sparse samples are differentiated under masked semantics")
    check_sparse_nnz: bool | None = Field(
        default=None, description="deprecated: the former name of `masked`", deprecated=True
    )
    tags: Frozen[MarkName] = Field(
        default=(), description="names to select by, markers in pytest: none that has a meaning there"
    )
    notes: str = Field(default="", description="remarks for readers")

    @property
    def masked_semantics(self) -> bool:
        """Whether sparse samples are differentiated under masked semantics."""
        old = self.__dict__["check_sparse_nnz"]
        return self.masked if old is None else bool(old)

    @model_validator(mode="after")
    def _one_name_for_masked(self) -> "Claims":
        old = self.__dict__["check_sparse_nnz"]
        if old is not None and "masked" in self.model_fields_set and old != self.masked:
            raise refuse("masked and its deprecated alias check_sparse_nnz contradict each other", "masked alone")
        return self


class Defaults(Claims):
    """`[defaults]`: merged under every operator of the file."""


def _no_kind(name: str) -> str:
    if name in ("function", "method", "inplace"):
        raise refuse(
            f'variant cannot be "{name}"', "another name: ids of variants end in [method] and [inplace]"
        )
    return name


class OperatorSpec(Claims):
    """`[[operator]]`: what one operator claims."""

    name: Dotted = Field(description="a dotted path: name and target in one")
    target: Dotted | None = Field(
        default=None, description="the callable, where it is not the name: `package.module:attribute`"
    )
    variant: Annotated[Identifier, AfterValidator(_no_kind)] | None = Field(
        default=None, description="tells several entries of one operator apart"
    )
    aliases: Frozen[Dotted] = Field(default=(), description="other names of the same operator")
    reference: Dotted | Reference | None = Field(default=None, description="a callable that gives the same values")
    errors: list[ErrorClaim] = Field(default_factory=list, description="inputs that must be refused")
    expect: list[Expect] = Field(default_factory=list, description="known failures")

    @property
    def id(self) -> str:
        """`torch.div[floor]`."""
        return f"{self.name}[{self.variant}]" if self.variant else self.name

    @property
    def callable_path(self) -> str:
        """The dotted path that is called."""
        return self.target or self.name

    @property
    def is_registered(self) -> bool:
        """Whether it is an operator of torch.library."""
        return self.callable_path.startswith("torch.ops.") if self.registered is None else self.registered


class SpecFile(Model):
    """A spec file as a whole; the source of the JSON Schema."""

    defaults: Defaults = Field(default=Defaults.model_construct())
    operator: list[OperatorSpec]


class TemplateHead(Model):
    """`[template]` of a template file."""

    about: str = Field(description="what it is for")
    optional: Strings = Field(
        default=(), description="parameters without a default: keys that mention them are left out"
    )
    defaults: dict[str, Any] = Field(default_factory=dict, description="parameters and their defaults")


class TemplateFile(Model):
    """A template: samples with parameters, written `"$name"`."""

    template: TemplateHead
    samples: list[dict[str, Any]] = Field(min_length=1)
