"""The surroundings of a call that must not change its results: modes, threads, streams, and contents of free memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch

from opcheck.checks.subject import Subject

T = TypeVar("T")


class Surroundings(NamedTuple):
    """A context in which a call must return the usual results."""

    enter: Callable[[], AbstractContextManager[Any]]
    """The function that returns a new context manager."""
    code: str = ""
    """A line of plain torch with the same effect; empty if there is none."""


DIRTY = "[torch.full((x.numel() * x.element_size(),), 255, dtype=torch.uint8) for x in 4 * [*inputs, *outputs]]"
BLOCKS = 8
"""The number of blocks of each size that are freed: a call allocates outputs, intermediate results and gradients."""


def within(surroundings: Iterable[Surroundings], call: Callable[[], T]) -> T:
    """Return what a call returns in surroundings, which are nested in their order."""
    with ExitStack() as stack:
        for around in surroundings:
            stack.enter_context(around.enter())
        return call()


def surroundings_of(subject: Subject) -> dict[str, Surroundings]:
    """Return the surroundings to test a subject in, by name. Another stream is slow, so only `thorough` includes it."""
    device = torch.device(subject.context.device.string)
    autocast = autocast_on(subject)
    threads = partial(_changed, torch.get_num_threads, torch.set_num_threads, torch.get_num_threads() + 1)
    surroundings = {
        "another number of threads": Surroundings(threads, "torch.set_num_threads(torch.get_num_threads() + 1)"),
        "deterministic mode": Surroundings(deterministic, 'torch.set_deterministic_debug_mode("warn")'),
        "memory with other contents": Surroundings(partial(dirty, subject), DIRTY),
    }
    double = subject.output_info.dtype in (torch.float64, torch.complex128)
    if double and autocast:  # autocast does not convert these; low_precision_grad tests it in float32
        surroundings["torch.autocast"] = autocast
    if subject.context.is_thorough and hasattr(torch.get_device_module(device), "Stream"):
        surroundings["another stream"] = Surroundings(partial(_another_stream, device))
    return surroundings


def autocast_on(subject: Subject) -> Surroundings | None:
    """Return autocast to bfloat16 on the device of a subject; None if the device has no autocast.

    torch's is_autocast_available() is True for every out-of-tree backend, so it is not used.
    """
    kind = torch.device(subject.context.device.string).type
    enter = partial(torch.autocast, kind, dtype=torch.bfloat16)
    try:
        enter()
    except (AssertionError, RuntimeError):
        return None
    return Surroundings(enter, f'with torch.autocast("{kind}", dtype=torch.bfloat16):')


@contextmanager
def deterministic() -> Iterator[None]:
    """Enable deterministic mode, which also fills new tensors.

    Operators without a deterministic implementation warn. These warnings are suppressed.
    """
    # use_deterministic_algorithms() would import torch's compiler
    mode = _changed(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, "warn")
    with mode, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _changed(read: Callable[[], Any], write: Callable[[Any], object], value: Any) -> Iterator[None]:
    """Change a setting of torch, and restore it at exit."""
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


@contextmanager
def dirty(subject: Subject) -> Iterator[None]:
    """Free memory blocks of the sizes that the call uses, so that the allocator reuses them in the call.

    All bytes are 0xFF: NaN as floating-point numbers, -1 as integers. Deterministic mode fills new tensors, but not the
    memory that a kernel requests from the allocator.
    """
    # Not nbytes, which sparse COO tensors lack.
    sizes = {tensor.numel() * tensor.element_size() for tensor in (*subject.leaves, *subject.outputs)}
    for size in sizes:
        blocks = [
            torch.full((size,), 0xFF, dtype=torch.uint8, device=subject.context.device.string) for _ in range(BLOCKS)
        ]
        del blocks
    yield


@contextmanager
def _another_stream(device: torch.device) -> Iterator[None]:
    """Enter a new stream. It waits for the current stream, which waits for the new one at exit."""
    module = torch.get_device_module(device)
    before, stream = module.current_stream(), module.Stream()
    stream.wait_stream(before)
    try:
        with module.stream(stream):
            yield
    finally:
        before.wait_stream(stream)
