"""Calls that may fail: which exceptions are refusals by the operator, and which are mistakes of opcheck itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from traceback import walk_tb
from typing import TypeVar

import torch

from opcheck.derivatives.extent import TooLarge

NO_REFUSAL = (TooLarge, MemoryError, torch.OutOfMemoryError)
"""Exceptions that do not show what a function supports."""


T = TypeVar("T")


def tried(call: Callable[[], T], *, catch_out_of_memory: bool = False) -> T | Exception:
    """Return the result of a call, or the exception that it raises.

    catch_out_of_memory: whether to return the exceptions of NO_REFUSAL, too, for callers that can do with less memory.

    Raises NO_REFUSAL otherwise, and bugs of opcheck itself (see `is_bug_of_opcheck`).
    """
    try:
        return call()
    except Exception as error:
        for_memory = issubclass(type(error), NO_REFUSAL)  # `type()`, since its __class__ may raise
        if is_bug_of_opcheck(error) or (for_memory and not catch_out_of_memory):
            raise
        return error


def is_bug_of_opcheck(error: BaseException) -> bool:
    """Return whether an exception is a bug in opcheck itself, rather than an error of the operator.

    It is if it was raised in opcheck and has a type that torch does not raise for the outputs of an operator (such as
    NameError), or if it was raised in a folder whose code never handles tensors.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    place = frames[-1].f_code.co_filename if frames else ""
    kinds = (NameError, AttributeError, ImportError, AssertionError)
    is_of_a_kind = issubclass(type(error), kinds)
    return place.startswith(PACKAGE if is_of_a_kind else WITHOUT_TENSORS)


# Strings, which compare faster than paths: each refused sample is compared with them.
PACKAGE = f"{Path(__file__).resolve().parent.parent}{os.sep}"
WITHOUT_TENSORS = tuple(f"{Path(PACKAGE, folder)}{os.sep}" for folder in ("spec", "planning", "samples/derive"))
"""The folders whose code never handles tensors."""
