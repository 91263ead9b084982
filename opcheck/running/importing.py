"""Imports in a process that is forked afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Import without garbage collection, which finds nothing there, and costs a fifth of the time that torch takes.

    What has been imported is not collected later, either: forks share its memory as long as nothing writes to it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
