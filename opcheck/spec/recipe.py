"""The recipe of a tensor: its shape or values, and optionally its dtype, distribution, layout and memory."""

import json
from math import ceil, prod
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from opcheck.spec import dtypes
from opcheck.spec.model import Count, Finite, Frozen, Model, Positive, named, refuse
from opcheck.text import counted

Structure = Literal[
    "hermitian", "positive_definite", "triangular", "upper_triangular", "orthogonal", "distinct_singular_values",
    "well_conditioned", "permutation", "one_hot", "distinct", "simplex",
]  # fmt: skip
Layout = Literal[
    "strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "mkldnn", "jagged"
]  # fmt: skip
Memory = Literal["contiguous", "noncontiguous", "transposed", "channels_last", "expanded", "offset"]
Through = Literal[
    "symmetrize", "tril", "triu", "positive_diagonal", "positive_definite", "low_rank", "log_simplex", "simplex",
    "orthogonal", "unit_norm",
]  # fmt: skip
MARGIN = 0.1
"""The minimum distance of values from excluded points, far above the step of any finite difference."""
SQUARE_STRUCTURES = ("hermitian", "positive_definite")
SQUARE_THROUGH = ("symmetrize", "orthogonal", "positive_definite")
ROUNDED = ("orthogonal", "distinct_singular_values", "well_conditioned", "positive_definite", "simplex")
"""The structures whose numbers integers cannot represent."""
OF_MATRICES = (
    "triangular", "upper_triangular", "orthogonal", "distinct_singular_values", "well_conditioned",
    "tril", "triu", "positive_diagonal", "low_rank",
)  # fmt: skip
"""The structures and maps of matrices of any shape."""
OF_POSITIONS = ("permutation", "one_hot")
"""The structures that draw positions rather than numbers."""
BLOCKED = ("sparse_bsr", "sparse_bsc")
SPARSE_LAYOUTS = tuple(name for name in get_args(Layout) if name.startswith("sparse"))
LAYOUTS_WITH = {
    "blocksize": BLOCKED,
    "coalesced": ("sparse_coo",),
    **dict.fromkeys(("nnz", "dense_dim"), SPARSE_LAYOUTS),
    **dict.fromkeys(("memory", "conj", "neg"), ("strided", "jagged")),
}
"""The layouts that a key of a tensor applies to."""


def _known_dtype(name: str) -> str:
    choices = (*dtypes.known(), *dtypes.FOLLOWING)
    if name not in choices:
        raise refuse(
            f'unknown dtype "{name}"', 'a dtype, "real", "complex" or "integer"', dtypes.nearest_to(name, choices)
        )
    return name


DtypeName = Annotated[str, AfterValidator(_known_dtype), named("dtype or precision")]


def nested(value: Any, *, at: tuple[int | str, ...] = ()) -> Any:
    """Return nested arrays of numbers as tuples, and complex tables as complex numbers. Ragged arrays are rejected.

    at: the keys and indices that lead to the value.
    """
    if isinstance(value, (bool, int, float, complex)):
        return value
    if isinstance(value, (list, tuple)):
        rows = tuple(nested(item, at=(*at, index)) for index, item in enumerate(value))
        if len({_sizes(row) for row in rows}) > 1:
            raise refuse("the rows of values differ in length", "a rectangular array", at=at)
        return rows
    if isinstance(value, dict) and set(value) == {"complex"}:
        listed = value["complex"]
        if isinstance(listed, (list, tuple)) and [type(part) in (int, float) for part in listed] == [True, True]:
            return complex(*listed)
    what = "a table" if isinstance(value, dict) else json.dumps(value) if isinstance(value, str) else str(value)
    expected = "numbers, booleans, { complex = [re, im] } or arrays of them"
    raise refuse(f"{what} is not a valid tensor value", expected, at=at)


def _sizes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        return ()
    return (len(value), *(_sizes(value[0]) if value else ()))


def _numbers(values: Any) -> list[Any]:
    """Return the numbers in nested tuples."""
    if isinstance(values, tuple):
        return [number for row in values for number in _numbers(row)]
    return [] if values is None else [values]


def _are_booleans(values: Any) -> bool:
    return bool(values) and all(map(_are_booleans, values)) if isinstance(values, tuple) else isinstance(values, bool)


def points_of(exclude: float | tuple[float, ...] | None) -> tuple[float, ...]:
    """Return the points that the key `exclude` names: one, several or none."""
    return exclude if isinstance(exclude, tuple) else () if exclude is None else (exclude,)


def check_bounds(low: float | None, high: float | None, exclude: float | tuple[float, ...] | None) -> None:
    """Raise the mistake if there is no number between two bounds, or none that is far enough from the excluded points.

    If a bound is missing, there is always such a number.
    """
    if low is None or high is None:
        return
    if low >= high:
        raise refuse(f"low = {low:g} is not below high = {high:g}")
    first = low  # the lowest number that may be far enough from the points so far
    for point in sorted(points_of(exclude)):
        if first < point - MARGIN:
            return
        first = max(first, point + MARGIN)
    if first >= high:
        what = f"no number between low = {low:g} and high = {high:g} has a distance of {MARGIN} from what exclude lists"
        raise refuse(what, "wider bounds, or fewer points", at=("exclude",))


class Tensor(Model):
    """A recipe for a tensor: either `shape` or `values`, and optional keys such as its dtype, bounds and layout."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": ["shape"]}, {"required": ["values"]}],
            "not": {"required": ["shape", "values"]},
        }
    )

    shape: Frozen[Count] | None = Field(
        default=None, max_length=64, description="sizes; `[]` means rank 0, a 0 makes the tensor empty"
    )
    values: Annotated[Any, BeforeValidator(nested)] = Field(
        default=None, description="explicit values, nested as in a list, instead of random ones"
    )
    dtype: DtypeName | None = Field(
        default=None,
        description='a dtype; "real" or "complex": one with the precision of the case; "integer": that of the case if '
        "it is an integer dtype, else int64, and low = 0; default: that of the case",
    )
    grad: bool | None = Field(
        default=None,
        description="whether to differentiate with respect to it; default: true, unless `dtype` names a dtype",
    )
    low: Finite | None = Field(
        default=None,
        description="lower bound of random values; default: -2, or -10 for integers; "
        "0 where `dtype` names an integer dtype and `high` is positive",
    )
    high: Finite | None = Field(default=None, description="upper bound (exclusive); default: 2, or 10 for integers")
    mean: Finite | None = Field(default=None, description="mean of normal values instead of uniform ones; default: 0")
    std: Annotated[Finite, Field(ge=0)] | None = Field(
        default=None,
        description="standard deviation of normal values; 0: every element equals the mean; default: 1; values of "
        "integer dtypes are rounded",
    )
    exclude: Finite | Frozen[Finite] | None = Field(
        default=None, description="points to avoid, by a distance of 0.1: kinks, poles, branch points"
    )
    contains: Frozen[float] | None = Field(
        default=None, min_length=1, description="values of the first elements; the others stay random"
    )
    structure: Structure | None = Field(default=None, description="the kind of matrix, vector or index")
    layout: Layout = Field(default="strided", description="the layout of the leaf")
    nnz: Count | None = Field(
        default=None, description="number of specified elements (blocks) of a sparse layout; default: about half"
    )
    blocksize: Annotated[tuple[Positive, Positive], Field(strict=False)] | None = Field(
        default=None, description="block size of `sparse_bsr` and `sparse_bsc`; default: [1, 1]"
    )
    dense_dim: Count | None = Field(default=None, description="number of trailing dense dimensions of a sparse layout")
    coalesced: bool = Field(
        default=True, description="false: half of the specified elements of `sparse_coo` are sums of two values"
    )
    memory: Memory = Field(default="contiguous", description="how the elements are arranged in memory")
    conj: bool = Field(default=False, description="pass a lazily conjugated view (complex dtypes)")
    neg: bool = Field(
        default=False, description="pass a lazily negated view, real and non-contiguous, as x.conj().imag is"
    )
    through: Through | None = Field(
        default=None,
        description="a differentiable map applied inside the tested function so that perturbed inputs stay legal",
    )

    @model_validator(mode="after")
    def _shape_or_values(self) -> "Tensor":
        if (self.shape is None) == (self.values is None):
            raise refuse("a tensor needs either shape or values", "exactly one of the two")
        check_bounds(self.low, self.high, self.exclude)
        if self.grad and self.dtype not in (None, "real") and not dtypes.is_differentiable(self.dtype):
            raise refuse(f"a tensor of {self.dtype} has no derivative", "a floating or complex dtype", at=("grad",))
        self._refuse_contradictions()
        self._refuse_contradictions_of_dtype()
        self._refuse_contradictions_of_layout()
        return self

    def _refuse_contradictions(self) -> None:
        """Raise the mistake for a combination of keys that is not allowed, other than about layout and memory."""
        written, rank = self.model_fields_set, len(self.sizes)
        square: list[str | None] = [self.structure] if self.structure in SQUARE_STRUCTURES else []
        square += [self.through] if self.through in SQUARE_THROUGH else []
        if square and (rank < 2 or self.sizes[-1] != self.sizes[-2]):
            raise refuse(
                f"{square[0]} needs square matrices, not the shape {list(self.sizes)}", "two equal last dimensions"
            )
        for name in (self.structure, self.through):
            least = 2 if name in OF_MATRICES else int(name == "one_hot")
            if rank < least:
                raise refuse(f"{name} needs at least {counted(least, 'dimension')}, not {rank}", "a larger shape")
        for key in ("low", "high", "mean", "std", "exclude") if self.structure in OF_POSITIONS else ():
            if key in written:
                raise refuse(f"{key} does not apply to the structure {self.structure}", f"no {key}", at=(key,))
        if self.normal and written & {"low", "high"}:
            raise refuse("low and high do not go with mean and std", "either bounds, or mean and std")
        if "contains" in written and self.dtype == "bool":
            raise refuse("contains does not apply to masks", "explicit values")
        if "contains" in written and self.structure is not None:
            raise refuse(f"contains would spoil the structure {self.structure}", "either contains or structure")
        if self.contains is not None and len(self.contains) > self.numel:
            raise refuse(
                f"{len(self.contains)} numbers do not fit into a tensor of {self.numel} elements", "a larger shape"
            )
        if "values" in written:
            if self.dtype in (None, *dtypes.FOLLOWING) and _are_booleans(self.values):
                what = "booleans do not fit the dtype of the case"
                raise refuse(what, 'dtype = "bool" beside them, or numbers', at=("values",))
            for key in ("low", "high", "exclude", "contains", "mean", "std"):
                if key in written:
                    raise refuse(f"{key} does not apply to explicit values", f"either values or {key}")
            if self.structure in ("distinct", "permutation", "one_hot"):
                raise refuse(
                    f"the structure {self.structure} would replace the explicit values", "either values or structure"
                )

    def _refuse_contradictions_of_dtype(self) -> None:
        """Raise the mistake for numbers that are not of `dtype`, if it names a dtype."""
        name = self.dtype
        numbers = [*_numbers(self.values), *(self.contains or ())]
        if name is None or name.startswith("complex"):
            return
        where = ("values",) if self.values is not None else ("contains",)
        if any(isinstance(number, complex) for number in numbers):
            raise refuse(f"complex numbers do not fit the dtype {name}", "real numbers, or a complex dtype", at=where)
        least, most = dtypes.limits_of(name)
        if least is None or most is None:
            return
        for number in numbers:
            if number != number // 1 or not least <= number <= most:
                raise refuse(f"{number:g} is no number of {name}", f"whole numbers from {least} to {most}", at=where)
        if self.structure in ROUNDED:
            raise refuse(f"the structure {self.structure} does not fit integers", "a floating or complex dtype")
        for key in ("low", "high", "mean", "std", "exclude") if name == "bool" else ():
            if key in self.model_fields_set:
                raise refuse(f"{key} does not apply to masks", f"explicit values, or no {key}", at=(key,))
        first = least if self.low is None else max(least, ceil(self.low))
        end = most + 1 if self.high is None else min(most + 1, ceil(self.high))
        points = set(points_of(self.exclude))
        room = end - first - sum(first <= point < end for point in points)
        needed = self.numel if self.structure == "distinct" and None not in (self.low, self.high) else 1
        if room < needed and self.numel:
            what = f"there are {max(room, 0)} numbers of {name} between the bounds, without those that exclude lists"
            raise refuse(what, f"room for at least {needed}", at=("high",) if self.high is not None else ("low",))

    def _refuse_contradictions_of_layout(self) -> None:
        """Raise the mistake for a combination of keys about layout and memory that is not allowed."""
        rank, layout = len(self.sizes), self.layout
        for key, layouts in LAYOUTS_WITH.items():
            if key in self.model_fields_set and layout not in layouts:
                expected = "a sparse layout" if layouts == SPARSE_LAYOUTS else f"the layout {' or '.join(layouts)}"
                raise refuse(f"{key} does not apply to the layout {layout}", expected)
        if self.memory == "channels_last" and rank not in (4, 5):
            raise refuse(
                f"channels_last needs 4 or 5 dimensions, not {rank}", "such a shape, or another memory", at=("memory",)
            )
        inner = self.dense_dim or 0
        least = min(inner, 1) if layout in ("strided", "mkldnn", "sparse_coo") else 2
        if rank - inner < least:
            dims = counted(least, "sparse dimension" if inner else "dimension")
            raise refuse(f"the layout {layout} needs at least {dims}, not {max(rank - inner, 0)}", "a larger shape")
        block, matrix = self.blocksize or (1, 1), self.sizes[: rank - inner][-2:]
        if any(size % side for size, side in zip(matrix, block, strict=False)):
            raise refuse(
                f"blocks of {list(block)} do not tile a matrix of shape {list(matrix)}",
                "sizes that they divide",
                at=("blocksize",),
            )
        if (self.nnz or 0) > self.places:
            what = f"nnz = {self.nnz} is too many: there are {counted(self.places, 'place')}"
            raise refuse(what, f"at most {self.places}", at=("nnz",))

    @property
    def normal(self) -> tuple[float, float] | None:
        """The mean and the standard deviation of normally distributed values; None for other distributions."""
        if self.mean is None and self.std is None:
            return None
        return self.mean or 0.0, 1.0 if self.std is None else self.std

    @property
    def places(self) -> int:
        """The largest `nnz`: the number of elements, or of blocks, of a sparse tensor, or of a matrix of a batch."""
        sizes = self.sizes[: len(self.sizes) - (self.dense_dim or 0)]
        return prod(sizes if self.layout == "sparse_coo" else sizes[-2:]) // prod(self.blocksize or (1, 1))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape, given or implied by `values`."""
        if self.shape is not None:
            return self.shape
        return _sizes(self.values)

    @property
    def numel(self) -> int:
        """The number of elements."""
        return prod(self.sizes)
