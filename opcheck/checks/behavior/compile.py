"""Compiled by torch.compile, the operator gives the same values and gradients: no branch is for compilers alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from opcheck.checks.calls import Result, result
from opcheck.checks.relations import Row, both, relation
from opcheck.checks.subject import Subject


def rows(subject: Subject, here: Result) -> Iterator[Row]:
    """Compare a call of the compiled operator with an ordinary one."""
    torch.compiler.reset()  # it compiles a function a few times only, and then calls it as it is
    # Traced and differentiated as for a compiler, but run by eager kernels: what a compiler makes is its own matter.
    compiled = torch.compile(subject.function.operator, backend="aot_eager", dynamic=False)
    with torch.set_grad_enabled(bool(subject.supports.backward)):  # which a compiler asks for where inputs require grad
        got = result(subject.calling(operator=compiled))
    yield from both("under torch.compile", got, here)


check = relation(rows)
