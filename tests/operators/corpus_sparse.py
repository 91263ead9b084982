"""Faults in the derivatives of sparse inputs, under masked and non-masked semantics, and their right twins.

There are none in forward mode: sparse tensors carry no tangents, so that a jvp that is wrong for them is never called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor

from operators.corpus_entries import COMPLEX, FORWARD, ONE, REAL, Fault, Formula, Maker, Right, Tensors
from operators.corpus_numbers import SPOILS, one_wrong_entry, spoiled

JACOBIAN = frozenset({"backward", "masked"})
SECOND_ORDER = frozenset({"rev_over_rev"})
BATCHES = frozenset({"batched_grad"})
FEW = ("wrong_sign", "one_wrong_entry", "conjugated")
PATTERN = torch.tensor([[0, 1], [1, 1]], dtype=torch.bool)


def compressed(layout: torch.layout) -> Callable[[Tensor], Tensor]:
    """Return the conversion of dense tensors to a layout with blocks of a single element, if it has blocks."""
    block = (1, 1) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    return lambda dense: dense.to_sparse(layout=layout, blocksize=block)


def uncoalesced(dense: Tensor) -> Tensor:
    """Return a COO tensor in which each element is the sum of two values, one of them three times the other."""
    once = dense.to_sparse()
    values = once.values()
    twice = torch.cat([once.indices(), once.indices()], 1)
    return torch.sparse_coo_tensor(twice, torch.cat([values / 4, 3 * values / 4]), dense.shape)


LAYOUTS = {
    "coo": Tensor.to_sparse,
    "csr": compressed(torch.sparse_csr),
    "csc": compressed(torch.sparse_csc),
    "bsr": compressed(torch.sparse_bsr),
    "bsc": compressed(torch.sparse_bsc),
    "uncoalesced": uncoalesced,
    "hybrid": lambda dense: dense.to_sparse(1),
}
CONVERTED = ("coo", "csr")
"""Layouts that torch can make of dense gradients, so that functions of theirs can be differentiated twice."""


def sparse_leaf(layout: str) -> Maker:
    """Return a maker of a sparse leaf of shape (2, 2), the last of whose elements is specified.

    The first one is not, but in the hybrid layout, whose rows are dense.
    """

    def make(dtype: torch.dtype) -> Tensors:
        (dense,) = ONE(dtype)
        return (LAYOUTS[layout](dense.detach() * PATTERN).requires_grad_(),)

    return make


# Squares of what the sparse tensor stands for. At first order they are right under both semantics: at zeros the
# derivative is zero. At second order, masked semantics leave the unspecified elements out.


def specified(g: Tensor) -> Tensor:
    """Return a dense gradient without that of unspecified elements."""
    return torch.where(PATTERN, g, 0)


def semantics(layout: str) -> tuple[bool, ...]:
    """Return under which semantics a layout is of interest. If all elements are specified, there is one."""
    return (False,) if layout == "hybrid" else (False, True)


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
        leaves=sparse_leaf(layout),
        caught_by=caught_by,
        disclaims=FORWARD,
        **fields,
    )


def by_rule() -> Iterator[Fault]:
    """Yield a fault for each way to spoil a number, and for a few ways in each layout and under both semantics."""
    for (name, spoil, dtypes), layout, masked in product(SPOILS, LAYOUTS, (False, True)):
        if masked not in semantics(layout) or ((layout, masked) != ("coo", False) and name not in FEW):
            continue
        pulled = PULLED_MASKED if masked else PULLED
        where = f"{name}_{layout}{'_masked' if masked else ''}"
        fields = {"layout": layout, "dtypes": dtypes, "masked": masked}
        yield sparse(where, spoiled(square(pulled), "vjp", spoil, 0), **fields)
        for what, place in (("input", 0), ("cotangent", 1)):
            again = square(spoiled(pulled, "vjp", spoil, place))
            yield sparse(f"{where}_second_order_{what}", again, caught_by=SECOND_ORDER, **fields)


# Gradients that are sparse themselves. Those of three times the tensor are right under masked semantics where they have
# all specified elements and no others, and under non-masked semantics where they have all elements.

TRIPLE = Formula(lambda x: (3 * x.to_dense(),), lambda x, v: (3 * v[0],))


GIVEN = Formula(lambda x: ((3 + 1j) * x.to_dense(),), lambda x, v: ((3 - 1j) * v[0],))
"""The same with a complex factor."""

ALL = torch.ones(2, 2, dtype=torch.bool)
FIRST = torch.tensor([[1, 0], [0, 0]], dtype=torch.bool)
LAST = torch.tensor([[0, 0], [0, 1]], dtype=torch.bool)


def at(places: Tensor, layout: str) -> Callable[[Tensor], Tensor]:
    """Return the map that takes the elements at some places from a gradient, as a sparse tensor."""

    def taken(g: Tensor) -> Tensor:
        return g.sparse_mask(LAYOUTS[layout](places.to(g.dtype)))

    return taken


def of_sparse_gradients() -> Iterator[tuple[str, str, bool, Formula, tuple[torch.dtype, ...], bool]]:
    """Yield name, layout, semantics, function, dtypes of right and faulty functions, and whether they are faulty."""
    for layout, masked in product(CONVERTED, (False, True)):
        own, other = (PATTERN, ALL) if masked else (ALL, PATTERN)

        def gradient(
            spoil: Callable[[Tensor], Tensor], places: Tensor = own, formula: Formula = TRIPLE, layout: str = layout
        ) -> Formula:
            take = at(places, layout)
            return spoiled(formula, "vjp", lambda g: take(spoil(g)), 0)

        for name, function, dtypes, faulty in (
            ("all_entries", gradient(lambda g: g), (REAL, COMPLEX), False),
            ("complex_factor", gradient(lambda g: g, formula=GIVEN), (COMPLEX,), False),
            ("wrong_sign", gradient(torch.neg), (REAL, COMPLEX), True),
            ("twice", gradient(lambda g: 2 * g), (REAL, COMPLEX), True),
            ("one_wrong_value", gradient(one_wrong_entry), (REAL, COMPLEX), True),
            ("no_conjugate", gradient(lambda g: g * (3 + 1j) / (3 - 1j), formula=GIVEN), (COMPLEX,), True),
            ("dropped_entry", gradient(lambda g: g, own & ~LAST), (REAL, COMPLEX), True),
            ("extra_entry" if masked else "unspecified_dropped", gradient(lambda g: g, other), (REAL, COMPLEX), True),
            ("columns_swapped", gradient(lambda g: g.flip(1)), (REAL, COMPLEX), True),
        ):
            where = f"sparse_gradient_{name}_{layout}{'_masked' if masked else ''}"
            yield where, layout, masked, function, dtypes, faulty


def twins() -> Iterator[Right]:
    """Yield the right functions that the faulty ones are made of, in each layout."""
    for layout, pulled in product(LAYOUTS, (PULLED, PULLED_MASKED)):
        masked = pulled is PULLED_MASKED
        if masked in semantics(layout):
            name = f"square_{layout}{'_masked' if masked else ''}"
            yield sparse_twin(name, square(pulled), layout, masked)
    for name, layout, masked, function, dtypes, faulty in of_sparse_gradients():
        if not faulty:
            # What is taken from a CSR tensor by sparse_mask has no derivative, and gradcheck's test of undefined
            # gradients compares sparse gradients with zero.
            either = SECOND_ORDER if layout == "csr" else frozenset()
            yield sparse_twin(name, function, layout, masked, dtypes, either, frozenset({"undefined_grad"}))


def sparse_twin(
    name: str, function, layout: str, masked: bool, dtypes=(REAL, COMPLEX), either=frozenset(), refused=frozenset()
) -> Right:
    return Right(
        name=name,
        function=function,
        leaves=sparse_leaf(layout),
        dtypes=dtypes,
        masked=masked,
        disclaims=FORWARD,
        either=BATCHES | either,  # whether torch has a batching rule for what the function takes depends on the layout
        torch_refuses=refused,
    )


TWINS = tuple(twins())

FAULTS = (
    *by_rule(),
    *(
        sparse(name, function, layout, dtypes=dtypes, masked=masked, either=SECOND_ORDER)
        for name, layout, masked, function, dtypes, faulty in of_sparse_gradients()
        if faulty
    ),
    *(
        fault
        for layout in CONVERTED
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
