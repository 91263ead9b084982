"""The table of conditions, such as "an input is not contiguous", under each of which alone a gradient might be wrong.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING

from opcheck.planning.kinds import is_redefined
from opcheck.spec.claims import WAYS, Way
from opcheck.spec.library import Sample
from opcheck.text import one_line

if TYPE_CHECKING:
    from torch import Tensor

    from opcheck.mutation.call import Call
    from opcheck.samples.arguments import Signature

Predicate = Callable[["Call"], bool]


@dataclass(frozen=True)
class Condition:
    """A property that a call of an operator may have."""

    name: str
    holds: Predicate
    """Returns whether a call meets the condition; with `checks`, whether they could create it for this call."""
    ways: tuple[Way, ...] = ()
    """The ways in which to vary samples to meet the condition, if no written sample does."""
    words: str = ""
    """The condition as text, to insert into "a gradient wrong ... would pass". Default: "for" and the name."""
    checks: tuple[str, ...] = ()
    """The checks that create the condition, such as an expanded cotangent; one is enough. Empty: samples meet it."""
    dtype: str = ""
    """The dtype in which `checks` must run. Empty: any."""
    of_nothing: bool = False
    """Whether a call without elements to compare can meet it: the gradient is empty, but backward may raise."""

    def met_by(self, call: Call) -> bool:
        """Return whether a call meets the condition: whether a gradient wrong under it would be wrong in this call.

        Raises RuntimeError in place of an exception of `holds`.
        """
        try:
            return (self.of_nothing or call.has_numbers) and bool(self.holds(call))
        except Exception as error:
            raise RuntimeError(f'the condition "{self.name}" raised {one_line(error)}') from error


def _any_input(holds: Callable[[Tensor], bool]) -> Predicate:
    """Return the predicate on calls that a predicate on tensors holds for any of the inputs."""
    return lambda call: any(map(holds, call.inputs))


def _larger_than(size: int) -> Condition:
    return Condition(f"more than {size} elements", _any_input(lambda x: x.numel() > size), ("size", "rank"))


CONDITIONS = (
    Condition("a dim of 1", _any_input(lambda x: 1 in x.shape), ("size", "rank", "broadcast")),
    *map(_larger_than, (16, 32, 256)),
    Condition(
        "a last dim that is not a multiple of 4", _any_input(lambda x: x.dim() > 0 and x.shape[-1] % 4 != 0), ("size",)
    ),
    Condition("rank 0", _any_input(lambda x: x.dim() == 0), ("rank",)),
    Condition("rank above 3", _any_input(lambda x: x.dim() > 3), ("rank",)),
    Condition("a non-contiguous input", _any_input(lambda x: not x.is_contiguous()), ("layout",)),
    Condition("a broadcast input", lambda call: call.broadcasts, ("broadcast", "rank")),
    Condition("an element that is 0", _any_input(lambda x: bool((x == 0).any())), ("value",)),
    Condition("an element beyond 10", _any_input(lambda x: bool((x.abs() > 10).any())), ("value",)),
    Condition(
        "a repeated index",
        lambda call: any(len({*x.flatten().tolist()}) < x.numel() for x in call.indices),
        ("integer",),
    ),
    Condition("an empty input", _any_input(lambda x: x.numel() == 0), ("empty",), of_nothing=True),
    Condition(
        "an expanded cotangent",
        lambda call: any(output.numel() > 1 for output in call.outputs),
        checks=("backward",),
    ),
    Condition(
        "one input alone requires grad",
        lambda call: sum(x.requires_grad for x in call.inputs) > 1,
        words="where one input alone requires grad",
        checks=("needs_input_grad",),
    ),
    Condition(
        "one output alone",
        lambda call: sum(output.requires_grad for output in call.outputs) > 1,
        words="where the loss depends on one output alone",
        checks=("undefined_grad",),
    ),
)
"""The conditions that do not depend on the operator."""

REGISTERED: dict[str, Condition] = {}
"""The conditions registered in this process, by name."""
OF_NO_DERIVATIVE = {
    "out", "inplace", "generator", "dtype", "layout", "device", "pin_memory", "requires_grad", "memory_format",
    "train", "training",
}  # fmt: skip
"""Keywords without a condition: they set where and how results are stored, or select another operator."""


def register_condition(words: str, name: str = "") -> Callable[[Predicate], Predicate]:
    """Register a function as a condition, for `opcheck mutate`.

    The function takes a `Call`, and returns whether a gradient that is wrong under the condition would be wrong in this
    call. `inputs` are the tensors of floating or complex dtype among the arguments, `indices` the tensors of integers,
    `arguments` all arguments by name, `outputs` the outputs of floating or complex dtype. Define the function in a
    module that `[tool.opcheck] plugins` lists.

    Args:
        words: The condition as text, as in "a gradient wrong `for more than 4,096 columns` would pass".
        name: The name of the condition. Default: the name of the function, with underscores replaced by spaces.

    Returns:
        A decorator that returns the function.

    Raises:
        TypeError: `words` is not a string.
        ValueError: There is another condition of that name.

    Example:
        >>> import opcheck
        >>> @opcheck.register_condition("for more than 100 rows")
        ... def more_than_100_rows(call):
        ...     return any(x.dim() == 2 and len(x) > 100 for x in call.inputs)
    """

    if not isinstance(words, str):
        raise TypeError(f'register_condition expects words, as in @register_condition("for long rows"), not {words!r}')

    def decorate(holds: Predicate) -> Predicate:
        chosen = name or str(getattr(holds, "__name__", "condition")).replace("_", " ")
        if chosen in {condition.name for condition in CONDITIONS}:
            raise ValueError(f'the condition "{chosen}" is one of opcheck itself; give yours another name')
        known = REGISTERED.get(chosen)
        if known is not None and not is_redefined(known.holds, holds):
            raise ValueError(f'the condition "{chosen}" is registered twice; give one of them another name')
        REGISTERED[chosen] = Condition(chosen, holds, WAYS, words)
        return holds

    return decorate


def conditions(samples: Iterable[Sample], signature: Signature, dtypes: Iterable[str]) -> Iterator[Condition]:
    """Yield the conditions of an operator: the fixed and the registered ones, and those for its keywords and dtypes.

    There is a condition for each keyword that is not a tensor, for two keywords at once, and for each dtype.

    dtypes: the dtypes for which the spec claims a backward pass.
    """
    yield from CONDITIONS
    yield from REGISTERED.values()
    passed = {name: value for sample in samples for name, value in sample.kwargs.items()}
    each = [
        Condition(f"{name} set", methodcaller("sets", name), ("keyword",), f"for {name} other than its default")
        for name in dict.fromkeys([*signature.defaults, *passed])
        if name not in OF_NO_DERIVATIVE and (name in signature.defaults or not hasattr(passed[name], "shape"))
    ]
    yield from each
    if len(each) > 1:
        what = "for two keywords other than their defaults at once"
        yield Condition("two keywords set", lambda call: sum(one.holds(call) for one in each) > 1, ("keyword",), what)
    checks = ("backward", "low_precision_grad")
    for dtype in dtypes:
        yield Condition(f"dtype {dtype}", lambda call: True, words=f"in {dtype}", checks=checks, dtype=dtype)
