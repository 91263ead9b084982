"""Makes the tensors of a sample: values, structure, layout, memory format, and the maps from leaf to argument."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from opcheck.samples.captured import module_call
from opcheck.samples.given import Given
from opcheck.samples.inputs import Inputs, Slot
from opcheck.samples.layouts import in_layout, jagged, jagged_offsets, jagged_values
from opcheck.samples.memory import conjugated_view, in_memory, negated_view
from opcheck.samples.modules import ModuleCall, ModuleRecipe, construct, initial
from opcheck.samples.resolve import resolve
from opcheck.samples.seeding import seed_device
from opcheck.samples.structures import STRUCTURES
from opcheck.samples.through import THROUGH
from opcheck.samples.values import draw
from opcheck.spec import dtypes
from opcheck.spec.library import Sample
from opcheck.spec.modules import Construction
from opcheck.spec.values import (
    ComplexValue,
    DtypeValue,
    EllipsisValue,
    NoneValue,
    ObjectValue,
    SliceValue,
    Tensor,
    TupleValue,
)

Through = Callable[[torch.Tensor], torch.Tensor]
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
        maker = _Maker(finer or dtype, device, modules, wrt or (lambda path: True), drawn=dtype)
        args = tuple(maker.value(item, ("args", index)) for index, item in enumerate(sample.args))
        kwargs = {name: maker.value(item, ("kwargs", name)) for name, item in sample.kwargs.items()}
        if module is not None:
            kwargs |= maker.state(module, sample, kwargs)
        cotangents = maker.cotangents(sample.grad_outputs)
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

    def __init__(self, dtype: str, device: str, modules: Sequence[str], wrt: Wrt, drawn: str) -> None:
        self.dtype, self.device, self.modules, self.wrt, self.drawn = dtype, device, modules, wrt, drawn
        self.leaves: list[torch.Tensor] = []
        self.slots: list[Slot] = []
        self.offsets: dict[tuple[int, ...], torch.Tensor] = {}

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
        return self.literal(item)

    def literal(self, item: Any) -> Any:
        """Return the Python object for a value without tensors."""
        if isinstance(item, NoneValue):
            return None
        if isinstance(item, ComplexValue):
            return complex(*item.complex)
        if isinstance(item, DtypeValue):
            return self.torch_dtype(item.dtype)
        if isinstance(item, SliceValue):
            return slice(*(self.literal(part) for part in item.slice))
        if isinstance(item, EllipsisValue):
            return ...
        if isinstance(item, ObjectValue):
            return resolve(item.object, self.modules)
        return item

    def torch_dtype(self, name: str | None, case: str | None = None) -> torch.dtype:
        """Return the dtype that a recipe names in a case. `real` and `complex` have the precision of the case."""
        case = case or self.dtype
        follows = {"real": dtypes.real_of, "complex": dtypes.complex_of, "integer": dtypes.integer_of}
        found: torch.dtype = getattr(torch, follows[name](case) if name in follows else name or case)
        return found

    def tensor(self, recipe: Tensor, path: tuple[int | str, ...]) -> Any:
        """Return a tensor, or the slot of a new leaf."""
        dtype = self.torch_dtype(recipe.dtype)
        return self.placed(*self.leaf(recipe, dtype), path, grad=self.differentiated(recipe, dtype))

    def placed(self, leaf: torch.Tensor, view: Through, path: tuple[int | str, ...], *, grad: bool) -> Any:
        """Return the slot of a leaf, where its place is one to differentiate; else what the operator gets."""
        if grad and self.wrt(path):
            slot = Slot(len(self.leaves), path, view)
            self.leaves.append(leaf.requires_grad_())
            self.slots.append(slot)
            return slot
        return view(leaf)

    def differentiated(self, recipe: Tensor, dtype: torch.dtype) -> bool:
        """Return whether to differentiate with respect to a tensor."""
        if not (dtype.is_floating_point or dtype.is_complex):
            return False
        follows = recipe.dtype in (None, "real", "complex") and dtypes.is_differentiable(self.dtype)
        return follows if recipe.grad is None else recipe.grad

    def constants(self, of: Sample | Construction, dtype: str) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments without leaves, on the CPU, as if a dtype were that of the case."""
        own = _Maker(dtype, "cpu", self.modules, lambda path: False, drawn=dtype)
        args = [own.value(item, ()) for item in of.args]
        return args, {name: own.value(item, ()) for name, item in of.kwargs.items()}

    def module(self, recipe: ModuleRecipe, sample: Sample | None) -> torch.nn.Module:
        """Return a new module in the dtype of the case, on the CPU. Passes on the exceptions of its constructor.

        sample: what a lazy module is called with first.
        """
        first = None if sample is None else lambda dtype: self.constants(sample, str(dtype).removeprefix("torch."))
        return construct(
            recipe, *self.constants(recipe.spec, self.drawn), self.torch_dtype(None, self.drawn), first_call=first
        )

    def state(self, recipe: ModuleRecipe, sample: Sample, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters and buffers of a new module, as arguments beside those of a sample."""
        module = self.module(recipe, sample)
        imaginary = self.module(recipe, sample) if self.torch_dtype(None).is_complex else None
        keys = ModuleCall(module).keys(kwargs)
        differentiable = dtypes.is_differentiable(self.dtype)
        return {
            keys[name]: self.placed(
                self.converted(value).to(self.device),
                _composed([]),
                ("kwargs", keys[name]),
                grad=grad and differentiable,
            )
            for name, value, grad in initial(module, imaginary, recipe.spec.init)
        }

    def converted(self, value: torch.Tensor) -> torch.Tensor:
        """Return a parameter or buffer in the dtype of the case, if it was drawn in another one."""
        return value.to(self.torch_dtype(None)) if value.dtype is self.torch_dtype(None, self.drawn) else value

    def leaf(self, recipe: Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, Through]:
        """Return the leaf of a recipe, and the map from it to the argument of the operator."""
        dense = draw(recipe, recipe.sizes, self.torch_dtype(recipe.dtype, self.drawn))
        if recipe.structure is not None:
            dense = STRUCTURES[recipe.structure](dense)
        dense = dense.to(dtype)
        inside: list[Through] = [THROUGH[recipe.through]] if recipe.through else []
        if recipe.layout not in ("strided", "jagged"):
            return in_layout(dense, recipe).to(self.device).detach(), _composed(inside)
        offsets = self.jagged_offsets(recipe.sizes) if recipe.layout == "jagged" else None
        if offsets is not None:
            dense = jagged_values(dense, offsets.cpu())
        full, expanded = dense.shape, recipe.memory == "expanded" and dense.dim() > 0
        if expanded:
            dense = dense[:1]
        # Conjugate and negate twice, the second time lazily.
        inside += [torch.conj_physical] if recipe.conj and dtype.is_complex else []
        inside += [torch.neg] if recipe.neg and dtype is not torch.bool else []
        lay = partial(in_memory, memory=recipe.memory)
        dense = lay(dense.to(self.device))
        views: list[Through] = [*inside, lay] if inside else []
        views += [lambda row: row.expand(full)] if expanded else []
        views += [conjugated_view] if recipe.conj else []
        views += [negated_view] if recipe.neg else []
        if offsets is not None:
            views.append(partial(jagged, offsets=offsets, longest=recipe.sizes[1]))
        through = _composed(views)
        if not recipe.conj or recipe.neg or recipe.through or expanded or offsets is not None:
            return dense.detach(), through
        # The leaf itself is the conjugated view: torch's batched forward mode has no rule for creating one.
        return through(dense).detach(), _composed([])

    def jagged_offsets(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return the offsets of a jagged tensor, shared by tensors with the same batch size and longest row."""
        if len(shape) < 2:
            raise ValueError(f"a jagged tensor needs at least 2 dimensions, not shape {list(shape)}")
        if shape[:2] not in self.offsets:
            self.offsets[shape[:2]] = jagged_offsets(*shape[:2]).to(self.device)
        return self.offsets[shape[:2]]

    def cotangents(self, recipes: Iterable[Any] | None) -> tuple[torch.Tensor, ...] | None:
        """Return the cotangents that a sample specifies for second order."""
        if recipes is None:
            return None
        made = (self.leaf(recipe, self.torch_dtype(recipe.dtype)) for recipe in recipes)
        cotangents = (view(leaf).detach() for leaf, view in made)
        return tuple(x.requires_grad_() if x.is_floating_point() or x.is_complex() else x for x in cotangents)


def _composed(views: list[Through]) -> Through:
    def through(leaf: torch.Tensor) -> torch.Tensor:
        for view in views:
            leaf = view(leaf)
        return leaf

    return through
