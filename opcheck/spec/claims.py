"""What an operator claims beyond its samples: dtypes, support, tolerances, outputs, and failures that are known."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from opcheck.spec import dtypes as names
from opcheck.spec.model import Dotted, DtypeEntry, Frozen, Keyword, Model, Pattern, VersionCondition, refuse
from opcheck.spec.values import Value

Strings = Annotated[tuple[str, ...], Field(strict=False)]


class Dtypes(Model):
    """For which dtypes the operator works. Of the standard dtypes, those not listed must be refused."""

    forward: Frozen[DtypeEntry] = Field(default=("floating", "complex"), description="dtypes of the forward pass")
    backward: Frozen[DtypeEntry] | None = Field(
        default=None, description="dtypes of the backward pass; default: the floating and complex ones of forward"
    )

    def forward_names(self) -> tuple[str, ...]:
        """Return the dtypes of the forward pass, groups expanded."""
        return names.expand(self.forward)

    def backward_names(self) -> tuple[str, ...]:
        """Return the dtypes of the backward pass, groups expanded."""
        listed = names.expand(self.forward if self.backward is None else self.backward)
        return tuple(name for name in listed if names.is_differentiable(name))


Jacobian = Literal["full", "projected", "auto"]
Order = Literal["rev_over_fwd", "fwd_over_fwd", "scalarized_second_order", "rev_over_rev_over_rev"]


class Supports(Model):
    """Which kinds of differentiation and calling work. `false` is a claim too: it must be refused with an error."""

    backward: bool | Frozen[str | int] = Field(
        default=True, description="reverse mode; or a list: the arguments (names or positions) that have a derivative"
    )
    forward_ad: bool = Field(default=True, description="forward mode")
    batched_grad: bool = Field(default=True, description="vmap over the vjp")
    batched_forward_grad: bool = Field(default=True, description="vmap over the jvp")
    second_order: bool = Field(default=True, description="differentiating the backward pass in reverse mode")
    fwd_over_rev: bool = Field(default=True, description="differentiating the backward pass in forward mode")
    inplace_backward: bool = Field(default=True, description="derivatives of the in-place variant")
    undefined_grad: bool = Field(default=True, description="undefined cotangents and tangents taken as zeros")
    out: bool = Field(default=True, description="the keyword `out=`")
    masked: bool = Field(default=True, description="derivatives of sparse inputs under masked semantics")
    vmap: bool = Field(default=True, description="`torch.func.vmap` over the operator")

    def disclaimed(self) -> tuple[str, ...]:
        """Return the names of what is not supported, wholly or for some arguments."""
        return tuple(name for name, claim in self if claim is not True)


class Tolerance(Model):
    """Numbers that comparisons allow for. Unset ones keep the default of the check and dtype."""

    atol: Annotated[float, Field(ge=0)] | None = Field(default=None, description="absolute tolerance")
    rtol: Annotated[float, Field(ge=0)] | None = Field(default=None, description="relative tolerance")
    eps: Annotated[float, Field(gt=0)] | None = Field(default=None, description="step of the finite differences")
    nondeterminism: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="greatest difference between two backward passes; default 0"
    )

    def over(self, base: "Tolerance") -> "Tolerance":
        """Return these numbers where set, else those of `base`."""
        return Tolerance(**{key: getattr(base, key) if value is None else value for key, value in self.numbers()})

    def numbers(self) -> list[tuple[str, float | None]]:
        """Return the four numbers by name."""
        return [(key, getattr(self, key)) for key in Tolerance.model_fields]


class Tolerances(Tolerance):
    """Tolerances of an operator, with what differs by check and by dtype."""

    check: dict[str, Tolerance] = Field(default_factory=dict, description="by check")
    dtype: dict[str, Tolerance] = Field(default_factory=dict, description="by dtype")

    def at(self, check: str, dtype: str) -> Tolerance:
        """Return the numbers for one check and dtype: the check's, else the dtype's, else the operator's."""
        own = Tolerance(**dict(self.numbers()))
        return self.check.get(check, Tolerance()).over(self.dtype.get(dtype, Tolerance()).over(own))


USUAL_TOLERANCES = Tolerances.model_construct()
"""Nothing but the defaults of checks and dtypes."""


class Outputs(Model):
    """Which outputs are tested, and seen through which map."""

    select: Frozen[int] | None = Field(
        default=None, description="positions of the outputs to test; default: all tensors"
    )
    apply: Literal["abs", "real", "gauge_invariant", "to_dense", "values"] | None = Field(
        default=None, description="a map applied to the outputs, for what is defined only up to a phase, or is sparse"
    )

    @model_validator(mode="after")
    def _selects_something(self) -> "Outputs":
        if self.select == ():
            raise refuse("select is empty: no output would be tested", "at least one position")
        return self


class Gradcheck(Model):
    """Settings handed to `torch.autograd.gradcheck` and `gradgradcheck` as they are."""

    fast_mode: bool = Field(default=False, description="compare one random projection instead of the whole Jacobian")
    raise_exception: bool = Field(default=True, description="false: torch's explanation of a failure is not asked for")
    gen_non_contig_grad_outputs: bool | Literal["both"] = Field(
        default="both",
        description="whether generated cotangents of second order are non-contiguous; default: each in turn",
    )


class Reference(Model):
    """A callable that gives the same values, from NumPy, SciPy or an allowed module."""

    target: Dotted = Field(description="the dotted path of the callable")
    rename: dict[Keyword, Keyword] = Field(
        default_factory=dict, description="keywords by other names: `{ dim = 'axis' }`"
    )
    positional: bool = Field(
        default=False, description="hand over keyword arguments by position, in the order of the sample"
    )


class ErrorClaim(Model):
    """An input that must be refused."""

    args: list[Value] = Field(default_factory=list)
    kwargs: dict[Keyword, Value] = Field(default_factory=dict)
    raises: str = Field(default="RuntimeError", description="name of the exception, or of one it derives from")
    match: Pattern = Field(description="a regular expression that is found in the message")


class When(Model):
    """Where an expectation holds. Each key is a value or a list of values; keys left out match everything."""

    check: str | Strings | None = None
    variant: str | Strings | None = None
    device: str | Strings | None = None
    dtype: str | Strings | None = Field(default=None, description="dtypes, or groups of them")
    sample: str | Strings | None = Field(default=None, description="names of samples; the others must still pass")
    engine: Literal["batched", "torch"] | None = Field(default=None, description="under one of the engines only")
    torch: VersionCondition | None = Field(
        default=None, description='a condition on the version of torch, such as "<2.12"'
    )

    @model_validator(mode="after")
    def _says_something(self) -> "When":
        if not self.model_fields_set:
            raise refuse("when is empty: it would hide every failure of the operator", "at least one key")
        return self

    def matches(self, key: str, value: Any) -> bool:
        """Tell whether the condition on one key (but `engine` and `torch`) holds for a value."""
        wanted = getattr(self, key)
        if wanted is None:
            return True
        listed = (wanted,) if isinstance(wanted, str) else wanted
        return value in (names.expand(listed) if key == "dtype" else listed)


class Expect(Model):
    """A known failure: precise, and with a reason."""

    when: When = Field(description="where it holds: a table with at least one key")
    outcome: Literal["fail", "error", "inconclusive", "flaky", "skip"] = Field(
        description="fail (the claim must fail), error (must be an error), inconclusive (must be that), "
        "flaky (the claim may fail or hold) or skip (is not run)"
    )
    match: Pattern | None = Field(
        default=None, description="a regular expression that is found in what the failure says; default: any failure"
    )
    reason: Annotated[str, Field(min_length=1)] = Field(description="why, best with a link")

    @model_validator(mode="after")
    def _has_something_to_match(self) -> "Expect":
        if self.match is not None and self.outcome == "skip":
            raise refuse('match has no effect with outcome = "skip": nothing is run', "no match")
        return self
