"""How a module is constructed: `module = { args = [3, 2], kwargs = { bias = true } }`."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from opcheck.spec.model import Frozen, Keyword, Model, refuse
from opcheck.spec.recipe import nested
from opcheck.spec.values import Value

UNIFORM = ("low", "high")
NORMAL = ("mean", "std")
EXPLICIT = ("values",)


class Init(Model):
    """The values of a parameter or buffer: uniform, normal, or explicit."""

    low: float | None = Field(default=None, description="lower bound of uniform values; default: -2")
    high: float | None = Field(default=None, description="upper bound (exclusive) of uniform values; default: 2")
    exclude: float | Frozen[float] | None = Field(
        default=None, description="points that random values avoid, by a distance of 0.1"
    )
    mean: float | None = Field(default=None, description="mean of normal values; default: 0")
    std: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="standard deviation of normal values; default: 1"
    )
    values: Annotated[Any, BeforeValidator(nested)] = Field(
        default=None, description="explicit values, broadcast to its shape"
    )
    grad: bool | None = Field(
        default=None,
        description="whether to differentiate with respect to it; default: as constructed, which for buffers means no",
    )

    @model_validator(mode="after")
    def _one_distribution(self) -> "Init":
        written = self.model_fields_set
        kinds = [kind for kind in (UNIFORM, NORMAL, EXPLICIT) if written & set(kind)]
        if len(kinds) > 1 or (kinds == [EXPLICIT] and "exclude" in written):
            raise refuse("init mixes distributions", "low and high; or mean and std; or values")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise refuse(f"low = {self.low:g} is not below high = {self.high:g}")
        return self

    @property
    def says_values(self) -> bool:
        """Whether it replaces the values that the constructor gives."""
        return bool(self.model_fields_set - {"grad"})


class Construction(Model):
    """How an operator that is a class of modules is constructed. Its parameters are differentiated, too."""

    args: list[Value] = Field(default_factory=list, description="positional arguments of the constructor")
    kwargs: dict[Keyword, Value] = Field(default_factory=dict, description="keyword arguments of the constructor")
    train: bool = Field(default=True, description="training mode, or evaluation mode; default: training, as in torch")
    init: dict[str, Init] = Field(
        default_factory=dict,
        description="values by name, such as `weight`, `layers.0.bias`, or `*.bias` for parameters only; the first "
        "that matches; default: as constructed",
    )
