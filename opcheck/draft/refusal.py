"""Decides from its message whether an exception is a refusal (something is not implemented) or, in doubt, a mistake."""

from __future__ import annotations

import os
import re

from opcheck.text import BY_SOFTMAX

MISTAKES = re.compile(
    r"(Assertion|Attribute|Index|Key|Name|UnboundLocal|ZeroDivision|Recursion|Syntax|Import|OS)Error\b|Stop\w+\b"
    r"|returned an (invalid gradient|incorrect number)|unsupported operand|modified by an inplace operation"
    r"|can't allocate|out of memory|a second time"
)
"""The pattern of mistakes: an index out of range, a missing attribute, gradients of the wrong shape."""

NO_SUCH_DTYPE = re.compile(r"^KeyError: '?(torch\.)?(complex|b?float|u?int|bool)\d*\b")
"""The pattern of a failed look-up in a table of dtypes. It is a refusal, although a KeyError."""

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
    r"|(inside of( a)?|under) vmap|randomness (error )?mode|doesn't have storage|level=\d"
)
"""The pattern of refusals: there is no formula, kernel or rule, or torch.func cannot trace the code."""

UNKNOWN = re.compile(r"unexpected keyword argument|got some positional-only|invalid keyword|takes no keyword")
"""The pattern of errors about a parameter that does not exist."""

NO_GPU = re.compile(
    r"\d active drivers|[nN]o CUDA GPUs|NVIDIA driver|not compiled with (CUDA|XPU)|accessed from Triton \(cpu tensor"
    r"|\b(must|should|expected to) be (all )?(an? |on )*(the )?(CUDA|GPU|cuda|gpu)\b"
    r"|^AssertionError.*\.is_cuda\b"
)
"""The pattern of errors of an operator that runs on a GPU only, and got tensors on the CPU."""

BATCHED = re.compile(r"doesn't match the broadcast shape")
"""The pattern of errors under vmap if an unbatched tensor is written to in place."""

OWN = {"out": UNKNOWN, "vmap": BATCHED, "rev_over_fwd": BY_SOFTMAX}
"""Further patterns of refusals, each for one key of `supports` only."""


def needs_gpu(what: str, source: str = "") -> bool:
    """Return whether an exception means that an operator runs on a GPU only.

    what: the exception, as `Class: message`; source: the source lines that raised it.
    """
    return NO_GPU.search(f"{what} {source}") is not None


def has_interpreter() -> bool:
    """Return whether Triton runs kernels in its interpreter."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def is_refusal(what: str, key: str = "") -> bool:
    """Return whether an exception, as `Class: message`, means that something is not implemented.

    key: the key of `supports` that was tested, for patterns that apply to it only.
    """
    what = " ".join(what.split())
    if NO_SUCH_DTYPE.search(what) or (key in OWN and OWN[key].search(what)):
        return True
    if MISTAKES.search(what) and "NotImplemented" not in what.partition(":")[0]:
        return False
    return REFUSALS.search(what) is not None
