"""The claims of an operator, apart from its samples: dtypes, support, tolerances, outputs and known failures."""

from collections import ChainMap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, create_model, model_validator

from opcheck.spec import dtypes as names
from opcheck.spec.checks import BUILTIN as CHECKS
from opcheck.spec.checks import Derive
from opcheck.spec.model import (
    CheckName,
    Count,
    DeviceName,
    Dotted,
    DtypeEntries,
    DtypeEntry,
    Finite,
    Frozen,
    Keyword,
    Located,
    Model,
    Pattern,
    Some,
    VersionCondition,
    named,
    refuse,
)
from opcheck.spec.values import Scalar, Value


class Dtypes(Model):
    """The dtypes in which the operator works. `dtypes = "real"` and `dtypes = ["float32", "int64"]` set `forward`."""

    forward: DtypeEntries = Field(
        default=("floating", "complex"), min_length=1, description="dtypes of the forward pass"
    )
    backward: DtypeEntries | None = Field(
        default=None, description="dtypes of the backward pass; default: the floating and complex dtypes of forward"
    )

    exact: bool = Field(default=False, description="whether the operator refuses all other standard dtypes")

    def forward_names(self) -> tuple[str, ...]:
        """Return the dtypes of the forward pass, with groups expanded."""
        return names.expand(self.forward)

    def backward_names(self) -> tuple[str, ...]:
        """Return the differentiable dtypes of the backward pass, with groups expanded."""
        listed = names.expand(self.forward if self.backward is None else self.backward)
        return tuple(name for name in listed if names.is_differentiable(name))


def in_full(claimed: Any) -> Any:
    """Return the table that a string or an array stands for: `dtypes = "real"` is `dtypes = { forward = ["real"] }`."""
    if isinstance(claimed, (str, list)):
        return {"forward": [claimed] if isinstance(claimed, str) else claimed}
    return claimed


DtypeClaims = Annotated[Dtypes, BeforeValidator(in_full, json_schema_input_type=Dtypes | DtypeEntry | list[DtypeEntry])]
"""The key `dtypes` of an operator."""

Jacobian = Literal["full", "projected", "auto"]
Way = Literal["size", "empty", "rank", "broadcast", "value", "integer", "mask", "layout", "keyword", "dtype", "sum"]
"""A respect in which opcheck varies samples automatically."""
WAYS: tuple[Way, ...] = get_args(Way)
Vary = Literal[
    Way,
    "-size", "-empty", "-rank", "-broadcast", "-value", "-integer", "-mask", "-layout", "-keyword", "-dtype", "-sum",
]  # fmt: skip
"""An entry of the key `vary`: a way to vary samples or, with a minus sign, one to leave out."""


def _of_one_sign(entries: tuple[Vary, ...]) -> tuple[Vary, ...]:
    others = [entry for entry in entries if entry.startswith("-")]
    if 0 < len(others) < len(entries):
        raise refuse(f'"{others[0]}" has no effect beside entries without a minus sign', "entries of one kind")
    return entries


VaryEntries = Annotated[Frozen[Vary], AfterValidator(_of_one_sign)]
Order = Literal["rev_over_fwd", "fwd_over_fwd", "scalarized_second_order", "rev_over_rev_over_rev"]


class _Supports(Model):
    """The supported kinds of differentiation and calling. `false` is a claim too: the attempt must raise an error."""

    backward: bool | Frozen[str | int] = Field(
        default=True, description="reverse mode; or a list of the arguments (names or positions) that have a derivative"
    )
    forward_ad: bool = Field(default=True, description="forward mode")
    batched_grad: bool = Field(default=True, description="vmap over the vjp")
    batched_forward_grad: bool = Field(default=True, description="vmap over the jvp")
    second_order: bool = Field(default=True, description="differentiating the backward pass in reverse mode")
    fwd_over_rev: bool = Field(default=True, description="differentiating the backward pass in forward mode")
    rev_over_fwd: bool = Field(default=True, description="differentiating forward mode in reverse mode")
    fwd_over_fwd: bool = Field(default=True, description="differentiating forward mode in forward mode")
    third_order: bool = Field(default=True, description="differentiating the second derivative in reverse mode")
    inplace_backward: bool = Field(default=True, description="derivatives of the in-place variant")
    undefined_grad: bool = Field(default=True, description="undefined cotangents and tangents treated as zeros")
    out: bool = Field(
        default=True, description="the keyword `out=`; default: if the signature has it, or C code takes it"
    )
    masked: bool = Field(default=True, description="derivatives of sparse inputs under masked semantics")
    vmap: bool = Field(default=True, description="`torch.func.vmap` over the operator")
    outputs: bool | Frozen[Count | str] = Field(
        default=True, description="outputs with a derivative: all, or a list of their names or positions"
    )

    def disclaimed(self) -> tuple[str, ...]:
        """Return the names of the features that are not supported, or not for all arguments or outputs."""
        return tuple(name for name, claim in self if claim is not True)


TESTED_BY_OTHERS = ("out", "outputs")
"""The features whose refusal other checks than `unsupported` test: `variants` and `detached`."""

if TYPE_CHECKING:
    Supports = _Supports
else:
    # Each check with a `feature` in the table of checks adds a key of its own name.
    Supports = create_model(
        "Supports",
        __base__=_Supports,
        __doc__=_Supports.__doc__,
        __module__=__name__,
        **{kind.name: (bool, Field(default=True, description=kind.feature)) for kind in CHECKS if kind.feature},
    )


class Tolerance(Model):
    """Tolerances of comparisons. Values that are not set keep the default of the check and dtype."""

    atol: Annotated[Finite, Field(ge=0)] | None = Field(default=None, description="absolute tolerance")
    rtol: Annotated[Finite, Field(ge=0)] | None = Field(default=None, description="relative tolerance")
    eps: Annotated[Finite, Field(gt=0)] | None = Field(default=None, description="step of the finite differences")
    nondeterminism: Annotated[Finite, Field(ge=0)] | None = Field(
        default=None, description="largest difference between two backward passes; default: 0"
    )

    @classmethod
    def first_set(cls, several: Iterable["Tolerance"]) -> "Tolerance":
        """Return each number from the first tolerance that sets it, or None. several: the most specific first."""
        return cls(**ChainMap(*(one.numbers() for one in several)))

    def numbers(self) -> dict[str, float]:
        """Return the numbers that are set, by key."""
        return {key: number for key in Tolerance.model_fields if (number := getattr(self, key)) is not None}


class Tolerances(Tolerance):
    """Tolerances of an operator, with exceptions by check and by dtype."""

    check: dict[CheckName, Tolerance] = Field(default_factory=dict, description="exceptions, by check")
    dtype: dict[Annotated[str, named("dtype")], Tolerance] = Field(
        default_factory=dict, description="exceptions, by dtype"
    )

    def exceptions(self, check: str, dtype: str) -> list[Tolerance]:
        """Return the exceptions for a check and for a dtype, as far as there are any. That of the check comes first."""
        return [one for one in (self.check.get(check), self.dtype.get(dtype)) if one is not None]


class Accuracy(Model):
    """An intended loss of digits: a disclaimer for the check `accuracy`."""

    rtol: Annotated[float, Field(gt=0, lt=1)] = Field(
        description="the largest error of a derivative, relative to the largest entry of its Jacobian"
    )
    reason: Annotated[str, Field(min_length=1)] = Field(description="why the digits are lost, ideally a link")
    dtypes: DtypeEntries | None = Field(default=None, min_length=1, description="only in these dtypes; default: in all")

    def covers(self, dtype: str) -> bool:
        """Return whether the disclaimer applies to a dtype."""
        return self.dtypes is None or dtype in names.expand(self.dtypes)


class OperatorTolerances(Tolerances):
    """Tolerances in a spec, and the loss of digits that it disclaims."""

    accuracy: Accuracy | None = Field(default=None, description="how many digits derivatives may lose, and why")


USUAL_TOLERANCES = OperatorTolerances.model_construct()
"""Tolerances with no number set, so that the defaults of checks and dtypes apply."""


class Outputs(Model):
    """The outputs to test, and a map applied to them."""

    select: Some[int] | None = Field(default=None, description="positions of the outputs to test; default: all tensors")
    apply: Literal["abs", "real", "gauge_invariant", "finite", "to_dense", "values"] | None = Field(
        default=None,
        description="a map applied to outputs that are sparse, defined only up to a phase, or infinite by definition",
    )


class Gradcheck(Model):
    """Settings passed to `torch.autograd.gradcheck` and `gradgradcheck`."""

    fast_mode: bool = Field(default=False, description="compare one random projection instead of the whole Jacobian")
    raise_exception: bool = Field(default=True, description="false omits torch's explanation of a failure")
    gen_non_contig_grad_outputs: bool | Literal["both"] = Field(
        default="both",
        description="whether generated second-order cotangents are non-contiguous; default: each in turn",
    )


class Reference(Model):
    """A callable that returns the same values, from NumPy, SciPy or an allowed module."""

    target: Dotted = Field(description="the dotted path of the callable")
    rename: dict[Keyword, Keyword] = Field(default_factory=dict, description="keywords to rename: `{ dim = 'axis' }`")
    kwargs: dict[Keyword, Scalar | list[Scalar]] = Field(
        default_factory=dict,
        description="further keyword arguments, such as what a module gets from its constructor: `{ size = 3 }`",
    )
    positional: bool = Field(
        default=False, description="pass keyword arguments by position, in the order of the sample"
    )
    differentiable: bool | None = Field(
        default=None,
        description="whether the reference takes tensors and autograd can differentiate it, so that gradients are "
        "compared too; default: true for public functions of torch",
    )
    times: Annotated[Finite, Field(gt=0)] = Field(
        default=2.0,
        description="in dtypes below double precision: the allowed error, as a multiple of the error of the reference "
        "in the same dtype",
    )

    @property
    def is_differentiable(self) -> bool:
        """Whether autograd can differentiate the reference."""
        if self.differentiable is not None:
            return self.differentiable
        return self.target.startswith("torch.") and "._" not in self.target


class ErrorClaim(Model):
    """An input that the operator must refuse."""

    args: list[Value] = Field(default_factory=list, description="positional arguments")
    kwargs: dict[Keyword, Value] = Field(default_factory=dict, description="keyword arguments")
    raises: str = Field(default="RuntimeError", description="name of the exception, or of one of its base classes")
    match: Pattern = Field(description="a regular expression to search for in the message")
    devices: Frozen[DeviceName] | None = Field(
        default=None,
        min_length=1,
        description="the devices that refuse it; default: all. Kernels of a GPU do not raise for an index out of range",
    )


VariantName = Annotated[str, named("variant")]
DeviceEntry = Annotated[str, named("device entry")]
DtypeOrGroup = Annotated[str, named("dtype or group")]


class When(Model):
    """The cases that an expectation applies to. Each key is a value or a list of values; a missing key matches all."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    check: CheckName | Some[CheckName] | None = Field(default=None, description="checks")
    variant: VariantName | Some[VariantName] | None = Field(
        default=None, description="ways to call it: function, method or inplace"
    )
    device: DeviceEntry | Some[DeviceEntry] | None = Field(
        default=None, description='devices; "-cuda" stands for all others'
    )
    dtype: DtypeOrGroup | Some[DtypeOrGroup] | None = Field(default=None, description="dtypes or groups of dtypes")
    sample: str | Some[str] | None = Field(default=None, description="names of samples; all others must still pass")
    engine: Literal["batched", "torch"] | None = Field(default=None, description="only under this engine")
    derive: Derive | Some[Derive] | None = Field(default=None, description="only with so many derived samples")
    torch: VersionCondition | None = Field(
        default=None, description='a condition on the torch version, such as "<2.12"'
    )

    @model_validator(mode="after")
    def _says_something(self) -> "When":
        if not self.model_fields_set:
            raise refuse("when is empty: it would hide every failure of the operator", "at least one key")
        return self

    def matches(self, **values: str) -> bool:
        """Return whether values, given by key, meet the conditions on these keys. `torch` cannot be given."""
        for key, value in values.items():
            listed = names.expand(self.listed(key)) if key == "dtype" else self.listed(key)
            if getattr(self, key) is not None and not _includes(listed, value):
                return False
        return True

    def listed(self, key: str) -> tuple[str, ...]:
        """Return the values of a key; an empty tuple if it is missing."""
        wanted = getattr(self, key)
        return (wanted,) if isinstance(wanted, str) else wanted or ()


def _includes(listed: Sequence[str], name: str) -> bool:
    """Return whether a list includes a name. Entries such as "-cuda" include all names but those with a minus."""
    left_out = [one[1:] for one in listed if one.startswith("-")]
    return name in listed or (bool(left_out) and name not in left_out)


class Expect(Located):
    """A known failure and the reason for it."""

    when: When = Field(description="the cases it applies to: a table with at least one key")
    outcome: Literal["fail", "error", "inconclusive", "flaky", "skip"] = Field(
        description="fail (the claim must fail), error (must be an error), inconclusive (must be inconclusive), "
        "flaky (the claim may fail or hold) or skip (not run)"
    )
    match: Pattern | None = Field(
        default=None, description="a regular expression to search for in the failure message; default: any failure"
    )
    reason: Annotated[str, Field(min_length=1)] = Field(description="the reason, ideally a link")

    @model_validator(mode="after")
    def _has_something_to_match(self) -> "Expect":
        if self.match is not None and self.outcome == "skip":
            raise refuse('match has no effect with outcome = "skip": nothing is run', "no match")
        return self
