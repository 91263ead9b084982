"""Settings of the process that affect what operators compute. They are set for a case and restored after it.

An operator that leaves one of them changed would spoil the verdicts on later cases.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks

from opcheck.devices.hooks import device_module

MOST_LEFT = 100
"""The most open contexts of one kind to close."""


@dataclass(frozen=True)
class ProcessState:
    """The settings of the process."""

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
    """Whether autocast is on, by device type: for the CPU and for the device of the case."""
    recursion_limit: int

    @classmethod
    def read(cls, device: str = "cpu") -> ProcessState:
        """Return the current settings.

        device: the device string whose autocast setting to include.
        """
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
        """Return these settings with what every case needs: gradients on, and one thread.

        Tensors are tiny: more threads would cost more time than they save.
        """
        return replace(self, grad_mode=True, inference_mode=False, threads=1, anomaly_mode=False)

    def changes(self, now: ProcessState) -> list[str]:
        """Return what differs now, as in "grad mode False instead of True"."""
        if self == now:
            return []
        names = [item.name for item in fields(self) if getattr(self, item.name) != getattr(now, item.name)]
        return [f"{name.replace('_', ' ')} {getattr(now, name)} instead of {getattr(self, name)}" for name in names]

    def restore(self, now: ProcessState) -> None:
        """Restore these settings, given the current ones. Equal ones are not set again."""
        if self.inference_mode != now.inference_mode:
            _LEFT_OPEN.enter_context(torch.inference_mode(self.inference_mode))
            now = replace(now, grad_mode=torch.is_grad_enabled())  # inference mode changes it, too
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
    """Make a device the default, even if a `with torch.device(...)` has been left open."""
    for _ in range(MOST_LEFT):
        # None, not "cpu": a default device, even the CPU, slows down every call of torch.
        torch.set_default_device(None if device.type == "cpu" else device)
        if torch.get_default_device() == device:
            return
        torch.device(device).__exit__(None, None, None)


_LEFT_OPEN = ExitStack()
"""Inference mode has no setter: to restore it, another mode is entered and stays open."""


@dataclass
class Left:
    """What a case has left changed."""

    changes: list[str] = field(default_factory=list)
    """Descriptions of the settings and contexts, which have been restored."""


@contextmanager
def put_back(neutral: ProcessState, device: str = "cpu") -> Iterator[Left]:
    """Apply the settings `neutral` inside the context. On exit, record what has changed, and restore what was before.

    The states of the random number generators, on the CPU and on the device, are restored but not recorded: an operator
    may draw numbers.
    """
    before, left = ProcessState.read(device), Left()
    generators = list(_states(device))
    # torch emits most warnings once per process. If warnings are errors, only the first case would fail.
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
            try:
                module.set_rng_state(state)
            except Exception as error:  # as of a device that an operator has broken
                left.changes.append(f"the random generator of {device} in a state that cannot be restored: {error}")


@lru_cache(maxsize=16)
def _on_device(neutral: ProcessState, device: str, warn_always: bool) -> ProcessState:
    return replace(neutral, autocast=tuple((kind, False) for kind in _kinds(device)), warn_always=warn_always)


@lru_cache(maxsize=16)
def _kinds(device: str) -> tuple[str, ...]:
    """Return the device types whose autocast matters to a case: the CPU and its own."""
    own = torch.device(device).type
    return ("cpu", own) if own != "cpu" and torch.amp.is_autocast_available(own) else ("cpu",)


def _states(device: str) -> Iterator[tuple[Any, Any]]:
    """Yield the modules with the random number generators that a case may use, with their states."""
    yield torch.random, torch.random.get_rng_state()
    module = device_module(device)
    if hasattr(module, "get_rng_state") and hasattr(module, "set_rng_state"):
        with suppress(Exception):  # of a broken device, whose cases say so
            yield module, module.get_rng_state()


def _close_contexts() -> list[str]:
    """Close the saved-tensor hooks and the dual level that are still open. Return a description of each kind."""
    closed = []
    hooks = 0
    while hooks < MOST_LEFT and not _no_hooks():
        saved_tensors_hooks(_unchanged, _unchanged).__exit__()  # removes the innermost pair of hooks
        hooks += 1
    if hooks:
        closed.append("saved-tensor hooks on")
    if not _no_dual_level():
        forward_ad.exit_dual_level()  # type: ignore[no-untyped-call]
        closed.append("a dual level open")
    return closed


def open_contexts() -> list[str]:
    """Return a description of each open context that would falsify derivatives."""
    hooks = [] if _no_hooks() else ["saved-tensor hooks on"]
    return hooks + ([] if _no_dual_level() else ["a dual level open"])


def transform_is_open() -> bool:
    """Tell whether a transform of torch.func is open. It cannot be closed from outside.

    Inside a transform, torch refuses `requires_grad_`.
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
    except RuntimeError:  # there are hooks
        return False


def _no_dual_level() -> bool:
    try:
        with forward_ad.dual_level():
            return True
    except RuntimeError:  # a level is open, and levels do not nest
        return False


def _unchanged(x: Any) -> Any:
    return x
