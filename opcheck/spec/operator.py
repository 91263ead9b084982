"""The tables of a spec file: operators, samples, uses of templates, modules, defaults."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from opcheck.spec.claims import (
    USUAL_TOLERANCES,
    WAYS,
    DtypeClaims,
    Dtypes,
    ErrorClaim,
    Expect,
    Gradcheck,
    Jacobian,
    OperatorTolerances,
    Order,
    Outputs,
    Reference,
    Supports,
    Vary,
    VaryEntries,
    Way,
)
from opcheck.spec.model import (
    FURTHER_KEYS,
    DeviceName,
    Dotted,
    DtypeEntries,
    Finite,
    Frozen,
    Identifier,
    Keyword,
    MarkName,
    Model,
    ModuleName,
    VersionCondition,
    named,
    refuse,
)
from opcheck.spec.positions import KeyPath
from opcheck.spec.recipe import Layout, Tensor, check_bounds, nested
from opcheck.spec.values import Scalar, Value

LARGE = 65536
"""The maximum number of elements of a tensor in a sample with `large = true`."""


class Init(Model):
    """The values of a parameter or buffer: uniform, normal, or explicit."""

    low: Finite | None = Field(default=None, description="lower bound of uniform values; default: -2")
    high: Finite | None = Field(default=None, description="upper bound (exclusive) of uniform values; default: 2")
    exclude: Finite | Frozen[Finite] | None = Field(
        default=None, description="points that random values avoid, by a distance of 0.1"
    )
    mean: Finite | None = Field(default=None, description="mean of normal values; default: 0")
    std: Annotated[Finite, Field(gt=0)] | None = Field(
        default=None, description="standard deviation of normal values; default: 1"
    )
    values: Annotated[Any, BeforeValidator(nested)] = Field(
        default=None, description="explicit values, broadcast to its shape"
    )
    grad: bool | None = Field(
        default=None,
        description="whether to differentiate with respect to it; default: as constructed, and false for buffers",
    )

    @model_validator(mode="after")
    def _one_distribution(self) -> "Init":
        written = self.model_fields_set
        kinds = [kind for kind in (("low", "high"), ("mean", "std"), ("values",)) if written & set(kind)]
        if len(kinds) > 1 or (kinds == [("values",)] and "exclude" in written):
            raise refuse("init mixes distributions", "low and high; or mean and std; or values")
        check_bounds(self.low, self.high, self.exclude)
        return self


class Construction(Model):
    """How to construct a module, for an operator that is a module class. Its parameters are differentiated, too."""

    args: list[Value] = Field(default_factory=list, description="positional arguments of the constructor")
    kwargs: dict[Keyword, Value] = Field(default_factory=dict, description="keyword arguments of the constructor")
    train: bool = Field(default=True, description="training mode, or evaluation mode; default: training, as in torch")
    init: dict[str, Init] = Field(
        default_factory=dict,
        description="values by name, such as `weight`, `layers.0.bias`, or `*.bias`, which matches parameters only; "
        "the first matching key applies; default: the constructed values",
    )


class Grid(Model):
    """The keys common to samples and uses of templates: keyword arguments, a grid, a name, dtypes."""

    name: Identifier | None = Field(
        default=None, description="the name of the sample in messages and `expect`; default: its number"
    )
    kwargs: dict[Keyword, Value] = Field(default_factory=dict, description="keyword arguments")
    grid: dict[Keyword, Annotated[list[Value], Field(min_length=1)]] = Field(
        default_factory=dict, description="keyword arguments with several values each: one sample for every combination"
    )
    skip: list[dict[str, Value]] = Field(
        default_factory=list, max_length=100, description="combinations of the grid to leave out"
    )
    dtypes: DtypeEntries | None = Field(
        default=None, min_length=1, description="run only in these dtypes; default: all"
    )
    vary: bool | VaryEntries | None = Field(
        default=None,
        description="what opcheck varies to derive further samples; true: everything, false: nothing; "
        "with a minus sign, as in `-size`: everything else; default: as set for the operator",
    )
    large: bool = Field(
        default=False,
        description=f"allow tensors of up to {LARGE} elements, more than `max_elements`",
    )

    @model_validator(mode="after")
    def _has_one_place_for_each_keyword(self) -> "Grid":
        for key in self.kwargs:
            if key in self.grid:
                raise refuse(f'"{key}" is in kwargs and in grid', "one of them", at=("kwargs", key))
        return self


class SampleSpec(Grid):
    """Arguments to test the operator with."""

    args: list[Value] = Field(default_factory=list, description="positional arguments")
    module: Construction | None = Field(
        default=None, description="how the module is constructed for this sample: the keys that differ"
    )
    grad_outputs: list[Tensor] | None = Field(
        default=None, description="cotangents of the differentiable outputs at second order; default: random ones"
    )


class TemplateUse(Grid):
    """The samples of a template. All other keys set its parameters."""

    model_config = FURTHER_KEYS

    use: Annotated[str, named("template")] = Field(description="the name of the template")

    @property
    def parameters(self) -> dict[str, Any]:
        """The given parameters, by name."""
        return dict(self.__pydantic_extra__ or {})


def ways(vary: bool | tuple[Vary, ...]) -> tuple[Way, ...]:
    """Return the respects in which to vary samples: all if `vary` is true, none if it is false.

    If each entry has a minus sign, these are all others.
    """
    if isinstance(vary, bool):
        return WAYS if vary else ()
    named = tuple(way for way in WAYS if way in vary)
    return named if named or not vary else tuple(way for way in WAYS if f"-{way}" not in vary)


def _kind(value: Any) -> str:
    used = "use" in value if isinstance(value, dict) else isinstance(value, TemplateUse)
    return "<use>" if used else "<sample>"


SampleEntry = Annotated[
    Annotated[SampleSpec, Tag("<sample>")] | Annotated[TemplateUse, Tag("<use>")], Discriminator(_kind)
]


class VariantTarget(Model):
    """A variant whose callable cannot be derived from the operator's name."""

    kind: Literal["method", "inplace"] = Field(description="method or inplace")
    target: Dotted | None = Field(
        default=None, description="the dotted path of the callable; default: that of the function, if kwargs are given"
    )
    kwargs: dict[Keyword, Scalar] = Field(
        default_factory=dict, description="keyword arguments that make it this variant, such as `{ inplace = true }`"
    )

    @model_validator(mode="after")
    def _differs_from_the_function(self) -> "VariantTarget":
        if self.target is None and not self.kwargs:
            raise refuse("a variant needs a target or kwargs", "at least one of the two")
        return self


def _one_of_a_kind(variants: list[str | VariantTarget]) -> list[str | VariantTarget]:
    kinds = [entry if isinstance(entry, str) else entry.kind for entry in variants]
    if len(set(kinds)) < len(kinds):
        raise refuse("variants lists a kind twice", "method and inplace at most once each")
    return variants


class PerDevice(Model):
    """Claims that may differ by device. Tables are merged with those of the operator; arrays replace them."""

    dtypes: DtypeClaims = Field(default=Dtypes.model_construct(), description="the dtypes in which it works")
    supports: Supports = Field(
        default=Supports.model_construct(), description="supported ways to differentiate and call it"
    )
    tolerance: OperatorTolerances = Field(
        default_factory=lambda: USUAL_TOLERANCES, description="tolerances of comparisons"
    )


class PerTorch(Model):
    """Claims that differ by version of torch. Tables are merged with those of the operator; arrays replace them."""

    dtypes: DtypeClaims | None = Field(default=None, description="the dtypes in which it works")
    supports: Supports | None = Field(default=None, description="keys of `supports` that differ")
    samples: list[SampleEntry] | None = Field(default=None, description="the samples, all of them")
    errors: list[ErrorClaim] | None = Field(default=None, description="the inputs that it must refuse, all of them")


class Claims(PerDevice):
    """The keys common to an operator and the defaults of a file."""

    imports: Frozen[ModuleName] = Field(
        default=(), description="modules to import first: those that register operators of `torch.ops`"
    )
    variants: Annotated[list[Literal["method", "inplace"] | VariantTarget], AfterValidator(_one_of_a_kind)] = Field(
        default_factory=list, description="other ways to call it: `torch.Tensor.sin`, `torch.Tensor.sin_`"
    )
    devices: Frozen[DeviceName] | None = Field(
        default=None, min_length=1, description="the devices it runs on; default: all"
    )
    torch: VersionCondition | None = Field(
        default=None, description='the versions of torch that have it, such as ">=2.13"; default: all'
    )
    per_device: dict[DeviceName, PerDevice] = Field(default_factory=dict, description="what differs on a device")
    per_torch: dict[VersionCondition, PerTorch] = Field(
        default_factory=dict, description='what differs with versions of torch that meet a condition, such as "<2.14"'
    )
    samples: list[SampleEntry] = Field(default_factory=list, description="the arguments to test it with")
    outputs: Outputs = Field(
        default=Outputs.model_construct(), description="the outputs to test, and a map applied to them"
    )
    gradcheck: Gradcheck = Field(default=Gradcheck.model_construct(), description="settings for torch's gradcheck")
    reseed: bool = Field(
        default=False, description="reset the random generators before each call, for random operators"
    )
    jacobian: Jacobian | None = Field(
        default=None,
        description="full, projected (random directions) or auto (full, then structured, then projected); "
        "default: the project setting",
    )
    orders: Frozen[Order] = Field(default=(), description="derivatives of higher order to test as a whole")
    inplace: bool | Frozen[str | int] = Field(
        default=False,
        description="the operator changes its first argument, and returns it or nothing; or a list of the arguments "
        "(names or positions) that it changes. They are cloned for each call, and are part of the result",
    )
    registered: bool | None = Field(
        default=None,
        description="whether torch.library registers it; default: if the target starts with torch.ops",
    )
    layouts: Frozen[Layout] = Field(
        default=("strided",),
        max_length=8,
        description="repeat each strided sample with its first tensor in these layouts",
    )
    masked: bool = Field(default=False, description="differentiate sparse samples under masked semantics")
    check_sparse_nnz: bool | None = Field(default=None, description="deprecated alias of `masked`", deprecated=True)
    vary: bool | VaryEntries = Field(
        default=True,
        description="what opcheck varies to derive further samples; true: everything, false: nothing; "
        "with a minus sign, as in `-size`: everything else",
    )
    expect: list[Expect] = Field(default_factory=list, description="known failures")
    tags: Frozen[MarkName] = Field(
        default=(), description="names to select cases by; pytest markers, so no marker that pytest itself uses"
    )
    notes: str = Field(default="", description="notes for readers")

    @property
    def claims(self) -> dict[KeyPath, PerDevice]:
        """The claims in general and on each device, by the path of their table."""
        return {(): self, **{("per_device", name): claims for name, claims in self.per_device.items()}}

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
    """`[defaults]`: defaults for every operator of the file."""


def _no_kind(name: str) -> str:
    if name in ("function", "method", "inplace"):
        raise refuse(f'variant cannot be "{name}"', "another name: ids of variants end in [method] and [inplace]")
    return name


class OperatorSpec(Claims):
    """`[[operator]]`: the claims of one operator."""

    name: Dotted = Field(description="a dotted path such as torch.sin; also the target by default")
    target: Dotted | None = Field(
        default=None, description="the callable, if it differs from the name: `package.module:attribute`"
    )
    variant: Annotated[Identifier, AfterValidator(_no_kind)] | None = Field(
        default=None, description="distinguishes several entries of one operator"
    )
    module: Construction | None = Field(
        default=None, description="the name is a class of modules: how it is constructed, `{ args = [3, 2] }`"
    )
    aliases: Frozen[Dotted] = Field(default=(), description="other names of the same operator")
    reference: Dotted | Reference | None = Field(default=None, description="a callable that returns the same values")
    surrogate: Literal["constant"] | Dotted | None = Field(
        default=None,
        description="for an operator whose gradient is intentionally not its true derivative (such as a "
        "straight-through estimator): a function with the same arguments whose derivative is the expected gradient; "
        "values that it detaches are treated as constants; `constant`: the expected gradient is zero",
    )
    errors: list[ErrorClaim] = Field(default_factory=list, description="inputs that the operator must refuse")

    @model_validator(mode="after")
    def _modules_are_called_one_way(self) -> "OperatorSpec":
        if self.module is not None and self.variants:
            raise refuse("a module has no method and in-place variants", "variants = []", at=("variants",))
        return self

    @property
    def id(self) -> str:
        """The id: the name with the variant, as in `torch.div[floor]`."""
        return f"{self.name}[{self.variant}]" if self.variant else self.name

    @property
    def callable_path(self) -> str:
        """The dotted path of the callable."""
        return self.target or self.name

    @property
    def reference_in_full(self) -> Reference | None:
        """The reference as a table, even if the spec has only its path; None if there is none."""
        return Reference(target=self.reference) if isinstance(self.reference, str) else self.reference

    @property
    def surrogate_path(self) -> str | None:
        """The dotted path of the surrogate; None if there is none or it is `constant`."""
        return None if self.surrogate == "constant" else self.surrogate

    @property
    def is_registered(self) -> bool:
        """Whether torch.library registers the operator."""
        return self.callable_path.startswith("torch.ops.") if self.registered is None else self.registered


def _array_of_tables(written: Any) -> Any:
    if isinstance(written, dict):
        raise refuse("operator is not an array of tables", "[[operator]], in double brackets")
    return written


Operators = Annotated[list[OperatorSpec], Field(min_length=1)]


class SpecFile(Model):
    """A whole spec file. Its operators are validated one by one, merged over the defaults."""

    defaults: Defaults = Field(
        default=Defaults.model_construct(), description="defaults for every operator of the file"
    )
    operator: Annotated[list[dict[str, Any]], BeforeValidator(_array_of_tables, json_schema_input_type=Operators)] = (
        Field(min_length=1, description="at least one [[operator]]")
    )


def _settable(names: Any) -> Any:
    for place, name in enumerate(names) if isinstance(names, tuple) else zip(names, names, strict=True):
        if name in TemplateUse.model_fields:
            expected = f"a name other than {', '.join(TemplateUse.model_fields)}"
            raise refuse(f'a parameter cannot be called "{name}"', expected, at=(place,))
    return names


class TemplateHead(Model):
    """The `[template]` table of a template file."""

    about: str = Field(description="the purpose of the template")
    optional: Annotated[Frozen[str], AfterValidator(_settable)] = Field(
        default=(), description="parameters without a default; keys that use them are left out unless they are given"
    )
    defaults: Annotated[dict[str, Any], AfterValidator(_settable)] = Field(
        default_factory=dict, description="parameters and their defaults"
    )


class TemplateFile(Model):
    """A template: samples with parameters, written `"$name"`."""

    template: TemplateHead = Field(description="what the template is for, and its parameters")
    samples: list[dict[str, Any]] = Field(min_length=1, description='samples in which "$name" stands for a parameter')
