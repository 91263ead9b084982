"""A module as a function: parameters and buffers are keyword arguments, so that parameters can be leaves.

The parameters and buffers of a lazy module get their shapes by a first call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from opcheck.samples.draw import draw
from opcheck.samples.results import has_derivative, leaves_of
from opcheck.spec.operator import Construction, Init
from opcheck.spec.problems import listing, nearest, worded
from opcheck.spec.recipe import Tensor as Recipe
from opcheck.text import one_line

VARIED = 0.25
"""The maximum change of each element of a parameter whose elements the constructor has set to one number."""


@dataclass(frozen=True)
class ModuleRecipe:
    """A class of modules, and the arguments of its constructor."""

    make: Callable[..., Module]
    spec: Construction


Hook = Callable[[Tensor], Tensor | None]
"""A function that is called with a gradient, and may return another one."""


@dataclass(frozen=True, eq=False, repr=False)
class ModuleCall:
    """Calls a module with the parameters and buffers that are passed as keyword arguments, by their names.

    If forward is passed an argument of the same name, the keyword is `module.<name>`. In training mode, the module gets
    copies of its buffers, so that each call starts from the same running statistics.

    A backward pass may call forward again, as that of torch.utils.checkpoint. So from the start of a backward pass, the
    module has the parameters and buffers of the call that is differentiated, until `restore`.
    """

    _module: Module
    unregistered: tuple[tuple[str, Tensor], ...] = ()
    """The module's tensors that are neither parameters nor buffers, by name. They are not arguments."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the module. Parameters and buffers that are not passed are the module's own."""
        return self.with_state(self.taken_from(kwargs), args, kwargs)

    def with_state(self, state: dict[str, Tensor], args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the result of the module with other parameters and buffers, by name."""
        if torch.compiler.is_compiling():  # which cannot trace hooks
            return torch.func.functional_call(self.module, state, args, kwargs)
        state = state | {name: _hooked(state[name], hooks) for name, hooks in self._hooks.items()}
        result = torch.func.functional_call(self.module, state, args, kwargs)
        for _, part in leaves_of(result):
            if isinstance(part, Tensor) and part.grad_fn is not None:
                part.grad_fn.register_prehook(lambda _: self._install(state))
        return result

    @cached_property
    def _hooks(self) -> dict[str, list[Hook]]:
        """The hooks that the module has registered on its parameters, by their names. They may change gradients."""
        hooks = {name: tensor._backward_hooks for name, tensor in self.state.items()}
        return {name: [*own.values()] for name, own in hooks.items() if own}

    @property
    def module(self) -> Module:
        """The module, with its own parameters and buffers."""
        self.restore()
        return self._module

    def restore(self) -> None:
        """Give the module its own parameters and buffers again, after a backward pass."""
        self._install(self.state)

    @cached_property
    def _places(self) -> list[tuple[dict[str, Any], str, str]]:
        """The places of parameters and buffers in the module: a table, the key in it, and the name of the tensor."""
        names = {id(tensor): name for name, tensor in self.state.items()}
        tables = (table for part in self._module.modules() for table in (part._parameters, part._buffers))
        return [(table, key, names[id(own)]) for table in tables for key, own in table.items() if id(own) in names]

    def _install(self, state: Mapping[str, Tensor]) -> None:
        for table, key, name in self._places:
            table[key] = state[name]

    def taken_from(self, kwargs: dict[str, Any]) -> dict[str, Tensor]:
        """Remove the parameters and buffers from keyword arguments. Return all that the call needs, by name."""
        state = self.state | {name: kwargs.pop(key) for name, key in self.named_in(kwargs).items()}
        return state | {name: state[name].clone() for name in self.buffers if self._module.training}

    @cached_property
    def state(self) -> dict[str, Tensor]:
        """The parameters and buffers of the module, by name."""
        return state_of(self._module)

    @property
    def converts(self) -> bool:
        """Whether `Module.to` can convert parameters or buffers. It raises for integral dtypes."""
        return any(map(has_derivative, self.state.values()))

    @cached_property
    def is_lazy(self) -> bool:
        """Whether some parameters or buffers have no shape yet."""
        return bool(uninitialized(self._module))

    @cached_property
    def buffers(self) -> frozenset[str]:
        """The names of the buffers."""
        return frozenset(name for name, _ in self._module.named_buffers())

    @cached_property
    def __signature__(self) -> inspect.Signature:
        """The signature of forward, which gives the names of the arguments."""
        return inspect.signature(self._module.forward)

    def keys(self, kwargs: Mapping[str, Any]) -> dict[str, str]:
        """Return the keyword for each parameter and buffer, given the keyword arguments of forward."""
        return {name: f"module.{name}" if name in kwargs else name for name in self.state}

    def named_in(self, kwargs: Mapping[str, Any]) -> dict[str, str]:
        """Return the keyword of each parameter and buffer that is passed to a call."""
        keys = {name: f"module.{name}" if f"module.{name}" in kwargs else name for name in self.state}
        return {name: key for name, key in keys.items() if key in kwargs}


def _hooked(parameter: Tensor, hooks: Iterable[Hook]) -> Tensor:
    """Return a parameter whose gradient goes through hooks, if it requires grad. They are not called without one."""
    if not parameter.requires_grad:
        return parameter

    def unless_undefined(hook: Hook, gradient: Tensor | None) -> Tensor | None:
        return None if gradient is None else hook(gradient)

    hooked: Any = parameter.view_as(parameter)  # torch has no annotation of `register_hook`
    for hook in hooks:
        hooked.register_hook(partial(unless_undefined, hook))
    return cast(Tensor, hooked)


@contextmanager
def buffers_at_the_end(module: Module) -> Iterator[dict[str, Tensor]]:
    """Yield a dict to be filled with a module's buffers when forward returns, whether changed in place or replaced."""
    buffers: dict[str, Tensor] = {}

    def look(part: Module, args: Any, result: Any) -> None:
        buffers.update(part.named_buffers())

    handle = module.register_forward_hook(look)
    try:
        yield buffers
    finally:
        handle.remove()


@contextmanager
def evaluating(module: Module) -> Iterator[None]:
    """Set a module and its submodules to evaluation mode. Restore the mode of each at the end."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def state_of(module: Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module, by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def uninitialized(module: Module) -> dict[str, Tensor]:
    """Return the parameters and buffers that have no shape yet, by name."""
    return {name: tensor for name, tensor in state_of(module).items() if is_lazy(tensor)}


def initialize(module: Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Call a lazy module once, which gives shapes and initial values to its parameters and buffers.

    The call is in evaluation mode, so that running statistics stay as constructed. An exception of forward is ignored
    if all parameters and buffers have shapes. Raises ValueError if some still have none.
    """
    why = "forward does not use it"
    with torch.no_grad(), evaluating(module):
        try:
            module(*args, **kwargs)
        except Exception as error:
            why = one_line(error)
    left = uninitialized(module)
    if left:
        raise ValueError(f"{next(iter(left))} is lazy, and has no shape after a call with the sample: {why}")


def initial(module: Module, imaginary: Module | None, init: Mapping[str, Init]) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield the name of each parameter and buffer, its value, and whether to differentiate with respect to it.

    Values are those of the constructor, unless `init` specifies others. If the constructor has filled a parameter with
    one number, random noise is added, since ones and zeros hide mistakes. Draws from torch's global generator.

    imaginary: another module of the same recipe, whose parameters become the imaginary parts of complex parameters.
    """
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    second = {} if imaginary is None else dict(imaginary.named_parameters())
    _refuse_unknown(init, parameters, buffers)
    for name, tensor in (*parameters.items(), *buffers.items()):
        is_number = has_derivative(tensor)
        patterns = [pattern for pattern in init if fnmatchcase(name, pattern)] if name in parameters else [name]
        own = init.get(patterns[0]) if patterns else None
        value = tensor.detach().clone()
        if name in second and value.is_complex():
            value = torch.complex(value.real, second[name].detach().real)
        if own is not None and own.model_fields_set - {"grad"}:
            value = _drawn(own, value)
        elif name in parameters and is_number:
            value = _varied(value)
        yield name, value, is_number and (tensor.requires_grad if own is None or own.grad is None else own.grad)


def _refuse_unknown(init: Mapping[str, Init], parameters: Mapping[str, Any], buffers: Mapping[str, Any]) -> None:
    known = [*parameters, *buffers]
    for pattern in init:
        if pattern not in buffers and not any(fnmatchcase(name, pattern) for name in parameters):
            expected = listing(known, 30) if known else "a module with parameters"
            what = f'init: no parameter or buffer is called "{pattern}"'
            raise ValueError(worded(what, expected, nearest(pattern, known)))


def _drawn(init: Init, like: Tensor) -> Tensor:
    """Return values drawn as `init` specifies, with the shape, dtype and device of `like`. Raises ValueError."""
    said = {name: getattr(init, name) for name in ("low", "high", "exclude", "mean", "std", "values")}
    values = draw(Recipe.model_construct(None, **said), tuple(like.shape), like.dtype)
    try:
        return values.expand(like.shape).clone().to(like.device)
    except RuntimeError:
        what = f"init: values of shape {list(values.shape)} do not fit the shape {list(like.shape)}"
        raise ValueError(what) from None


def _varied(value: Tensor) -> Tensor:
    """Return a parameter with noise of up to VARIED (real and imaginary parts) added if all its elements are equal."""
    real = torch.view_as_real(value) if value.is_complex() else value.unsqueeze(-1)
    first = real.reshape(-1, real.shape[-1])[:1]
    if not real.numel() or not bool((real == first).all()):
        return value
    noise = VARIED * (2 * torch.rand(real.shape, dtype=torch.float64) - 1)
    varied = real + noise.to(real)
    return torch.view_as_complex(varied) if value.is_complex() else varied.squeeze(-1)
