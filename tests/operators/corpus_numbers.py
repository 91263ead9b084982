"""Faults by rule: each way to spoil a number, in each derivative, of one or several inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from operators.corpus_entries import COMPLEX, ONE, REAL, TWO, Fault, Formula, Maker, Tensors

Spoil = Callable[[Tensor], Tensor]


def one_wrong_entry(g: Tensor) -> Tensor:
    """Change the last element by two percent."""
    off = torch.ones(g.shape, dtype=g.dtype)
    off.view(-1)[-1] = 1.02
    return g * off


BOTH = {
    "wrong_sign": lambda g: -g,
    "constant_factor": lambda g: 1.01 * g,
    "one_wrong_entry": one_wrong_entry,
    "zero": torch.zeros_like,
    "transposed": lambda g: g.mT,
    "mean": lambda g: g.mean(0, keepdim=True).expand(g.shape),
}
COMPLEX_ONLY = {
    "conjugated": torch.conj_physical,
    "real_part": lambda g: torch.complex(g.real, torch.zeros_like(g.real)),
    "wrong_phase": lambda g: 1j * g,
}
SPOILS = [(name, spoil, (REAL, COMPLEX)) for name, spoil in BOTH.items()]
SPOILS += [(name, spoil, (COMPLEX,)) for name, spoil in COMPLEX_ONLY.items()]


# Squares, and their backward pass g(x, v) = v conj(2 x), which is a function of x and v with derivatives of its own.
SQUARE_PULLED = Formula(
    value=lambda x, v: (2 * v * x.conj(),),
    vjp=lambda xv, w: (2 * xv[1] * w[0].conj(), 2 * xv[0] * w[0]),
    jvp=lambda xv, t: (2 * t[1] * xv[0].conj() + 2 * xv[1] * t[0].conj(),),
)
SQUARE = Formula(
    value=lambda x: (x * x,),
    vjp=lambda x, v: SQUARE_PULLED(*x, *v),
    jvp=lambda x, t: (2 * x[0] * t[0],),
)

# The same for two inputs and two outputs: (x, y) -> (x y, y y).
PRODUCTS_PULLED = Formula(
    value=lambda x, y, v, w: (v * y.conj(), v * x.conj() + 2 * w * y.conj()),
    vjp=lambda p, c: (
        p[2] * c[1].conj(),
        p[2] * c[0].conj() + 2 * p[3] * c[1].conj(),
        p[1] * c[0] + p[0] * c[1],
        2 * p[1] * c[1],
    ),
    jvp=lambda p, t: (
        t[2] * p[1].conj() + p[2] * t[1].conj(),
        t[2] * p[0].conj() + p[2] * t[0].conj() + 2 * t[3] * p[1].conj() + 2 * p[3] * t[1].conj(),
    ),
)
PRODUCTS = Formula(
    value=lambda x, y: (x * y, y * y),
    vjp=lambda x, v: PRODUCTS_PULLED(*x, *v),
    jvp=lambda x, t: (t[0] * x[1] + x[0] * t[1], 2 * x[1] * t[1]),
)


def spoiled(formula: Formula, mode: str, spoil: Spoil, place: int) -> Formula:
    """Return a formula with one of the results of its `vjp` or `jvp` spoiled."""
    derivative = getattr(formula, mode)

    def wrong(x: Tensors, v: Tensors) -> Tensors:
        found = list(derivative(x, v))
        found[place] = spoil(found[place])
        return tuple(found)

    return replace(formula, **{mode: wrong})


def spoiled_pullback(formula: Formula, pulled: Formula, mode: str, spoil: Spoil, place: int) -> Formula:
    """Return a formula that is right at first order, with a derivative of its backward pass spoiled."""
    wrong = spoiled(pulled, mode, spoil, place)
    return replace(formula, vjp=lambda x, v: wrong(*x, *v))


def faults_by_rule() -> Iterator[Fault]:
    """Yield a fault for each way to spoil each derivative in each place."""
    for name, spoil, dtypes in SPOILS:
        for where, check, formula, leaves in places(spoil):
            yield Fault(
                name=f"{name}_in_{where}",
                function=formula,
                leaves=leaves,
                dtypes=dtypes,
                caught_by=frozenset({check}),
            )


def places(spoil: Spoil) -> Iterator[tuple[str, str, Formula, Maker]]:
    """Yield the spoiled functions, with the check that finds it and the leaves."""
    yield "the_gradient", "backward", spoiled(SQUARE, "vjp", spoil, 0), ONE
    yield "the_gradient_of_the_second_input", "backward", spoiled(PRODUCTS, "vjp", spoil, 1), TWO
    yield "the_tangent", "forward_ad", spoiled(SQUARE, "jvp", spoil, 0), ONE
    yield "the_tangent_of_the_second_output", "forward_ad", spoiled(PRODUCTS, "jvp", spoil, 1), TWO
    for mode, check, single, several in (
        ("vjp", "rev_over_rev", {"input": 0, "cotangent": 1}, {"second_input": 1, "second_cotangent": 3}),
        ("jvp", "fwd_over_rev", {"tangent": 0}, {"second_tangent": 1}),
    ):
        for what, place in single.items():
            formula = spoiled_pullback(SQUARE, SQUARE_PULLED, mode, spoil, place)
            yield f"the_second_order_{mode}_of_the_{what}", check, formula, ONE
        for what, place in several.items():
            formula = spoiled_pullback(PRODUCTS, PRODUCTS_PULLED, mode, spoil, place)
            yield f"the_second_order_{mode}_of_the_{what}", check, formula, TWO


FAULTS = tuple(faults_by_rule())
