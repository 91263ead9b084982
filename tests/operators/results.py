"""Operators by what they return: containers of tensors, and what no tensor can be found in. Most slopes are wrong."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import attrs
import torch
from torch import Tensor


class Cube(torch.autograd.Function):
    """x^3, whose gradient is said to be 2 x^2."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return v * 2 * x**2


@dataclass
class Result:
    loss: Tensor
    aux: Any = None


class Pair(NamedTuple):
    loss: Tensor
    steps: int


@attrs.define
class Slotted:
    loss: Tensor


class ModelOutput(OrderedDict):
    """As in transformers: a dict that is a dataclass, too, and leaves out what is None."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


@dataclass
class WithLogits(ModelOutput):
    loss: Tensor
    logits: Any = None


class Opaque:
    """Keeps its tensor where nobody looks."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


def in_dataclass(x: Tensor) -> Result:
    return Result(Cube.apply(x))


def in_nested_dataclass(x: Tensor) -> Result:
    return Result(x * 2, {"parts": [x, Cube.apply(x)]})


def in_dict(x: Tensor) -> dict[str, Tensor]:
    return {"fine": x * 2, "loss": Cube.apply(x)}


def in_mapping(x: Tensor) -> UserDict[str, Tensor]:
    return UserDict({"loss": Cube.apply(x)})


def in_named_tuple(x: Tensor) -> Pair:
    return Pair(Cube.apply(x), 3)


def in_plain_namedtuple(x: Tensor) -> Any:
    return namedtuple("Made", "loss")(Cube.apply(x))


def in_attrs(x: Tensor) -> Slotted:
    return Slotted(Cube.apply(x))


def in_model_output(x: Tensor) -> WithLogits:
    return WithLogits(Cube.apply(x))


def in_tuple(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    return x * 2, [Cube.apply(x)]


def as_generator(x: Tensor) -> Iterator[Tensor]:
    yield Cube.apply(x)


def as_object(x: Tensor) -> Opaque:
    return Opaque(Cube.apply(x))


def as_none(x: Tensor) -> None:
    Cube.apply(x)


def as_number(x: Tensor) -> float:
    return float(Cube.apply(x).detach().abs().sum() * 0 + 3.5)


def as_empty_list(x: Tensor) -> list[Tensor]:
    return []


def as_dataclass_of_none(x: Tensor) -> Result:
    return Result(None)  # type: ignore[arg-type]


def as_set(x: Tensor) -> set[Tensor]:
    return {Cube.apply(x)}


def beside_an_object(x: Tensor) -> tuple[Tensor, dict[str, Opaque]]:
    return x * 2, {"rest": Opaque(Cube.apply(x))}


def without_grad(x: Tensor) -> Tensor:
    """A graph that is cut."""
    return (x.detach() ** 3).round()


class Scale(torch.nn.Module):
    def __init__(self, size: Any = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def second_is_wrong(x: Tensor) -> Result:
    """The alias of `in_dataclass` with another value."""
    return Result(x**3 + 1)


def by_numpy(x: Any) -> Result:
    """A reference for `in_dataclass`."""
    return Result(x**3)


def doubled_rows(nested: Tensor) -> Tensor:
    """Return a nested tensor."""
    return nested * 2


def wrongly_doubled_rows(nested: Tensor) -> Tensor:
    """Return a nested tensor. Its second part has another gradient than its values say."""
    first, second = nested.unbind()
    return torch.nested.as_nested_tensor([first * 2, second * 2 + (second - second.detach())])


def overwritten_rows(nested: Tensor) -> Tensor:
    """Return a nested tensor, and write to that which is given."""
    result = nested * 2
    with torch.no_grad():
        nested.detach().unbind()[1].data.zero_()
    return result


def doubled_jagged(x: Tensor) -> Tensor:
    """Return a jagged tensor."""
    return x * 2


def wrongly_cubed_jagged(x: Tensor) -> Tensor:
    """Return a jagged tensor, the cubes of the numbers, with the wrong gradient of `Cube`."""
    return Cube.apply(x)
