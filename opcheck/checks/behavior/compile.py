"""The operator gives the same values and gradients under torch.compile.

This finds mistakes in code that runs only while compiling, as behind `torch.compiler.is_compiling()`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from opcheck.checks.calls import Result, result
from opcheck.checks.relations import Row, both, relation
from opcheck.checks.subject import Subject


def rows(subject: Subject, here: Result) -> Iterator[Row]:
    """Compare a call of the compiled operator with an ordinary call."""
    torch.compiler.reset()  # after a few compilations of a function, torch calls it uncompiled
    # aot_eager traces and differentiates the operator, but runs eager kernels: code generation is not under test.
    compiled = torch.compile(subject.function.operator, backend="aot_eager", dynamic=False)
    with torch.set_grad_enabled(bool(subject.supports.backward)):  # in grad mode, backward is compiled, too
        got = result(subject.calling(operator=compiled))
    yield from both("under torch.compile", lambda: got, here)


check = relation(rows)
