"""Settings of the whole process that change what tensors do: set for a case, put back after it.

An operator that leaves one of them changed would spoil the verdict on whatever runs next.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks

MOST_LEFT = 100
"""How many contexts of one kind, left open, are closed at most."""


@dataclass(frozen=True)
class ProcessState:
    """The settings, as torch's and Python's public functions tell them."""

    grad_mode: bool
    inference_mode: bool
    default_dtype: torch.dtype
    default_device: torch.device
    threads: int
    deterministic: bool
    deterministic_warns_only: bool
    anomaly_mode: bool
    anomaly_checks_nan: bool
    matmul_precision: str
    warn_always: bool
    autocast: tuple[tuple[str, bool], ...]
    """By type of device: the CPU's and that of the case."""
    recursion_limit: int

    @classmethod
    def read(cls, device: str = "cpu") -> ProcessState:
        """Return the settings as they are. device: torch's device string, whose autocast is looked at."""
        return cls(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            torch.get_default_device(),
            torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.is_anomaly_enabled(),
            torch.is_anomaly_check_nan_enabled(),
            torch.get_float32_matmul_precision(),
            torch.is_warn_always_enabled(),
            tuple((kind, torch.is_autocast_enabled(kind)) for kind in _kinds(device)),
            sys.getrecursionlimit(),
        )

    def for_cases(self) -> ProcessState:
        """Return these settings with what every case needs: gradients, and one thread.

        The tensors are tiny: more threads cost more than they bring, and processes use the cores better.
        """
        return replace(self, grad_mode=True, inference_mode=False, threads=1, anomaly_mode=False)

    def changes(self, now: ProcessState) -> list[str]:
        """Return what differs now, each as "grad mode False instead of True"."""
        if self == now:
            return []
        names = [item.name for item in fields(self) if getattr(self, item.name) != getattr(now, item.name)]
        return [f"{name.replace('_', ' ')} {getattr(now, name)} instead of {getattr(self, name)}" for name in names]

    def restore(self, now: ProcessState) -> None:
        """Put these settings in place of those of now. Those that are equal are not touched."""
        if self.inference_mode != now.inference_mode:
            _LEFT_OPEN.enter_context(torch.inference_mode(self.inference_mode))
            now = replace(now, grad_mode=torch.is_grad_enabled())  # which inference mode changes, too
        if self.grad_mode != now.grad_mode:
            torch.set_grad_enabled(self.grad_mode)
        if self.default_dtype != now.default_dtype:
            torch.set_default_dtype(self.default_dtype)
        if self.default_device != now.default_device:
            _set_default_device(self.default_device)
        if self.threads != now.threads:
            torch.set_num_threads(self.threads)
        if (self.deterministic, self.deterministic_warns_only) != (now.deterministic, now.deterministic_warns_only):
            torch.use_deterministic_algorithms(self.deterministic, warn_only=self.deterministic_warns_only)
        if (self.anomaly_mode, self.anomaly_checks_nan) != (now.anomaly_mode, now.anomaly_checks_nan):
            torch.autograd.set_detect_anomaly(self.anomaly_mode, self.anomaly_checks_nan)
        if self.matmul_precision != now.matmul_precision:
            torch.set_float32_matmul_precision(self.matmul_precision)
        if self.warn_always != now.warn_always:
            torch.set_warn_always(self.warn_always)
        for (kind, enabled), current in zip(self.autocast, now.autocast, strict=True):
            if (kind, enabled) != current:
                torch.set_autocast_enabled(kind, enabled)
        if self.recursion_limit != now.recursion_limit:
            sys.setrecursionlimit(self.recursion_limit)


def _set_default_device(device: torch.device) -> None:
    """Make a device the default, also over those that `with torch.device(...)` has left in place."""
    for _ in range(MOST_LEFT):
        # None takes away a default; the CPU, set as one, would watch each call of torch.
        torch.set_default_device(None if device.type == "cpu" else device)
        if torch.get_default_device() == device:
            return
        torch.device(device).__exit__(None, None, None)


_LEFT_OPEN = ExitStack()
"""Inference mode has no setter: a mode that was left is covered by another one, which stays open."""


@dataclass
class Left:
    """What a case left changed."""

    changes: list[str] = field(default_factory=list)
    """Settings and contexts, in words, which have been put back."""


@contextmanager
def put_back(neutral: ProcessState, device: str = "cpu") -> Iterator[Left]:
    """Run what is inside in the settings `neutral`; then note what it left changed, and put back what was before.

    The states of torch's generators of random numbers, on the CPU and on the device, are put back as well: to draw
    numbers is no mistake.
    """
    before, left = ProcessState.read(device), Left()
    generators = [(module, module.get_rng_state()) for module in _generators(device)]
    # torch warns of most things once a process: where warnings are errors, only who comes first would have one.
    strict = any(action == "error" for action, *_ in warnings.filters)
    neutral = _on_device(neutral, device, strict)
    neutral.restore(before)
    try:
        yield left
    finally:
        left.changes += _close_contexts()
        now = ProcessState.read(device)
        left.changes += neutral.changes(now)
        before.restore(now)
        for module, state in generators:
            module.set_rng_state(state)


@lru_cache(maxsize=16)
def _on_device(neutral: ProcessState, device: str, warn_always: bool) -> ProcessState:
    return replace(neutral, autocast=tuple((kind, False) for kind in _kinds(device)), warn_always=warn_always)


@lru_cache(maxsize=16)
def _kinds(device: str) -> tuple[str, ...]:
    """Return the types of device whose autocast matters to a case: the CPU's and its own."""
    return tuple(dict.fromkeys(("cpu", torch.device(device).type)))


def _generators(device: str) -> list[Any]:
    """Return the modules whose random numbers a case may draw."""
    found: list[Any] = [torch.random]
    if torch.device(device).type != "cpu":
        module = torch.get_device_module(device)
        found += [module] if hasattr(module, "get_rng_state") and hasattr(module, "set_rng_state") else []
    return found


def _close_contexts() -> list[str]:
    """Close what was opened and left open: saved-tensor hooks, dual levels. Return what there was, in words."""
    found = []
    hooks = 0
    while hooks < MOST_LEFT and not _no_hooks():
        saved_tensors_hooks(_unchanged, _unchanged).__exit__()  # takes off the uppermost, whoever put it on
        hooks += 1
    if hooks:
        found.append("saved-tensor hooks on")
    if not _no_dual_level():
        forward_ad.exit_dual_level()  # type: ignore[no-untyped-call]
        found.append("a dual level open")
    return found


def open_contexts() -> list[str]:
    """Return the contexts that are open, in which no derivative can be trusted, in words."""
    found = [] if _no_hooks() else ["saved-tensor hooks on"]
    return found + ([] if _no_dual_level() else ["a dual level open"])


def transform_is_open() -> bool:
    """Tell whether a transform of torch.func is open. Nobody but who opened it can close it.

    Within a transform, torch refuses `requires_grad_`.
    """
    try:
        torch.empty(0).requires_grad_()
    except RuntimeError:
        return True
    return False


def _no_hooks() -> bool:
    try:
        with disable_saved_tensors_hooks("asked by opcheck"):
            return True
    except RuntimeError:  # there are some
        return False


def _no_dual_level() -> bool:
    try:
        with forward_ad.dual_level():
            return True
    except RuntimeError:  # there is one, and they do not nest
        return False


def _unchanged(x: Any) -> Any:
    return x
