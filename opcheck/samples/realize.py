"""Makes the arguments of a sample: tensors, the objects and modules that hold them, and all other values."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import inf
from typing import Any

import torch
from torch.nn import Module

from opcheck.samples.captured import module_call
from opcheck.samples.inputs import Inputs, Made, Slot, built, mapped, parts, unchanged
from opcheck.samples.leaves import Given, Offsets, Through, leaf_of, torch_dtype
from opcheck.samples.modules import ModuleCall, ModuleRecipe, initial, initialize, uninitialized
from opcheck.samples.resolve import resolve
from opcheck.spec import dtypes
from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction
from opcheck.spec.recipe import Tensor
from opcheck.spec.values import (
    CallValue,
    ComplexValue,
    DtypeValue,
    EllipsisValue,
    MappingValue,
    NoneValue,
    ObjectValue,
    SameValue,
    SliceValue,
    TupleValue,
)

Path = tuple[int | str, ...]
Wrt = Callable[[Path], bool]


def realize(
    sample: Sample,
    dtype: str,
    device: str,
    seed: str,
    *,
    modules: Sequence[str] = ("torch",),
    wrt: Wrt | None = None,
    module: ModuleRecipe | None = None,
    finer: str | None = None,
) -> Inputs:
    """Return the inputs of a sample.

    dtype: name of the dtype of the case. Tensors have it unless their recipe says otherwise.
    device: torch's device string. Numbers are drawn on the CPU and then moved, so they are the same on every device.
    seed: any text. The same text gives the same numbers. The state of the global generators is preserved.
    wrt: whether to differentiate with respect to the argument at a path. Default: every one that the recipes allow.
    module: the module, if the operator is one. Its parameters and buffers become keyword arguments, see `ModuleCall`.
    finer: a finer dtype that the same numbers are converted to, as if it were that of the case.

    Raises ValueError if a recipe cannot be realized, and Unresolved for an object that it may not name.
    """
    with _seeded(seed):
        maker = _Maker(sample, finer or dtype, dtype, device, modules, wrt or (lambda path: True))
        args, kwargs = maker.all_arguments()
        if module is not None:
            kwargs |= maker.state(module, kwargs)
        cotangents = maker.cotangents()
    return Inputs(tuple(args), kwargs, tuple(maker.leaves), tuple(maker.slots), cotangents)


def realize_module(
    recipe: ModuleRecipe, dtype: str, device: str, seed: str, modules: Sequence[str], sample: Sample | None = None
) -> ModuleCall:
    """Return a module as an operator. Its parameters and buffers are to be passed to it.

    sample: what a lazy module gets its shapes from. Default: it stays lazy.

    Passes on the exceptions of its constructor.
    """
    with _seeded(seed):
        return module_call(construct(recipe, dtype, modules, sample).to(device))


def construct(recipe: ModuleRecipe, dtype: str, modules: Sequence[str], sample: Sample | None = None) -> Module:
    """Return a new module in a dtype, on the CPU. Dtypes that modules cannot be converted to leave it as constructed.

    sample: what a lazy module is called with once, in the dtype that it is constructed in. Default: it stays lazy.

    Passes on the exceptions of its constructor. Raises ValueError if that call does not initialize a lazy module.
    """
    args, kwargs = constants(recipe.spec, dtype, modules)
    module = recipe.make(*args, **kwargs).train(recipe.spec.train)
    lazy = uninitialized(module)
    if lazy and sample is not None:
        own = str(next(iter(lazy.values())).dtype).removeprefix("torch.")
        initialize(module, *constants(sample, own, modules))
    if dtypes.is_differentiable(dtype):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Complex modules are a new feature")  # the spec says that they are meant
            module.to(torch_dtype(None, dtype))
    return module


def parameter_elements(recipe: ModuleRecipe, dtype: str, modules: Sequence[str]) -> float:
    """Return how many elements the parameters of a module have, without memory for them.

    Those of a lazy module may be any number. It is 0 if the constructor does not work without memory.
    """
    args, kwargs = constants(recipe.spec, dtype, modules)
    try:
        with torch.device("meta"):
            module = recipe.make(*args, **kwargs)
    except Exception:  # a constructor may read what it has made, or refuse its arguments
        return 0
    return inf if uninitialized(module) else sum(own.numel() for own in module.parameters())


def constants(of: Sample | Construction, dtype: str, modules: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments without leaves, on the CPU."""
    args, kwargs = _Maker(of, dtype, dtype, "cpu", modules, lambda path: False).all_arguments()
    return built(args), built(kwargs)


@contextmanager
def _seeded(text: str) -> Iterator[None]:
    """Seed torch's global generator by a text, with the CPU as default device, and restore its state at the end."""
    state = torch.random.get_rng_state()
    try:
        torch.default_generator.manual_seed(zlib.crc32(text.encode()))
        # A context for the default device slows down every call of torch.
        with nullcontext() if torch.empty(0).is_cpu else torch.device("cpu"):
            yield
    finally:
        torch.random.set_rng_state(state)


@dataclass
class _Maker:
    """Turns the values of one sample, or of the construction of a module, into arguments. It collects the leaves."""

    of: Sample | Construction
    case: str
    """The name of the dtype of the case."""
    drawn: str
    """That of the dtype in which numbers are drawn, before they are converted."""
    device: str
    modules: Sequence[str]
    wrt: Wrt
    arguments: dict[int | str, Any] = field(default_factory=dict)
    leaves: list[torch.Tensor] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    offsets: Offsets = field(default_factory=dict)

    def all_arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return all arguments."""
        args = [self.argument(index) for index in range(len(self.of.args))]
        return args, {name: self.argument(name) for name in self.of.kwargs}

    def argument(self, key: int | str) -> Any:
        """Return the argument at a position or with a name, the same object each time."""
        if key not in self.arguments:
            place = "args" if isinstance(key, int) else "kwargs"
            self.arguments[key] = self.value(getattr(self.of, place)[key], (place, key))
        return self.arguments[key]

    def value(self, item: Any, path: Path) -> Any:
        """Return the Python object for one value."""
        if isinstance(item, Tensor):
            follows = item.dtype in (None, "real", "complex") and dtypes.is_differentiable(self.case)
            return self.placed(*self.leaf(item), path, grad=follows if item.grad is None else item.grad)
        if isinstance(item, Given):
            leaf, through = item.leaf(item.dtype_in(self.drawn))
            return self.placed(leaf.to(item.dtype_in(self.case)), through, path, grad=item.grad)
        if isinstance(item, TupleValue):
            return tuple(self.value(item.tuple, path))
        if isinstance(item, list):
            return [self.value(part, (*path, index)) for index, part in enumerate(item)]
        if isinstance(item, MappingValue):
            return {key: self.value(part, (*path, key)) for key, part in item.mapping.items()}
        if isinstance(item, CallValue):
            return self.made(item, path)
        return self.same(item.same) if isinstance(item, SameValue) else self.literal(item)

    def literal(self, item: Any) -> Any:
        """Return the Python object for a value without tensors."""
        if isinstance(item, NoneValue):
            return None
        if isinstance(item, ComplexValue):
            return complex(*item.complex)
        if isinstance(item, DtypeValue):
            return torch_dtype(item.dtype, self.case)
        if isinstance(item, SliceValue):
            return slice(*map(self.literal, item.slice))
        if isinstance(item, EllipsisValue):
            return ...
        if isinstance(item, ObjectValue):
            return resolve(item.object, self.modules)
        return item

    def same(self, key: int | str) -> Any:
        """Return another argument once more. Raises ValueError if there is none, as for the arguments of a module."""
        if not (isinstance(self.of, Sample) and self.of.has(key)):
            raise ValueError(f"there is no argument {key} to pass once more")
        return self.argument(key)

    def made(self, item: CallValue, path: Path) -> Any:
        """Return what a callable returns, or, if tensors are among its arguments, what makes it for each call."""
        make = resolve(item.call, self.modules)
        if not callable(make):
            raise ValueError(f'"{item.call}" is no function or class, but {type(make).__name__}')
        args = [self.value(part, (*path, index)) for index, part in enumerate(item.args)]
        made = Made(make, args, {name: self.value(part, (*path, name)) for name, part in item.kwargs.items()})
        first = built(mapped(self._filled, made))  # what it raises concerns the sample, and no operator
        return made if any(isinstance(part, (torch.Tensor, Slot)) for part in parts(made)) else first

    def _filled(self, part: Any) -> Any:
        return part.through(self.leaves[part.index].detach()) if isinstance(part, Slot) else part

    def leaf(self, recipe: Tensor) -> tuple[torch.Tensor, Through]:
        """Return the leaf of a recipe, and the map from it to the argument."""
        return leaf_of(recipe, self.case, self.drawn, self.device, self.offsets)

    def placed(self, leaf: torch.Tensor, through: Through, path: Path, *, grad: bool) -> Any:
        """Return the slot of a leaf, where its place and its dtype can be differentiated; else what the operator gets.

        grad: whether it is meant to be differentiated.
        """
        if grad and (leaf.is_floating_point() or leaf.is_complex()) and self.wrt(path):
            slot = Slot(len(self.leaves), path, through)
            self.leaves.append(leaf.requires_grad_())
            self.slots.append(slot)
            return slot
        return through(leaf)

    def state(self, recipe: ModuleRecipe, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters and buffers of a new module, as arguments beside those of a sample."""
        assert isinstance(self.of, Sample)
        own, drawn = torch_dtype(None, self.case), torch_dtype(None, self.drawn)
        module = construct(recipe, self.drawn, self.modules, self.of)
        imaginary = construct(recipe, self.drawn, self.modules, self.of) if own.is_complex else None
        keys, differentiable = ModuleCall(module).keys(kwargs), dtypes.is_differentiable(self.case)
        state = {}
        for name, value, grad in initial(module, imaginary, recipe.spec.init):
            leaf = (value.to(own) if value.dtype is drawn else value).to(self.device)
            state[keys[name]] = self.placed(leaf, unchanged, ("kwargs", keys[name]), grad=grad and differentiable)
        return state

    def cotangents(self) -> tuple[torch.Tensor, ...] | None:
        """Return the cotangents that a sample specifies for second order."""
        assert isinstance(self.of, Sample)
        if self.of.grad_outputs is None:
            return None
        made = [through(leaf).detach() for leaf, through in map(self.leaf, self.of.grad_outputs)]
        return tuple(x.requires_grad_() if x.is_floating_point() or x.is_complex() else x for x in made)
