"""Creates the arguments of a sample: tensors, objects and modules that hold tensors, and all other values."""

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
from opcheck.samples.results import has_derivative
from opcheck.spec import dtypes, values
from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction
from opcheck.spec.positions import KeyPath
from opcheck.spec.recipe import Tensor

Wrt = Callable[[KeyPath], bool]
"""Returns whether to differentiate with respect to the argument at a path."""


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

    dtype: name of the dtype of the case. Tensors have this dtype unless their recipe names another.
    device: torch's device string. Numbers are drawn on the CPU and then moved, so they are the same on every device.
    seed: any text. The same text gives the same numbers. The state of the global generators is preserved.
    wrt: the arguments to differentiate with respect to. Default: all that recipes allow.
    module: the module, if the operator is one. Its parameters and buffers become keyword arguments, see `ModuleCall`.
    finer: a dtype of higher precision to use in place of `dtype`. Numbers are still drawn in `dtype`, then converted.

    Raises ValueError if a recipe cannot be realized, and Unresolved for an object that a spec may not name.
    """
    with _seeded(seed):
        maker = _Maker(sample, finer or dtype, dtype, device, modules, wrt or (lambda path: True))
        args, kwargs = maker.all_arguments()
        if module is not None:
            kwargs |= maker.state(module, sample, kwargs)
        cotangents = None if sample.grad_outputs is None else tuple(map(maker.cotangent, sample.grad_outputs))
    return Inputs(tuple(args), kwargs, tuple(maker.leaves), tuple(maker.slots), cotangents)


def realize_module(
    recipe: ModuleRecipe, dtype: str, device: str, seed: str, modules: Sequence[str], sample: Sample | None = None
) -> ModuleCall:
    """Return the module of `construct` as an operator on a device, whose parameters and buffers are arguments."""
    with _seeded(seed):
        return module_call(construct(recipe, dtype, modules, sample).to(device))


def construct(recipe: ModuleRecipe, dtype: str, modules: Sequence[str], sample: Sample | None = None) -> Module:
    """Return a new module in a dtype, on the CPU. It is only converted to floating and complex dtypes, as torch allows.

    sample: the sample that a lazy module is called with once, in the dtype in which it is constructed. Default: the
        module stays lazy. Raises ValueError if that call does not initialize it.
    """
    args, kwargs = constants(recipe.spec, dtype, modules)
    module = recipe.make(*args, **kwargs).train(recipe.spec.train)
    lazy = uninitialized(module)
    if lazy and sample is not None:
        own = str(next(iter(lazy.values())).dtype).removeprefix("torch.")
        initialize(module, *constants(sample, own, modules))
    if dtypes.is_differentiable(dtype):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Complex modules are a new feature")  # the spec requests this dtype
            module.to(torch_dtype(None, dtype))
    return module


def parameter_elements(recipe: ModuleRecipe, dtype: str, modules: Sequence[str]) -> float:
    """Return the number of elements of the parameters of a module, without allocating memory for them.

    Infinity for a lazy module, whose number is unknown; 0 if the constructor fails on the meta device.
    """
    args, kwargs = constants(recipe.spec, dtype, modules)
    try:
        with torch.device("meta"):
            module = recipe.make(*args, **kwargs)
    except Exception:  # a constructor may read values of its tensors, or reject its arguments
        return 0
    return inf if uninitialized(module) else sum(own.numel() for own in module.parameters())


def constants(of: Sample | Construction, dtype: str, modules: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a sample or of a constructor, on the CPU, with no tensor as a leaf to differentiate."""
    args, kwargs = _Maker(of, dtype, dtype, "cpu", modules, lambda path: False).all_arguments()
    return built(args), built(kwargs)


@contextmanager
def _seeded(text: str) -> Iterator[None]:
    """Seed torch's global generator by a text, with the CPU as the default device. Restore the state at the end."""
    # A default device context slows down every call of torch, so it is only entered if necessary.
    on_cpu = nullcontext() if torch.empty(0).is_cpu else torch.device("cpu")
    with torch.random.fork_rng(devices=()), on_cpu:
        torch.default_generator.manual_seed(zlib.crc32(text.encode()))
        yield


@dataclass
class _Maker:
    """Converts the values of a sample, or of a `Construction`, to arguments. Collects the leaves."""

    of: Sample | Construction
    case: str
    """The name of the dtype of the case."""
    drawn: str
    """The name of the dtype in which numbers are drawn, before they are converted."""
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
        """Return the argument at a position or with a name. Repeated calls return the same object."""
        if key not in self.arguments:
            place = "args" if isinstance(key, int) else "kwargs"
            self.arguments[key] = self.value(getattr(self.of, place)[key], (place, key))
        return self.arguments[key]

    def value(self, item: Any, path: KeyPath) -> Any:
        """Return the Python object for one value."""
        match item:
            case Tensor():
                follows = item.dtype in (None, "real", "complex") and dtypes.is_differentiable(self.case)
                return self.placed(*self.leaf(item), path, grad=follows if item.grad is None else item.grad)
            case Given():
                leaf, through = item.leaf(item.dtype_in(self.drawn))
                return self.placed(leaf.to(item.dtype_in(self.case)), through, path, grad=item.grad)
            case list():
                return [self.value(part, (*path, index)) for index, part in enumerate(item)]
            case values.TupleValue():
                return tuple(self.value(item.tuple, path))
            case values.MappingValue():
                return {key: self.value(part, (*path, key)) for key, part in item.mapping.items()}
            case values.CallValue():
                return self.made(item, path)
            case values.SameValue():
                if not (isinstance(self.of, Sample) and self.of.has(item.same)):  # a constructor passes nothing twice
                    raise ValueError(f"there is no argument {item.same} to pass once more")
                return self.argument(item.same)
            case values.NoneValue():
                return None
            case values.ComplexValue():
                return complex(*item.complex)
            case values.DtypeValue():
                return torch_dtype(item.dtype, self.case)
            case values.SliceValue():
                return slice(*self.value(item.slice, path))
            case values.EllipsisValue():
                return ...
            case values.ObjectValue():
                return resolve(item.object, self.modules)
        return item

    def made(self, item: values.CallValue, path: KeyPath) -> Any:
        """Return the result of a callable; if it depends on tensors, a `Made` that recomputes it for each call."""
        make = resolve(item.call, self.modules)
        if not callable(make):
            raise ValueError(f'"{item.call}" is not a function or class, but {type(make).__name__}')
        args = [self.value(part, (*path, index)) for index, part in enumerate(item.args)]
        made = Made(make, args, {name: self.value(part, (*path, name)) for name, part in item.kwargs.items()})
        first = built(mapped(self._filled, made))  # exceptions are errors of the sample, not of the operator
        return made if any(isinstance(part, (torch.Tensor, Slot)) for part in parts(made)) else first

    def _filled(self, part: Any) -> Any:
        return part.through(self.leaves[part.index].detach()) if isinstance(part, Slot) else part

    def leaf(self, recipe: Tensor) -> tuple[torch.Tensor, Through]:
        """Return the leaf of a recipe, and the map from the leaf to the argument."""
        return leaf_of(recipe, self.case, self.drawn, self.device, self.offsets)

    def placed(self, leaf: torch.Tensor, through: Through, path: KeyPath, *, grad: bool) -> Any:
        """Add a leaf to differentiate and return its slot, or return the argument itself if it is not differentiated.

        grad: whether the recipe requests a derivative. The dtype and `wrt` must allow it, too.
        """
        if grad and has_derivative(leaf) and self.wrt(path):
            slot = Slot(len(self.leaves), path, through)
            self.leaves.append(leaf.requires_grad_())
            self.slots.append(slot)
            return slot
        return through(leaf)

    def state(self, recipe: ModuleRecipe, sample: Sample, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters and buffers of a new module, as keyword arguments to add to those of the sample."""
        own, drawn = torch_dtype(None, self.case), torch_dtype(None, self.drawn)
        module = construct(recipe, self.drawn, self.modules, sample)
        imaginary = construct(recipe, self.drawn, self.modules, sample) if own.is_complex else None
        keys, differentiable = ModuleCall(module).keys(kwargs), dtypes.is_differentiable(self.case)
        state = {}
        for name, value, grad in initial(module, imaginary, recipe.spec.init):
            leaf = (value.to(own) if value.dtype is drawn else value).to(self.device)
            state[keys[name]] = self.placed(leaf, unchanged, ("kwargs", keys[name]), grad=grad and differentiable)
        return state

    def cotangent(self, recipe: Tensor) -> torch.Tensor:
        """Return a cotangent for second-order checks, which requires grad if its dtype allows."""
        leaf, through = self.leaf(recipe)
        made = through(leaf).detach()
        return made.requires_grad_(has_derivative(made))
