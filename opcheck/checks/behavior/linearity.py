"""Gradients are linear in cotangents, and tangents of outputs in tangents of inputs, at any scale and in any memory.

Vectors are scaled up and down, permuted or offset in memory, lazily conjugated and negated. NaN must propagate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from opcheck.checks.calls import Call, Result, push, required, tangents_of
from opcheck.checks.plain_torch import CALL, TANGENTS, asserted, for_vectors
from opcheck.checks.relations import Row, at_once, relation, row
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import NO_GRAPH, Verdict, fails
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import Tensors
from opcheck.derivatives.coordinates import vector
from opcheck.samples.inputs import unchanged
from opcheck.samples.layouts import conjugated_view, negated_view
from opcheck.strides import MEMORIES, behind_others, permuted

View = Callable[[Tensor], Tensor]
LARGE, LARGE_IN_HALF, SMALL = 20, 10, -10
"""Exponents of the powers of two, which are exact, that scale the vectors. LARGE is that of loss scaling, and is used
with the negative sign of a loss that is maximized. LARGE_IN_HALF replaces it in float16, whose range is smaller. SMALL
is that of averages over many elements."""
LARGEST = 1e9
"""`LARGE` is used if the largest number of the coarsest dtype is above this."""

CONJUGATED = "v.conj().resolve_conj().conj()"
NEGATED = "torch.complex(torch.zeros_like(v.real), -v.real).conj().imag"
OF_NAN = {
    "gradients": f"""\
{CALL}plain = pulled(outputs, inputs, cotangents)
actual = pulled(outputs, inputs, [v * torch.nan for v in cotangents])""",
    "tangents": f"""\
{TANGENTS}
plain = pushed(function, inputs, vectors)
actual = pushed(function, inputs, [v * torch.nan for v in vectors])""",
}
WHERE_OTHERS_ARE = """\
actual = [y[p != 0] for y, p in zip(actual, plain)]
expected = [torch.full_like(y, torch.nan) for y in actual]"""
HARM = (
    "loss scaling detects overflow by inf or NaN in gradients; let inf and NaN propagate instead of masking them "
    "(where, nan_to_num, clamp)"
)


def rows(subject: Subject, here: Result) -> Iterator[Row | Verdict]:
    """Compare gradients and tangents for vectors that are scaled, or in other memory, with those for plain vectors."""
    if not here.has_graph:
        yield NO_GRAPH
        return
    call = Call.of(subject)
    yield from _linear(subject, "gradients", "cotangents", call.cotangents, call.gradient, here.gradient)
    vectors = tangents_of(subject)

    def pushed(tangents: Tensors) -> Tensor:
        return vector(push(subject, tangents))

    if vectors:
        plain = required("an ordinary call in forward mode", lambda: pushed(vectors), check="forward_ad")
        yield from _linear(subject, "tangents", "tangents", vectors, pushed, plain)


def _linear(
    subject: Subject, results: str, what: str, vectors: Tensors, derivative: Callable[[Tensors], Tensor], plain: Tensor
) -> Iterator[Row | Verdict]:
    may_be_negated = _may_be_negated(subject)
    exponent = LARGE if torch.finfo(subject.output_info.dtype).max > LARGEST else LARGE_IN_HALF
    large, small = -(2.0**exponent), 2.0**SMALL

    def scaled(
        which: str, number: float, varied: str = "", factor: str = "", view: View = unchanged, memory: View = unchanged
    ) -> Row:
        """Return the derivative for vectors scaled by a number, lazily changed by `view`, in other memory."""
        name = f"the {results} for {which}"
        code = for_vectors(varied, factor, forward=results == "tangents") if varied else ""
        moved = (view(v * number).resolve_conj().resolve_neg() for v in vectors)
        return row(name, lambda: derivative(tuple(view(memory(v)) for v in moved)) / number, plain, code)

    def together() -> Iterator[Row]:
        yield scaled(f"large {what}", large, view=negated_view if may_be_negated else unchanged, memory=permuted)
        yield scaled(f"small {what}", small, view=conjugated_view, memory=behind_others)

    def each() -> Iterator[Row]:
        for factor, number in ((f"-2**{exponent}", large), (f"2**{SMALL}", small)):
            yield scaled(f"{what} scaled by {factor}, after dividing by {factor},", number, f"{factor} * v", factor)
        if any(v.is_complex() for v in vectors):
            yield scaled(f"lazily conjugated {what}", 1.0, CONJUGATED, view=conjugated_view)
        if may_be_negated:
            yield scaled(f"lazily negated {what} (as after x.conj().imag)", 1.0, NEGATED, view=negated_view)
        in_permuted = f"{what} in permuted memory (transposed, channels last)"
        yield scaled(in_permuted, 1.0, MEMORIES["transposed"].code, memory=permuted)
        yield scaled(f"{what} that lie behind others in memory", 1.0, MEMORIES["offset"].code, memory=behind_others)

    yield from at_once(subject, together, each)
    unknown = tried(lambda: derivative(tuple(v * torch.nan for v in vectors)))
    if isinstance(unknown, Tensor) and bool(((plain != 0) & unknown.isfinite()).any()):  # raising is allowed
        title = (
            f"linearity: {results} are finite for {what} of NaN; expected NaN wherever the {results} for ordinary "
            f"{what} are not zero"
        )
        yield fails(title, HARM, code=asserted(f"{OF_NAN[results]}\n{WHERE_OTHERS_ARE}", ", equal_nan=True"))


def _may_be_negated(subject: Subject) -> bool:
    """Return whether a lazily negated vector can reach the operator.

    torch makes one for the imaginary part of x.conj(). It can reach the operator if a complex dtype is claimed, or if
    a leaf is a lazily negated or conjugated view.
    """
    claimed = subject.case.claims.backward
    return any(name.startswith("complex") for name in claimed) or any(
        leaf.is_neg() or leaf.is_conj() for leaf in subject.leaves if leaf.layout is torch.strided
    )


check = relation(rows)
