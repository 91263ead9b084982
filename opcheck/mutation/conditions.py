"""The table of conditions, such as "an input is not contiguous": under each alone, a gradient might be wrong.

Importing it needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opcheck.spec.claims import WAYS, Way
from opcheck.spec.library import Sample

if TYPE_CHECKING:
    from torch import Tensor

    from opcheck.mutation.call import Call
    from opcheck.samples.derive import Keywords

Predicate = Callable[["Call"], bool]


@dataclass(frozen=True)
class Condition:
    """Something that a call of an operator may be like."""

    name: str
    words: str
    """As in "a gradient wrong ... would pass"."""
    holds: Predicate
    """Tells whether a call meets it; with `checks`, whether a check could."""
    ways: tuple[Way, ...]
    """In which ways samples vary that may meet it, where the written ones do not."""
    checks: tuple[str, ...] = ()
    """The checks each of which meets it by itself, where a sample alone does not."""
    dtype: str = ""
    """The dtype in which these checks run. Empty: any."""
    of_nothing: bool = False
    """Whether a call without a number to compare can meet it: its gradient has no elements, but backward may raise."""

    def met_by(self, call: Call) -> bool:
        """Tell whether a call meets it, so that a gradient that is wrong under it is wrong there."""
        return (self.of_nothing or call.has_numbers) and self.holds(call)


def _of_input(
    name: str, words: str, holds: Callable[[Tensor], bool], ways: tuple[Way, ...], *, of_nothing: bool = False
) -> Condition:
    """Return the condition that any input is like something."""
    return Condition(name, words, lambda call: any(map(holds, call.inputs)), ways, of_nothing=of_nothing)


CONDITIONS = (
    _of_input("a dim of 1", "where a dim is 1", lambda x: 1 in x.shape, ("size", "rank", "broadcast")),
    _of_input("more than 16 elements", "for more than 16 elements", lambda x: x.numel() > 16, ("size", "rank")),
    _of_input("more than 32 elements", "for more than 32 elements", lambda x: x.numel() > 32, ("size", "rank")),
    _of_input("more than 256 elements", "for more than 256 elements", lambda x: x.numel() > 256, ("size", "rank")),
    _of_input(
        "a last dim that is no multiple of 4",
        "where the last dim is no multiple of 4",
        lambda x: x.dim() > 0 and x.shape[-1] % 4 != 0,
        ("size",),
    ),
    _of_input("rank 0", "for rank 0", lambda x: x.dim() == 0, ("rank",)),
    _of_input("rank above 3", "for a rank above 3", lambda x: x.dim() > 3, ("rank",)),
    _of_input(
        "a non-contiguous input", "for a non-contiguous input", lambda x: not x.is_contiguous(), ("layout",)
    ),
    Condition("a broadcast input", "for a broadcast input", lambda call: call.broadcasts, ("broadcast", "rank")),
    _of_input(
        "an element that is 0", "where an element is exactly 0", lambda x: bool((x == 0).any()), ("value",)
    ),
    _of_input(
        "an element beyond 10",
        "where an element exceeds 10 in magnitude",
        lambda x: bool((x.abs() > 10).any()),
        ("value",),
    ),
    Condition("a repeated index", "for a repeated index", lambda call: call.repeats_an_index, ("integer",)),
    _of_input("an empty input", "for an empty input", lambda x: x.numel() == 0, ("empty",), of_nothing=True),
    Condition(
        "an expanded cotangent",
        "for an expanded cotangent",
        lambda call: any(output.numel() > 1 for output in call.outputs),
        (),
        checks=("backward",),
    ),
    Condition(
        "one input alone requires grad",
        "where one input alone requires grad",
        lambda call: sum(x.requires_grad for x in call.inputs) > 1,
        (),
        checks=("needs_input_grad",),
    ),
    Condition(
        "one output alone",
        "where the loss depends on one output alone",
        lambda call: sum(output.requires_grad for output in call.outputs) > 1,
        (),
        checks=("undefined_grad",),
    ),
)  # fmt: skip
"""Those that do not depend on the operator."""

REGISTERED: dict[str, Condition] = {}
"""Those registered in this process, by name."""
OF_NO_DERIVATIVE = {
    "out", "inplace", "generator", "dtype", "layout", "device", "pin_memory", "requires_grad", "memory_format",
    "train", "training",
}  # fmt: skip
"""Keywords that say where results go, not what they are, or which operator it is."""


def register_condition(words: str, name: str = "") -> Callable[[Predicate], Predicate]:
    """Register a function as a condition, for `opcheck mutate`.

    The function gets a `Call`: its `inputs` are the tensors of a floating or complex dtype that are passed, `indices`
    those of whole numbers, `arguments` all arguments by name, `outputs` what comes back. It returns whether a gradient
    that is wrong under the condition would be wrong there. Put it into a module that `[tool.opcheck] plugins` lists.

    Args:
        words: What the condition is, as in "a gradient wrong `for more than 4,096 columns` would pass".
        name: The name of the condition. Default: that of the function, with blanks for underscores.

    Returns:
        A decorator that returns the function.

    Raises:
        ValueError: opcheck itself has a condition of that name.

    Example:
        >>> import opcheck
        >>> @opcheck.register_condition("for more than 100 rows")
        ... def more_than_100_rows(call):
        ...     return any(x.dim() == 2 and len(x) > 100 for x in call.inputs)
    """

    def decorate(holds: Predicate) -> Predicate:
        chosen = name or str(getattr(holds, "__name__", "condition")).replace("_", " ")
        if chosen in {condition.name for condition in CONDITIONS}:
            raise ValueError(f'the condition "{chosen}" is one of opcheck itself; give yours another name')
        REGISTERED[chosen] = Condition(chosen, words, holds, WAYS)
        return holds

    return decorate


def conditions(samples: Iterable[Sample], signature: Keywords, dtypes: Iterable[str]) -> Iterator[Condition]:
    """Yield the conditions of an operator: a fixed list, one for each keyword that is no tensor, and each dtype.

    dtypes: those that its backward pass is claimed for.
    """
    yield from CONDITIONS
    yield from REGISTERED.values()
    passed = {name: value for sample in samples for name, value in sample.kwargs.items()}
    each = [
        _keyword(name)
        for name in dict.fromkeys([*signature.defaults, *passed])
        if name not in OF_NO_DERIVATIVE and (name in signature.defaults or not hasattr(passed[name], "shape"))
    ]
    yield from each
    if len(each) > 1:
        what = "for two keywords other than their defaults at once"
        yield Condition("two keywords set", what, lambda call: sum(one.holds(call) for one in each) > 1, ("keyword",))
    checks = ("backward", "low_precision_grad")
    for dtype in dtypes:
        yield Condition(f"dtype {dtype}", f"in {dtype}", lambda call: True, (), checks, dtype)


def _keyword(name: str) -> Condition:
    return Condition(f"{name} set", f"for {name} other than its default", lambda call: call.sets(name), ("keyword",))
