"""Finds the likely cause where two Jacobians differ: a known mistake, randomness, or a cut graph.

A mistake of `mistakes.py` is reported only if it predicts a block (one output by one leaf) within tolerance, and far
better than the numerical block does. What ordinary calls show comes first: results are random, or a graph is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import (
    Differentiable,
    Mode,
    Primal,
    Pushforward,
    functions_in,
    has_forward,
    layers,
    nodes_of,
)
from opcheck.derivatives.coordinates import index_text, largest_difference, same, vector
from opcheck.derivatives.disagreement import Entry, Finding, Names, Pair
from opcheck.derivatives.mistakes import FAMILIES, Block, blocks_of, moduli
from opcheck.derivatives.point import Point
from opcheck.derivatives.refusals import tried
from opcheck.derivatives.tolerances import Numbers
from opcheck.text import with_more

UNEXPLAINED = ("unlike", "entries", "columns", "rows")
"""The kinds of findings that explain nothing."""
LISTED, FEW = 8, 3  # entries, and pairs of an output and an input, that a message lists; the rest is counted
Cause = tuple[str, str, dict[str, Any]]  # kind, sentence and plain data of a finding

CUT = "the gradient is zero: the graph is cut (detach, .data, item(), an integer cast), or backward returns None"
ZEROS = "the gradient is zero: a backward function on the way returns zeros"
NO_TANGENT = (
    "the tangent is zero: a jvp on the way returns zeros or None, or an operator has no formula and does not say"
)
SCRIPTED = (
    "the function has parts that TorchScript compiled, and these carry no tangents (PYTORCH_JIT=0 runs them as Python)"
)
LOST = {
    "reverse": "data saved without a graph (ctx attributes, .detach(), or numbers computed outside autograd)",
    "forward": "data that carry no tangent (ctx attributes, .detach(), or numbers computed outside autograd)",
}
LACKING = (
    "the {ordinal} derivative lacks a part: {node} uses a tensor of shape {shape} that forward computed and saved, "
    "which has no graph; compute it in backward, or return it as an output"
)
ORDINALS = {2: "second", 3: "third"}
RANDOM = "two calls with equal arguments differ by up to {:.2g}"
RESEED = {
    True: "; if it draws from the global random generators, reseed = true makes it draw the same numbers in each call",
    False: "; reseed = true is for operators whose forward pass is random, and does not help here",
}


@dataclass(frozen=True)
class Seen:
    """The results of ordinary calls of a function and its derivative, besides the Jacobians."""

    mode: Mode = "reverse"
    random: str = ""
    """The message that a repeated call returns another result; empty if it does not."""
    cut: frozenset[tuple[int, int]] | None = None
    """The pairs of an output and a leaf without a path in the graph from one to the other; None if unknown."""
    scripted: bool = False
    """Whether TorchScript compiled parts of the graph."""
    finite: bool = True
    """Whether the function is finite at the point."""
    through_jvp: bool = False
    """Whether forward mode is among the derivatives of which the Jacobian is taken."""
    constant: tuple[str, list[int]] | None = None
    """An autograd.Function that saves a tensor without a graph, although it depends on the leaves, and its shape."""

    @classmethod
    def of(cls, point: Point, mode: Mode) -> Seen:
        """Call a function and its derivative. If one of the calls raises, the result has its defaults."""
        seen = tried(
            lambda: cls(
                mode,
                _random(point, mode),
                *_graph(point, mode),
                bool(point.value.isfinite().all()),
                has_forward(point.function),
                _constant(point),
            ),
            catch_out_of_memory=True,
        )
        return cls(mode) if isinstance(seen, Exception) else seen


def _random(point: Point, mode: Mode) -> str:
    """Return which function returns another result if it is called again; an empty string if none does.

    Tests the function, each derivative up to that of the point, and then its backward pass or jvp.
    """
    steps: list[tuple[str, Callable[[], Tensor]]] = []
    for function, leaves in layers(point.function, point.leaves):
        called = {Primal: "the function", Pushforward: "the jvp"}.get(type(function), "the backward pass")
        steps.append((called, partial(_value, function, leaves)))
    derivative = partial(point.product, mode, point.probe_of(mode))
    steps.append(("the backward pass" if mode == "reverse" else "the jvp", derivative))
    for number, (called, call) in enumerate(steps):
        first, again = call(), call()
        if not same(first, again, point.rounding, point.rounding):
            return f"{called} is random: {RANDOM.format(largest_difference(first, again))}{RESEED[number == 0]}"
    return ""


def _value(function: Differentiable, leaves: Sequence[Tensor]) -> Tensor:
    return vector(function(*leaves))


def _graph(point: Point, mode: Mode) -> tuple[frozenset[tuple[int, int]] | None, bool]:
    """Return the pairs of an output and a leaf that no path connects, and whether TorchScript compiled a part.

    The pairs are None for derivatives and in forward mode, where they are unknown.
    """
    (primal, leaves), *derivatives = layers(point.function, point.leaves)
    outputs = primal(*leaves)
    scripted = any("DifferentiableGraph" in node.name() for node in nodes_of(outputs))
    if derivatives or mode == "forward":
        return None, scripted
    cut = set[tuple[int, int]]()
    for i, output in enumerate(outputs):
        gradients: Sequence[Tensor | None] = [None] * len(leaves)
        if output.requires_grad:
            gradients = torch.autograd.grad(
                output, leaves, torch.ones_like(output), retain_graph=True, allow_unused=True
            )
        cut |= {(i, j) for j, gradient in enumerate(gradients) if gradient is None}
    return frozenset(cut), scripted


def _constant(point: Point) -> tuple[str, list[int]] | None:
    """Return the name of an autograd.Function and the shape of a tensor that it saves: see `Seen.constant`."""
    (primal, leaves), *_ = layers(point.function, point.leaves)
    moved = [(leaf.detach() * (1 + 2**-10)).requires_grad_() for leaf in leaves]
    both = tried(lambda: [_saved(primal(*at)) for at in (leaves, moved)])
    for (node, here), (_, there) in () if isinstance(both, Exception) else zip(*both, strict=False):
        if here.shape != there.shape or not torch.equal(here, there):
            return node, [*here.shape]
    return None


def _saved(outputs: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    """Return the floating and complex tensors without a graph that each autograd.Function has saved, with its name."""
    return [
        (type(node).__name__, tensor)
        for node in functions_in(outputs)
        for tensor in (*node.saved_tensors, *vars(node).values())
        if isinstance(tensor, Tensor)
        and not tensor.requires_grad
        and (tensor.is_floating_point() or tensor.is_complex())
    ]


UNSEEN = Seen()


def diagnose(pair: Pair, numbers: Numbers, seen: Seen = UNSEEN) -> list[Finding]:
    """Return the likely causes of the difference of two Jacobians. Blocks with the same cause share a finding."""
    above, below = pair.names.outputs, pair.names.leaves
    findings: dict[str, Finding] = {}
    wrong = [block for block in blocks_of(pair, numbers, seen.mode) if bool(block.wrong.any())]
    if seen.random and wrong:
        places = [[block.i, block.j] for block in wrong]
        return [Finding("random", seen.random, wrong[0].i, wrong[0].j, {"blocks": places})]
    for block in wrong:
        kind, says, fields = _cause(block, seen)
        if kind == "zero":
            kind, says = _zero(block, pair.names, seen)
        elif kind in UNEXPLAINED and _is_scripted(pair.names, seen):
            kind, says, fields = "torchscript", SCRIPTED, {}
        elif kind in UNEXPLAINED and seen.constant and _of_input(block, pair.names) and not seen.through_jvp:
            node, shape = seen.constant
            says = LACKING.format(ordinal=_ordinal(pair.names), node=node, shape=shape)
            kind, fields = "second_order_lost", {"shape": shape}
        alike = findings.setdefault(f"{says} {fields}", Finding(kind, says, block.i, block.j, {**fields, "blocks": []}))
        alike.fields["blocks"].append([block.i, block.j])
    located = []
    for one in findings.values():
        pairs = [f"{above[i]} with respect to {below[j]}" for i, j in one.fields["blocks"]]
        located.append(replace(one, text=f"{with_more(pairs[:FEW], len(pairs))}: {one.text}"))
    return located


def _zero(block: Block, names: Names, seen: Seen) -> tuple[str, str]:
    """Return the kind and the sentence for a derivative that is zero where it should not be."""
    if _is_scripted(names, seen):
        return "torchscript", f"the derivative is zero: {SCRIPTED}"
    if _of_input(block, names):
        says = f"the {_ordinal(names)} derivative is zero: {names.function} uses {LOST[seen.mode]}"
        return "second_order_lost", says
    if seen.mode == "forward":
        return "zero", NO_TANGENT
    return "zero", CUT if seen.cut is None or (block.i, block.j) in seen.cut else ZEROS


def _is_scripted(names: Names, seen: Seen) -> bool:
    """Return whether forward mode meets backward passes that TorchScript compiled; its forward passes have tangents."""
    return seen.scripted and names.order > 1 and (seen.mode == "forward" or seen.through_jvp)


def _ordinal(names: Names) -> str:
    return ORDINALS.get(names.order, f"{names.order}th")


def _of_input(block: Block, names: Names) -> bool:
    """Return whether a block is the derivative of a derivative with respect to an input, not to a vector."""
    return names.order > 1 and block.j < len(names.leaves) - names.linear


def _cause(block: Block, seen: Seen) -> Cause:
    if not bool((block.n.isfinite() & block.a.isfinite()).all()):
        return _not_finite(block, seen)
    made = (mistake for family in FAMILIES for mistake in family(block))
    fitting = [mistake for mistake in made if block.explained_by(mistake)]
    if not fitting:
        return _somewhere(block)
    first = fitting[0]
    also = sorted({mistake.kind for mistake in fitting} - {first.kind})
    return first.kind, first.says + (f" (or {', '.join(also)})" if also else ""), {**first.fields, "also": also}


def _not_finite(block: Block, seen: Seen) -> Cause:
    says, fields = [], dict[str, Any](entries=[])
    for name, matrix in (("analytical", block.a), ("numerical", block.n)):
        bad = ~matrix.isfinite().all(3)
        fields[name] = int(bad.sum())
        if fields[name]:
            _, listed = _listed(block, "entries", bad)
            fields["entries"] += listed
            first = block.entry(int(bad.flatten().nonzero()[0])).describe()
            as_in = "" if bad.numel() == 1 else f" in {fields[name]} of {bad.numel()} entries"
            says.append(f"the {name} Jacobian is NaN or infinite{as_in}, as at {first}")
    if not seen.finite:
        says.append(
            "the function itself is NaN or infinite at the sample: move the sample into the domain, or, if this is "
            'intended, write outputs = { apply = "finite" }'
        )
    elif fields["numerical"]:
        says.append("the function is finite at the sample, not a step away: move the sample into the domain")
    else:
        says.append(
            "the function is finite there: the formula takes 0/0, 0*inf or inf-inf, which where() does not hide"
        )
    return "nan", "; ".join(says), fields


def _somewhere(block: Block) -> Cause:
    """Return where a block is wrong, if no known mistake explains it.

    Right entries that are at most atol in both Jacobians are not counted in the totals.
    """
    wrong, size = block.wrong, moduli(block.n)
    active = wrong | (torch.maximum(size, moduli(block.a)) > block.numbers.atol)
    bad, of = ({"entries": mask, "columns": mask.any(0).any(0), "rows": mask.any(2)} for mask in (wrong, active))
    count = {kind: int(mask.sum()) for kind, mask in bad.items()}
    most = {kind: int(mask.sum()) // 4 if kind == "entries" else int(mask.sum()) - 1 for kind, mask in of.items()}
    partial = [kind for kind in bad if count[kind] <= most[kind]]
    relative = (moduli(block.a - block.n) / size)[wrong & (size > block.numbers.atol)].tolist()
    greatest = float(f"{max(relative):.3g}") if relative else None
    fields: dict[str, Any] = {"wrong": count["entries"], "of": wrong.numel(), "relative_error": greatest}
    if not partial:
        how = "all of which should be zero" if greatest is None else f"by up to {greatest:g} times their size"
        verb, look = ("is", "looks") if count["entries"] == 1 else ("are", "look")
        says = f"{count['entries']} of {wrong.numel()} entries {verb} wrong, {how}, and {look} like no known mistake"
        return "unlike", says, fields
    kind = min(partial, key=lambda kind: count[kind])
    zero = bool(block.zero[wrong].all())
    places, fields[kind] = _listed(block, kind, bad[kind])
    what = {"entries": "entries", "columns": "elements of the input", "rows": "elements of the output"}[kind]
    how = f", and the {block.result} is zero there" if zero else ""
    verb = "is" if count[kind] == 1 else "are"
    says = f"only {count[kind]} of {bad[kind].numel()} {what} {verb} wrong{how}: {places}"
    return kind, says, {**fields, "count": count[kind], "zero": zero}


def _listed(block: Block, kind: str, bad: Tensor) -> tuple[str, list[dict[str, Any]]]:
    """Return the first places of a mask over entries, rows or columns, as text and as plain data."""
    positions = bad.flatten().nonzero().flatten().tolist()
    entries = [block.entry(k * block.n.shape[2] if kind == "rows" else k) for k in positions[:LISTED]]
    shown = {
        "entries": Entry.describe,
        "rows": lambda entry: index_text(entry.output_index, entry.output_part),
        "columns": lambda entry: index_text(entry.leaf_index, ""),
    }[kind]
    own = {"entries": "_", "rows": "output_", "columns": "leaf_index"}[kind]
    data = [{name: value for name, value in asdict(entry).items() if own in name} for entry in entries]
    return with_more(map(shown, entries), len(positions), "; " if kind == "entries" else ", "), data
