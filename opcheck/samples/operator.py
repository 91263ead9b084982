"""Resolves the operator that a spec names: a function, or a class of modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from opcheck.samples.resolve import Unresolved, resolve


def resolve_operator(path: str, modules: Sequence[str]) -> Callable[..., Any]:
    """Return the callable that a dotted path names.

    Raises Unresolved if there is none, and for classes: testing a class as an operator would test its constructor.
    """
    return as_operator(resolve(path, modules), path)


def as_operator(target: Any, path: str) -> Callable[..., Any]:
    """Return what was found under a path, if it can be tested as an operator. Raises Unresolved."""
    if isinstance(target, type):
        if issubclass(target, torch.autograd.Function):
            raise Unresolved(f'"{path}" is a torch.autograd.Function; name its apply', f"{path}.apply")
        if issubclass(target, torch.nn.Module):
            what = "a module has to be constructed first (in a spec, say how: module = { args = [...] })"
        else:
            what = "calling it creates an object; name a function"
        raise Unresolved(f'"{path}" is a class, and {what}')
    if not callable(target):
        raise Unresolved(f'"{path}" is not a function but {type(target).__name__}')
    operator: Callable[..., Any] = target
    return operator


def resolve_module(path: str, modules: Sequence[str]) -> type[torch.nn.Module]:
    """Return the class of modules that a dotted path names. Raises Unresolved if it names anything else."""
    target = resolve(path, modules)
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        return target
    what = "a module already" if isinstance(target, torch.nn.Module) else f"{type(target).__name__}"
    raise Unresolved(f'"{path}" is not a class of modules, as the key module says, but {what}')
