"""Values of operator arguments: tensor recipes, plain TOML values, and tables for values that TOML cannot express."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag
from typing_extensions import TypeAliasType

from opcheck.spec.model import Count, Dotted, Keyword, Model
from opcheck.spec.positions import KeyPath
from opcheck.spec.recipe import DtypeName, Tensor


class ComplexValue(Model):
    """A complex number: `{ complex = [re, im] }`."""

    complex: Annotated[tuple[float, float], Field(strict=False)]


class NoneValue(Model):
    """`None`: `{ none = true }`."""

    none: Literal[True]


class DtypeValue(Model):
    """A dtype passed as an argument: `{ dtype = "int64" }`."""

    dtype: DtypeName


class SliceValue(Model):
    """`slice(a, b, c)`: `{ slice = [a, b, c] }`, with `{ none = true }` for an open end."""

    slice: Annotated[list[int | NoneValue], Field(min_length=1, max_length=3)]


class EllipsisValue(Model):
    """`...`: `{ ellipsis = true }`."""

    ellipsis: Literal[True]


class TupleValue(Model):
    """A tuple, for operators that do not accept a list: `{ tuple = [...] }`."""

    tuple: "list[Value]"


class ObjectValue(Model):
    """An object that specs may name: `{ object = "torch.strided" }`."""

    object: Dotted


class MappingValue(Model):
    """A dict with strings as keys: `{ mapping = { q = { shape = [3] } } }`."""

    mapping: "Table"


class CallValue(Model):
    """What a callable returns: `{ call = "mylib.Config", kwargs = { width = 3 } }`."""

    call: Dotted = Field(description="a function or class that specs may name")
    args: "list[Value]" = Field(default_factory=list, description="its positional arguments")
    kwargs: "Keywords" = Field(default_factory=dict, description="its keyword arguments")


class SameValue(Model):
    """The tensor that is passed as another argument, once more: `{ same = 0 }` or `{ same = "weight" }`."""

    same: Count | Keyword


LITERALS = ("none", "complex", "slice", "ellipsis", "tuple", "object", "mapping", "call", "same")
SCALAR, ARRAY, TENSOR = "<scalar>", "<array>", "<shape>"


def kind_of(value: Any) -> str | None:
    """Return the tag of the union member that validates a TOML value, or None.

    The tag of a table is its first key. Brackets distinguish tags from keys.
    """
    if isinstance(value, dict):
        for key in LITERALS:
            if key in value and "shape" not in value:
                return f"<{key}>"
        return "<dtype>" if set(value) == {"dtype"} else TENSOR
    if isinstance(value, (list, tuple)):
        return ARRAY
    if isinstance(value, (bool, int, float, str)):
        return SCALAR
    if isinstance(value, Model):
        return f"<{next(iter(type(value).model_fields))}>"
    return None


Scalar = bool | int | float | str
Value = TypeAliasType(
    "Value",
    Annotated[
        Annotated[Scalar, Tag(SCALAR)]
        | Annotated["list[Value]", Tag(ARRAY)]
        | Annotated[Tensor, Tag(TENSOR)]
        | Annotated[NoneValue, Tag("<none>")]
        | Annotated[ComplexValue, Tag("<complex>")]
        | Annotated[DtypeValue, Tag("<dtype>")]
        | Annotated[SliceValue, Tag("<slice>")]
        | Annotated[EllipsisValue, Tag("<ellipsis>")]
        | Annotated[TupleValue, Tag("<tuple>")]
        | Annotated[ObjectValue, Tag("<object>")]
        | Annotated[MappingValue, Tag("<mapping>")]
        | Annotated[CallValue, Tag("<call>")]
        | Annotated[SameValue, Tag("<same>")],
        Discriminator(kind_of),
    ],
)


UNSET = object()
"""The value that `mapped` removes from tables and arrays."""

CONTAINERS = (TupleValue, MappingValue, CallValue)
"""The tables that hold further values."""
Table = dict[str, Value]
Keywords = dict[Keyword, Value]


def parts(value: Any, place: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the innermost parts of a value with their paths. A call is yielded too, before its arguments."""
    if isinstance(value, CallValue):
        yield place, value
    if isinstance(value, CONTAINERS):
        value = _inside(value)
    if isinstance(value, dict):
        for key, item in value.items():
            yield from parts(item, (*place, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from parts(item, (*place, index))
    else:
        yield place, value


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with a function applied to its innermost parts. Parts that become UNSET are removed."""
    if isinstance(value, dict):
        items = {key: mapped(item, change) for key, item in value.items()}
        return {key: item for key, item in items.items() if item is not UNSET}
    if isinstance(value, (list, tuple)):
        return type(value)(item for item in (mapped(one, change) for one in value) if item is not UNSET)
    if isinstance(value, CONTAINERS):
        return value.model_copy(update=mapped(_inside(value), change))
    return change(value)


def _inside(value: Model) -> dict[str, Any]:
    return {name: inside for name, inside in value if name != "call"}
