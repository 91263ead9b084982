"""The reverse-mode Jacobian equals the numerical one, also through non-contiguous and expanded cotangents."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from opcheck.checks.context import Subject, per_sample
from opcheck.checks.evidence import ask
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives.analytical import vjp
from opcheck.samples.memory import noncontiguous


def judge(subject: Subject) -> Verdict:
    """Compare the Jacobians; then the memory of cotangents must not matter."""
    verdict = ask(subject, "reverse")
    return _memory_of_cotangents(subject) if verdict.passed else verdict


def _memory_of_cotangents(subject: Subject) -> Verdict:
    outputs = subject.differentiable_outputs
    if not outputs or any(output.layout is not torch.strided for output in outputs):
        return HOLDS
    for memory, plain, special in _cotangents(outputs):
        expected = vjp(outputs, subject.leaves, plain)
        got = vjp(outputs, subject.leaves, special)
        for index, (e, g) in enumerate(zip(expected, got, strict=True)):
            e, g = _dense(e), _dense(g)
            if not torch.allclose(g, e, rtol=_rounding(e), atol=_rounding(e), equal_nan=True):
                most = float((g - e).abs().max())
                return fails(
                    f"backward: the gradient of input {index} depends on the memory of the cotangent",
                    f"a {memory} cotangent gives a gradient that is off by up to {most:.4g} from that of a contiguous "
                    "one with the same values",
                )
    return HOLDS


def _cotangents(outputs: tuple[Tensor, ...]) -> Iterator[tuple[str, tuple[Tensor, ...], tuple[Tensor, ...]]]:
    plain = tuple(torch.rand_like(output, memory_format=torch.contiguous_format).detach() - 0.5 for output in outputs)
    yield "non-contiguous", plain, tuple(noncontiguous(v) for v in plain)
    # What the backward pass of sum() hands over: one number, expanded.
    ones = tuple(torch.ones((), dtype=v.dtype, device=v.device).expand(v.shape) for v in plain)
    yield "expanded (stride 0)", tuple(v.contiguous() for v in ones), ones


def _dense(gradient: Tensor) -> Tensor:
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


def _rounding(like: Tensor) -> float:
    """A generous multiple of the rounding unit: the same formula may be summed in another order."""
    return float(torch.finfo(like.dtype).eps) * 1e4


check = per_sample(judge)
