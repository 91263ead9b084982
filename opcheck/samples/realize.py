"""Makes the arguments of a sample: tensors, the objects and modules that hold them, and all other values."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from opcheck.samples.captured import module_call
from opcheck.samples.given import Given
from opcheck.samples.inputs import Inputs, Made, Slot, built, called, mapped, parts
from opcheck.samples.modules import ModuleCall, ModuleRecipe, construct, initial
from opcheck.samples.resolve import resolve
from opcheck.samples.seeding import seed_device
from opcheck.samples.tensors import TensorMaker, Through, composed
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

Wrt = Callable[[tuple[int | str, ...]], bool]


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
        maker = _Maker(finer or dtype, device, modules, wrt or (lambda path: True), drawn=dtype, sample=sample)
        args = tuple(maker.argument(index) for index in range(len(sample.args)))
        kwargs = {name: maker.argument(name) for name in sample.kwargs}
        if module is not None:
            kwargs |= maker.state(module, sample, kwargs)
        cotangents = maker.tensors.cotangents(sample.grad_outputs)
    return Inputs(args, kwargs, tuple(maker.leaves), tuple(maker.slots), cotangents)


def realize_module(
    recipe: ModuleRecipe, dtype: str, device: str, seed: str, modules: Sequence[str], sample: Sample | None = None
) -> ModuleCall:
    """Return a module as an operator. Its parameters and buffers are to be passed to it.

    sample: what a lazy module gets its shapes from. Default: it stays lazy.

    Passes on the exceptions of its constructor.
    """
    with _seeded(seed):
        maker = _Maker(dtype, device, modules, lambda path: False, drawn=dtype)
        return module_call(maker.module(recipe, sample).to(device))


@contextmanager
def _seeded(seed: str) -> Iterator[None]:
    """Seed torch's global generator, with the CPU as default device, and restore its state at the end."""
    state = torch.random.get_rng_state()
    try:
        seed_device(zlib.crc32(seed.encode()))
        with _on_cpu():
            yield
    finally:
        torch.random.set_rng_state(state)


def _on_cpu() -> AbstractContextManager[Any]:
    """Return a context with the CPU as default device, if needed: the context slows down every call of torch."""
    return nullcontext() if torch.empty(0).is_cpu else torch.device("cpu")


class _Maker:
    """Turns values of a spec into Python objects, and collects the leaves."""

    def __init__(
        self, dtype: str, device: str, modules: Sequence[str], wrt: Wrt, drawn: str, sample: Sample | None = None
    ) -> None:
        self.dtype, self.device, self.modules, self.wrt, self.drawn = dtype, device, modules, wrt, drawn
        self.sample = sample
        self.arguments: dict[int | str, Any] = {}
        self.leaves: list[torch.Tensor] = []
        self.slots: list[Slot] = []
        self.tensors = TensorMaker(dtype, device, drawn)

    def argument(self, key: int | str) -> Any:
        """Return the argument of the sample at a position or with a name, the same object each time."""
        if key not in self.arguments:
            if self.sample is None or not self.sample.has(key):
                raise ValueError(f"there is no argument {key} to pass once more")
            if isinstance(key, int):
                self.arguments[key] = self.value(self.sample.args[key], ("args", key))
            else:
                self.arguments[key] = self.value(self.sample.kwargs[key], ("kwargs", key))
        return self.arguments[key]

    def value(self, item: Any, path: tuple[int | str, ...]) -> Any:
        """Return the Python object for one value."""
        if isinstance(item, Given):
            dtype = item.dtype_in(self.dtype)
            leaf, view = item.leaf(item.dtype_in(self.drawn))
            return self.placed(
                leaf.to(dtype), view, path, grad=item.grad and (dtype.is_floating_point or dtype.is_complex)
            )
        if isinstance(item, Tensor):
            return self.tensor(item, path)
        if isinstance(item, TupleValue):
            return tuple(self.value(part, (*path, index)) for index, part in enumerate(item.tuple))
        if isinstance(item, list):
            return [self.value(part, (*path, index)) for index, part in enumerate(item)]
        if isinstance(item, MappingValue):
            return {key: self.value(part, (*path, key)) for key, part in item.mapping.items()}
        if isinstance(item, CallValue):
            return self.made(item, path)
        return self.argument(item.same) if isinstance(item, SameValue) else self.literal(item)

    def made(self, item: CallValue, path: tuple[int | str, ...]) -> Any:
        """Return what a callable returns, or, if tensors are among its arguments, what makes it for each call."""
        make = resolve(item.call, self.modules)
        if not callable(make):
            raise ValueError(f'"{item.call}" is no function or class, but {type(make).__name__}')
        args = [self.value(part, (*path, index)) for index, part in enumerate(item.args)]
        kwargs = {name: self.value(part, (*path, name)) for name, part in item.kwargs.items()}
        made = Made(make, args, kwargs)
        first = mapped(self._filled, made, called)  # what it raises concerns the sample, and no operator
        return made if any(isinstance(part, (torch.Tensor, Slot)) for part in parts(made)) else first

    def _filled(self, part: Any) -> Any:
        return part.through(self.leaves[part.index].detach()) if isinstance(part, Slot) else part

    def literal(self, item: Any) -> Any:
        """Return the Python object for a value without tensors."""
        if isinstance(item, NoneValue):
            return None
        if isinstance(item, ComplexValue):
            return complex(*item.complex)
        if isinstance(item, DtypeValue):
            return self.tensors.torch_dtype(item.dtype)
        if isinstance(item, SliceValue):
            return slice(*(self.literal(part) for part in item.slice))
        if isinstance(item, EllipsisValue):
            return ...
        if isinstance(item, ObjectValue):
            return resolve(item.object, self.modules)
        return item

    def tensor(self, recipe: Tensor, path: tuple[int | str, ...]) -> Any:
        """Return a tensor, or the slot of a new leaf."""
        dtype = self.tensors.torch_dtype(recipe.dtype)
        return self.placed(*self.tensors.leaf(recipe, dtype), path, grad=self.tensors.differentiated(recipe, dtype))

    def placed(self, leaf: torch.Tensor, view: Through, path: tuple[int | str, ...], *, grad: bool) -> Any:
        """Return the slot of a leaf, where its place is one to differentiate; else what the operator gets."""
        if grad and self.wrt(path):
            slot = Slot(len(self.leaves), path, view)
            self.leaves.append(leaf.requires_grad_())
            self.slots.append(slot)
            return slot
        return view(leaf)

    def constants(self, of: Sample | Construction, dtype: str) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments without leaves, on the CPU, as if a dtype were that of the case."""
        sample = of if isinstance(of, Sample) else None
        own = _Maker(dtype, "cpu", self.modules, lambda path: False, drawn=dtype, sample=sample)
        args = built([own.value(item, ()) for item in of.args])
        return args, {name: built(own.value(item, ())) for name, item in of.kwargs.items()}

    def module(self, recipe: ModuleRecipe, sample: Sample | None) -> torch.nn.Module:
        """Return a new module in the dtype of the case, on the CPU. Passes on the exceptions of its constructor.

        sample: what a lazy module is called with first.
        """
        first = None if sample is None else lambda dtype: self.constants(sample, str(dtype).removeprefix("torch."))
        return construct(
            recipe,
            *self.constants(recipe.spec, self.drawn),
            self.tensors.torch_dtype(None, self.drawn),
            first_call=first,
        )

    def state(self, recipe: ModuleRecipe, sample: Sample, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters and buffers of a new module, as arguments beside those of a sample."""
        module = self.module(recipe, sample)
        imaginary = self.module(recipe, sample) if self.tensors.torch_dtype(None).is_complex else None
        keys = ModuleCall(module).keys(kwargs)
        differentiable = dtypes.is_differentiable(self.dtype)
        return {
            keys[name]: self.placed(
                self.converted(value).to(self.device),
                composed([]),
                ("kwargs", keys[name]),
                grad=grad and differentiable,
            )
            for name, value, grad in initial(module, imaginary, recipe.spec.init)
        }

    def converted(self, value: torch.Tensor) -> torch.Tensor:
        """Return a parameter or buffer in the dtype of the case, if it was drawn in another one."""
        dtype_in = self.tensors.torch_dtype
        return value.to(dtype_in(None)) if value.dtype is dtype_in(None, self.drawn) else value
