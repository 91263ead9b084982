"""Tells a refusal, which says that something is not implemented, from a mistake. In doubt, it is a mistake."""

from __future__ import annotations

import os
import re

MISTAKES = re.compile(
    r"(Assertion|Attribute|Index|Key|Name|UnboundLocal|ZeroDivision|Recursion|Syntax|Import|OS)Error\b|Stop\w+\b"
    r"|returned an (invalid gradient|incorrect number)|unsupported operand|modified by an inplace operation"
    r"|can't allocate|out of memory|a second time"
)
"""What no refusal begins with, or says: an index out of range, a missing attribute, gradients that do not fit."""

NO_SUCH_DTYPE = re.compile(r"^KeyError: '?(torch\.)?(complex|b?float|u?int|bool)\d*\b")
"""What a table of dtypes says that lacks one."""

REFUSALS = re.compile(
    r"NotImplemented\w*\b"
    r"|not (yet |currently |been )*(implement|support|differentiable)|has(n't| not) been implemented"
    r"|(does|do|is|are)(n't| not) (yet |currently )?(support|implement|differentiable)"
    r"|not have (an? )?(vmap|jvp|\w+ kernel)"
    r"|\b(un|non-?)(supported|implemented|differentiable)\b"
    r"|\bno (autograd (formula|kernel)|backward|batching rule|derivative|formula|gradient|jvp|kernel|vmap)"
    r"|kernel was not registered|[mM]ust implement (the|either)|must override the setup_context"
    r"|once_differentiable|only (supports?|implemented|defined|differentiable|works)"
    r"|\bvmap: |functorch|functionaliz|data-dependent control flow|\.item\(\) on a Tensor"
    r"|batched tensors?|BatchedTensor"
    r"|inside of (a )?vmap|randomness (error )?mode|doesn't have storage|level=\d"
)
"""What says that there is no formula, no kernel, no rule, or what torch.func raises where it cannot look inside."""

UNKNOWN = re.compile(r"unexpected keyword argument|got some positional-only|invalid keyword|takes no keyword")
"""What says that there is no such parameter."""

NO_GPU = re.compile(
    r"\d active drivers|[nN]o CUDA GPUs|NVIDIA driver|not compiled with (CUDA|XPU)|accessed from Triton \(cpu tensor"
    r"|\b(must|should|expected to) be (all )?(an? |on )*(the )?(CUDA|GPU|cuda|gpu)\b"
    r"|^AssertionError.*\.is_cuda\b"
)
"""What says that an operator runs on a GPU only, and got no tensors on one."""

NOT_INTERPRETED = re.compile(r"InterpreterError: AttributeError.*'(float|int)' object has no attribute")
"""What Triton's interpreter says of a kernel that calls methods of numbers, which it does not have. Another call may
do without."""

BATCHED = re.compile(r"doesn't match the broadcast shape")
"""What says, under vmap, that something unbatched is written to in place."""

SOFTMAX = re.compile(r"modified by an inplace operation: \[.*\], which is output 0 of Exp, is at version 1")
"""What backward over forward mode raises for torch's softmax, whose jvp writes to what its derivative needs."""

OWN = {"out": UNKNOWN, "vmap": BATCHED, "rev_over_fwd": SOFTMAX}
"""What is a refusal of one key of `supports` only."""


def needs_gpu(what: str, source: str = "") -> bool:
    """Tell whether an exception, raised by these lines, says that an operator runs on a GPU only."""
    return NO_GPU.search(f"{what} {source}") is not None


def has_interpreter() -> bool:
    """Tell whether kernels in Triton run in its interpreter."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def is_beyond_interpreter(what: str) -> bool:
    """Tell whether an exception says that Triton's interpreter cannot run a kernel."""
    return NOT_INTERPRETED.search(what) is not None


def is_refusal(what: str, key: str = "") -> bool:
    """Tell whether an exception, as `Class: message`, says that something is not implemented.

    key: the key of `supports` that is in question.
    """
    what = " ".join(what.split())
    if NO_SUCH_DTYPE.search(what) or (key in OWN and OWN[key].search(what)):
        return True
    if MISTAKES.search(what) and "NotImplemented" not in what.partition(":")[0]:
        return False
    return REFUSALS.search(what) is not None
