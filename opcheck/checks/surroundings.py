"""What may surround a call without making a difference: modes, threads, streams, and what lay in memory before."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch

from opcheck.checks.subject import Subject


class Surroundings(NamedTuple):
    """What may surround a call."""

    enter: Callable[[], AbstractContextManager[Any]]
    code: str = ""
    """The same in plain torch: a line. Empty: it has no such form."""


DIRTY = "[torch.full((x.numel() * x.element_size(),), 255, dtype=torch.uint8) for x in 4 * [*inputs, *outputs]]"
BLOCKS = 8
"""How many blocks of each size are freed: a call has outputs, intermediate results and gradients."""


@contextmanager
def all_of(surroundings: Iterable[Surroundings]) -> Iterator[None]:
    """Enter surroundings, one within the other."""
    with ExitStack() as stack:
        for around in surroundings:
            stack.enter_context(around.enter())
        yield


def surroundings_of(subject: Subject) -> dict[str, Surroundings]:
    """Return what may surround a call, by what it is called. Streams are dear."""
    device = torch.device(subject.context.device.string)
    autocast = partial(torch.autocast, device.type, dtype=torch.bfloat16)
    surroundings = {
        "another number of threads": Surroundings(_more_threads, "torch.set_num_threads(torch.get_num_threads() + 1)"),
        "deterministic mode": Surroundings(_deterministic, 'torch.set_deterministic_debug_mode("warn")'),
        "memory with other contents": Surroundings(partial(_dirty, subject), DIRTY),
    }
    double = subject.context.dtype in (torch.float64, torch.complex128)
    if double and _is_available(autocast):  # other dtypes are what autocast is there to change
        code = f'with torch.autocast("{device.type}", dtype=torch.bfloat16):'
        surroundings["torch.autocast"] = Surroundings(autocast, code)
    if subject.context.is_thorough and hasattr(torch.get_device_module(device), "Stream"):
        surroundings["another stream"] = Surroundings(partial(_another_stream, device))
    return surroundings


def _is_available(autocast: Callable[[], object]) -> bool:
    """Tell whether a device has autocast. torch's is_autocast_available() is True for every out-of-tree backend."""
    try:
        autocast()
    except (AssertionError, RuntimeError):
        return False
    return True


@contextmanager
def _deterministic() -> Iterator[None]:
    """Turn deterministic mode on, which also fills new tensors. Operators that have no deterministic form warn."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")  # use_deterministic_algorithms() also imports torch's compiler
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_deterministic_debug_mode(before)


@contextmanager
def _more_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _dirty(subject: Subject) -> Iterator[None]:
    """Free memory of the sizes of the call that is full of NaN and -1, which an allocator hands out again.

    Deterministic mode fills tensors, but not the memory that a kernel gets from an allocator.
    """
    sizes = {tensor.numel() * tensor.element_size() for tensor in (*subject.leaves, *subject.outputs)}  # of any layout
    for size in sizes:
        blocks = [
            torch.full((size,), 0xFF, dtype=torch.uint8, device=subject.context.device.string) for _ in range(BLOCKS)
        ]
        del blocks
    yield


@contextmanager
def _another_stream(device: torch.device) -> Iterator[None]:
    """Call on a stream of its own, after what has been begun, and before what follows."""
    module = torch.get_device_module(device)
    before, stream = module.current_stream(), module.Stream()
    stream.wait_stream(before)
    try:
        with module.stream(stream):
            yield
    finally:
        before.wait_stream(stream)
