"""The function under test: an operator with a sample, as a function of the leaves only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from opcheck.devices.device import CPU, Device
from opcheck.samples.arguments import argument_label, is_among
from opcheck.samples.inputs import Inputs, mapped, parts
from opcheck.samples.layouts import writable
from opcheck.samples.results import chosen, named, names_among, select
from opcheck.samples.surrogate import Held, expect_alike
from opcheck.spec.claims import Outputs
from opcheck.spec.positions import KeyPath


@dataclass(frozen=True, repr=False)  # torch.func computes the repr for each call, and that of tensors is slow
class TestedFunction:
    """The function to differentiate, from leaves to output tensors.

    A call puts the leaves (through their maps) into the arguments of the sample, calls the operator, and returns the
    outputs to test as a tuple. Arguments that the operator changes are copied. Random operators start from one seed.
    """

    __test__ = False  # keeps pytest from collecting the class, whose name begins with Test

    operator: Callable[..., Any]
    inputs: Inputs
    outputs: Outputs = field(default_factory=Outputs)
    writes: Mapping[str, KeyPath] = field(default_factory=dict)
    """The arguments that the operator changes, by name: they are part of its result. If the operator is an ordinary
    in-place operator, which returns its first argument or None, the name is empty."""
    on_copies: bool = False
    """Whether each call gets copies of all tensors: the operator may write to them. They are not part of its result."""
    seed: int | None = None
    masked: bool = False
    device: Device = CPU
    """The device whose random generator is seeded, besides those of the host."""
    surrogate_operator: Callable[..., Any] | None = None
    """The surrogate that the spec names: the gradient should be its derivative."""
    constant: bool = False
    """Whether the gradient should be zero, although the values depend on the inputs."""

    def __call__(self, *leaves: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs to test, for leaves with the shapes and dtypes of the sample."""
        return self.tested(self.called(*self.inputs.fill(leaves or None)))

    def tested(self, result: Any) -> tuple[Tensor, ...]:
        """Return the outputs to test from a result of the operator. Raises Untestable if there are none."""
        return select(result, self.outputs, self.masked)

    def names(self, result: Any) -> tuple[str, ...]:
        """Return the names of the outputs to test; empty if they only have positions."""
        return names_among(chosen(tuple(path for path, _ in named(result)), self.outputs))

    def result(self, *leaves: Tensor) -> Any:
        """Return the result of the operator, with the arguments that it changes."""
        return self.called(*self.inputs.fill(leaves or None))

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of the operator for arguments, as `Inputs.fill` returns them.

        Raises TypeError if the operator returns NotImplemented, as methods such as `__add__` do to reject arguments.
        """
        if self.writes or self.on_copies:
            args, kwargs = self.with_own(args, kwargs)
        self.reseed()
        returned = self.operator(*args, **kwargs)
        if returned is NotImplemented:
            raise TypeError("it returned NotImplemented")
        if not self.writes:
            return returned
        written = self.written_among(args, kwargs)
        if "" in written:
            return written[""] if returned is None else returned
        return written if returned is None else {"returned": returned, **written}

    def with_own(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments for a call, with copies of the tensors that the operator may change."""
        changed = [args, kwargs] if self.on_copies else [*self.written_among(args, kwargs).values()]
        return with_copies(args, kwargs, writable, changed)

    def written_among(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that the operator changes, by name."""
        passed: dict[int | str, Any] = {"args": args, "kwargs": kwargs}
        return {name: passed[where][at] for name, (where, at) in self.writes.items()}

    @property
    def is_random(self) -> bool:
        """Whether the operator draws random numbers: the same ones in each call, but in the order of memory."""
        return self.seed is not None

    @property
    def written(self) -> frozenset[int]:
        """The indices of the leaves that the operator writes to."""
        paths = self.writes.values()
        return frozenset(slot.index for slot in self.inputs.slots if slot.path[:2] in paths)

    @cached_property
    def surrogate(self) -> Callable[..., tuple[Tensor, ...]] | None:
        """The function to compute finite differences of, in place of this one; None if there is none.

        Tensors that the surrogate detaches are constants, with their values at the sample. Raises Unlike if its outputs
        differ from those of the operator in number, shapes or dtypes. Passes on its exceptions.
        """
        if self.constant:
            with torch.no_grad():
                values = self(*map(torch.clone, self.inputs.leaves))
            return lambda *_: values
        if self.surrogate_operator is None:
            return None
        writes = self.writes if self.surrogate_operator is self.operator else {}
        other = replace(self, operator=Held(self.surrogate_operator), surrogate_operator=None, writes=writes)
        with torch.no_grad():
            own, others = (function(*map(torch.clone, self.inputs.leaves)) for function in (self, other))
        expect_alike(own, others)
        return other

    def reseed(self, elsewhere: int = 0) -> None:
        """Seed the random generators, if the operator is random. elsewhere: number to add to the seed."""
        if self.seed is not None:
            self.device.seed(self.seed + elsewhere)
            with suppress(NotImplementedError):  # by a device whose torch backend cannot draw numbers
                torch.rand((), device=self.device.string)  # an operator that sets the same seed gets other numbers


def paths_written(
    inplace: bool | Sequence[str | int], args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str]
) -> dict[str, KeyPath]:
    """Return the arguments that an operator changes, as in `TestedFunction.writes`.

    inplace: the key of the spec. names: the names of the positional parameters, as far as they are known.
    """
    if isinstance(inplace, bool):
        return {"": ("args", 0)} if inplace and args else {}
    paths: list[KeyPath] = [*(("args", at) for at in range(len(args))), *(("kwargs", name) for name in kwargs)]
    return {argument_label(path, names): path for path in paths if is_among(path, inplace, names)}


def with_copies(
    args: tuple[Any, ...], kwargs: dict[str, Any], copy: Callable[[Tensor], Tensor], among: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with the tensors among some of them copied once, wherever they occur."""
    copies = {id(part): copy(part) for part in parts(among) if isinstance(part, Tensor)}
    args, kwargs = mapped(lambda part: copies.get(id(part), part), (args, kwargs))
    return args, kwargs
