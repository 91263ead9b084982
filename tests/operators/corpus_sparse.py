"""Faults in the derivatives of sparse inputs, under masked and non-masked semantics."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from operators.corpus_entries import FORWARD, ONE, Fault, Formula, Maker, Tensors
from operators.corpus_numbers import SPOILS, spoiled

JACOBIAN = frozenset({"backward", "masked"})
SECOND_ORDER = frozenset({"rev_over_rev"})
FEW = ("wrong_sign", "one_wrong_entry", "conjugated")
LAYOUTS = {"coo": torch.sparse_coo, "csr": torch.sparse_csr}
PATTERN = torch.tensor([[0, 1], [1, 1]], dtype=torch.bool)


def sparse_leaf(layout: torch.layout) -> Maker:
    """Return a maker of a sparse leaf of shape (2, 2), the last of whose elements is specified."""

    def make(dtype: torch.dtype) -> Tensors:
        (dense,) = ONE(dtype)
        return ((dense.detach() * PATTERN).to_sparse(layout=layout).requires_grad_(),)

    return make


# Squares of what the sparse tensor stands for. At first order they are right under both semantics: at zeros the
# derivative is zero. At second order, masked semantics leave the unspecified elements out.


def specified(g: Tensor) -> Tensor:
    """Return a dense gradient without that of unspecified elements."""
    return torch.where(PATTERN, g, 0)


PULLED = Formula(
    value=lambda x, v: (2 * v * x.to_dense().conj(),),
    vjp=lambda xv, w: (2 * xv[1] * w[0].conj(), 2 * xv[0].to_dense() * w[0]),
)
PULLED_MASKED = spoiled(PULLED, "vjp", specified, 0)


def square(pulled: Formula) -> Formula:
    return Formula(value=lambda x: (x.to_dense() ** 2,), vjp=lambda x, v: pulled(*x, *v))


def sparse(name: str, function, layout: str = "coo", caught_by=JACOBIAN, **fields) -> Fault:
    return Fault(
        name=name,
        function=function,
        leaves=sparse_leaf(LAYOUTS[layout]),
        caught_by=caught_by,
        disclaims=FORWARD,
        **fields,
    )


def by_rule() -> Iterator[Fault]:
    """Yield a fault for each way to spoil a number, and for a few ways in each layout and under both semantics."""
    for (name, spoil, dtypes), layout, masked in product(SPOILS, LAYOUTS, (False, True)):
        if (layout, masked) != ("coo", False) and name not in FEW:
            continue
        pulled = PULLED_MASKED if masked else PULLED
        where = f"{name}_{layout}{'_masked' if masked else ''}"
        fields = {"layout": layout, "dtypes": dtypes, "masked": masked}
        yield sparse(where, spoiled(square(pulled), "vjp", spoil, 0), **fields)
        for what, place in (("input", 0), ("cotangent", 1)):
            again = square(spoiled(pulled, "vjp", spoil, place))
            yield sparse(f"{where}_second_order_{what}", again, caught_by=SECOND_ORDER, **fields)


TRIPLE = Formula(lambda x: (3 * x.to_dense(),), lambda x, v: (3 * v[0],))


FAULTS = (
    *by_rule(),
    *(
        fault
        for layout in LAYOUTS
        for fault in (
            # The backward pass of to_dense() keeps to specified elements, unless told otherwise; so does that of it.
            sparse(
                f"unspecified_elements_without_gradient_{layout}",
                lambda x: (3 * x.to_dense(),),
                layout,
                either=SECOND_ORDER,
            ),
            sparse(f"unspecified_elements_with_gradient_{layout}_masked", TRIPLE, layout, masked=True),
        )
    ),
    sparse("unspecified_elements_without_gradient", spoiled(TRIPLE, "vjp", specified, 0)),
    sparse(
        "gradient_in_another_layout",
        spoiled(TRIPLE, "vjp", Tensor.to_sparse_csr, 0),
        caught_by=JACOBIAN | SECOND_ORDER,
        raises=True,
    ),
)
