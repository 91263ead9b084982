"""The same faults in other places: of several inputs and outputs, of second order, of sparse inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from operators.corpus_batching import looking, looking_away
from operators.corpus_cotangents import noise
from operators.corpus_entries import COMPLEX, ONE, SECOND, TWO, Fault, Formula, Tensors
from operators.corpus_numbers import PRODUCTS, PRODUCTS_PULLED, SQUARE, SQUARE_PULLED, spoiled
from operators.corpus_precision import single
from operators.corpus_sparse import PULLED, SECOND_ORDER, sparse, square

BACKWARD = frozenset({"backward"})
UNDEFINED = frozenset({"undefined_grad"})
DTYPES = frozenset({"grad_dtypes"})
REPEATED = frozenset({"nondeterminism"})


def several(name: str, function: Callable[..., Tensors], caught_by=BACKWARD, **fields) -> Fault:
    return Fault(name=f"{name}_of_several", function=function, leaves=TWO, caught_by=frozenset(caught_by), **fields)


def second_order(name: str, pulled: Formula, caught_by=SECOND, **fields) -> Fault:
    function = replace(SQUARE, vjp=lambda x, v: pulled(*x, *v))
    return Fault(name=f"{name}_at_second_order", function=function, leaves=ONE, caught_by=caught_by, **fields)


def shaky(g: Tensor) -> Tensor:
    return g * (1 + 1e-13 * noise(g))


def defined(v: Tensor | None) -> Tensor:
    return v + 0  # None + 0 raises


def all_defined(formula: Formula) -> Formula:
    """Return a formula that crashes on undefined cotangents."""
    return replace(formula, vjp=lambda x, v: formula.vjp(x, tuple(defined(part) for part in v)), materialize=False)


def ones_for_undefined(formula: Formula) -> Formula:
    """Return a formula of one output that takes an undefined cotangent for ones."""

    def vjp(x: Tensors, v: tuple[Tensor | None, ...]) -> Tensors:
        return formula.vjp(x, tuple(torch.ones(2, 2, dtype=x[0].dtype) if part is None else part for part in v))

    return replace(formula, vjp=vjp, materialize=False)


def unless_contiguous(x: Tensors, v: Tensors) -> Tensors:
    first, last = PRODUCTS.vjp(x, v)
    return first, last if v[1].is_contiguous() else 1.1 * last


SEVERAL = (
    several("missing_conjugate", replace(PRODUCTS, vjp=lambda x, v: (v[0] * x[1], v[0] * x[0])), dtypes=(COMPLEX,)),
    several("shaky_backward", spoiled(PRODUCTS, "vjp", shaky, 1), REPEATED),
    several("random_value", lambda x, y: (x * y, x * y * noise(y)), {"backward", "forward_ad", *SECOND}),
    several("gradient_returned_in_single_precision", spoiled(PRODUCTS, "vjp", single, 1), SECOND, beside=DTYPES),
    several(
        "wrong_unless_contiguous",
        replace(PRODUCTS, vjp=unless_contiguous),
        frozenset(),
        beside=BACKWARD,
        either=BACKWARD | SECOND,
    ),
    several("backward_looking", spoiled(PRODUCTS, "vjp", looking, 1), {"batched_grad"}),
    several("backward_looking_away", spoiled(PRODUCTS, "vjp", looking_away, 1), {"batched_grad"}),
    several("tangent_looking", spoiled(PRODUCTS, "jvp", looking, 1), {"batched_forward_grad"}),
    several("tangent_looking_away", spoiled(PRODUCTS, "jvp", looking_away, 1), {"batched_forward_grad"}),
)

AT_SECOND_ORDER = (
    second_order(
        "missing_conjugate",
        replace(SQUARE_PULLED, vjp=lambda xv, w: (2 * xv[1] * w[0], 2 * xv[0] * w[0])),
        SECOND_ORDER,
        dtypes=(COMPLEX,),
    ),
    second_order("crash_on_an_undefined_cotangent", all_defined(SQUARE_PULLED), SECOND_ORDER, raises=True),
    second_order("undefined_cotangent_taken_for_ones", ones_for_undefined(SQUARE_PULLED), SECOND_ORDER),
    several(
        "crash_on_an_undefined_cotangent_at_second_order",
        replace(PRODUCTS, vjp=lambda x, v: all_defined(PRODUCTS_PULLED)(*x, *v)),
        SECOND_ORDER,
        raises=True,
    ),
)

SQUARE_OF_SPARSE = square(PULLED)
OF_SPARSE = (
    sparse(
        "missing_conjugate_of_sparse",
        Formula(SQUARE_OF_SPARSE.value, lambda x, v: (2 * v[0] * x[0].to_dense(),)),
        dtypes=(COMPLEX,),
        either=SECOND_ORDER,  # what is differentiated again is to_dense(), which keeps to specified elements
    ),
    sparse("shaky_backward_of_sparse", spoiled(SQUARE_OF_SPARSE, "vjp", shaky, 0), caught_by=REPEATED),
    sparse(
        "random_value_of_sparse",
        lambda x: ((x.to_dense(masked_grad=False) + 1) * noise(x.to_dense()),),
        either=SECOND_ORDER,
    ),
    sparse(
        "crash_on_an_undefined_cotangent_of_sparse", all_defined(SQUARE_OF_SPARSE), caught_by=UNDEFINED, raises=True
    ),
    sparse("undefined_cotangent_of_sparse_taken_for_ones", ones_for_undefined(SQUARE_OF_SPARSE), caught_by=UNDEFINED),
    sparse(
        "gradient_of_sparse_returned_in_single_precision",
        spoiled(SQUARE_OF_SPARSE, "vjp", single, 0),
        caught_by=SECOND_ORDER,
        beside=DTYPES,
    ),
)

FAULTS = (*SEVERAL, *AT_SECOND_ORDER, *OF_SPARSE)
