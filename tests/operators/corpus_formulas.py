"""Faults of derivative formulas: what is forgotten, swapped or mixed up when one is written by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from operators.corpus_entries import COMPLEX, ONE, REAL, SECOND, TWO, Fault, Formula, Tensors, random_leaves
from operators.corpus_numbers import PRODUCTS, SQUARE

BACKWARD, FORWARD_AD = frozenset({"backward"}), frozenset({"forward_ad"})


def fault(name: str, function, leaves=ONE, caught_by=BACKWARD, **fields) -> Fault:
    return Fault(name=name, function=function, leaves=leaves, caught_by=frozenset(caught_by), **fields)


# Complex numbers

CONJUGATE = Formula(lambda x: (x.conj_physical(),), lambda x, v: (v[0] * 1,), lambda x, t: (t[0].conj(),))
SQUARED_MAGNITUDE = Formula(
    lambda x: ((x * x.conj()).real.clone(),),
    lambda x, v: (v[0] * x[0],),
    lambda x, t: (2 * (x[0].conj() * t[0]).real,),
)
PHASE = Formula(
    lambda x: (torch.polar(torch.ones_like(x), x),),
    lambda x, v: (v[0].real * x[0].sin().neg(),),
    lambda x, t: (1j * torch.polar(torch.ones_like(x[0]), x[0]) * t[0],),
)


def mixed_leaves(dtype: torch.dtype) -> Tensors:
    """Return a real leaf and a complex one."""
    return random_leaves((2, 2))(REAL) + random_leaves((2, 2))(COMPLEX)


MIXED = Formula(
    lambda x, z: (x * z,),
    lambda p, v: ((v[0] * p[1].conj()).real, v[0] * p[0]),
    lambda p, t: (t[0] * p[1] + p[0] * t[1],),
)
COMPLEX_FAULTS = (
    fault("missing_conjugate", replace(SQUARE, vjp=lambda x, v: (v[0] * 2 * x[0],)), dtypes=(COMPLEX,)),
    fault("conjugate_too_much", replace(SQUARE, vjp=lambda x, v: (v[0].conj() * 2 * x[0].conj(),)), dtypes=(COMPLEX,)),
    fault("cotangent_not_conjugated", CONJUGATE, dtypes=(COMPLEX,)),
    fault("squared_magnitude_without_its_two", SQUARED_MAGNITUDE),
    fault("imaginary_cotangent_of_a_real_input_dropped", PHASE, dtypes=(REAL,)),
    fault(
        "real_input_beside_a_complex_one",
        replace(MIXED, vjp=lambda p, v: ((v[0] * p[1]).real, v[0] * p[0])),
        mixed_leaves,
        dtypes=(COMPLEX,),
    ),
    fault(
        "complex_input_beside_a_real_one",
        replace(MIXED, vjp=lambda p, v: ((v[0] * p[1].conj()).real, (v[0] * p[0]).real)),
        mixed_leaves,
        dtypes=(COMPLEX,),
    ),
)


# Linear algebra

MATMUL = Formula(
    lambda a, b: (a @ b,),
    lambda p, v: (v[0] @ p[1].mH, p[0].mH @ v[0]),
    lambda p, t: (t[0] @ p[1] + p[0] @ t[1],),
)


def shifted_inverse(a: Tensor) -> Tensor:
    """Invert far from singular matrices."""
    return torch.linalg.inv(a + 3 * torch.eye(a.shape[0], dtype=a.dtype))


def inverse_by_one_percent(a: Tensors, v: Tensors) -> Tensors:
    adjoint = shifted_inverse(a[0]).mH
    return (-1.01 * adjoint @ v[0] @ adjoint,)


INVERSE = Formula(
    lambda a: (shifted_inverse(a),),
    inverse_by_one_percent,
    lambda a, t: (-shifted_inverse(a[0]) @ t[0] @ shifted_inverse(a[0]),),
)
LINEAR_ALGEBRA = (
    fault(
        "matmul_gradient_transposed",
        replace(MATMUL, vjp=lambda p, v: (v[0] @ p[1].mH, (p[0].mH @ v[0]).mT)),
        TWO,
    ),
    fault("matmul_without_transpose", replace(MATMUL, vjp=lambda p, v: (v[0] @ p[1].conj(), p[0].mH @ v[0])), TWO),
    fault(
        "matmul_without_conjugate",
        replace(MATMUL, vjp=lambda p, v: (v[0] @ p[1].mH, p[0].mT @ v[0])),
        TWO,
        dtypes=(COMPLEX,),
    ),
    fault("inverse_off_by_one_percent", INVERSE, random_leaves((3, 3))),
)


# Sums, broadcasting, indices

BROADCAST = Formula(
    lambda x, y: (x * y,),
    lambda p, v: ((v[0] * p[1].conj()).sum(0, keepdim=True), v[0] * p[0].conj()),
    lambda p, t: (t[0] * p[1] + p[0] * t[1],),
)
BROADCAST_LEAVES = random_leaves((1, 2), (3, 2))
ROW_SUMS = Formula(
    lambda x: (x.sum(1),), lambda x, v: (v[0].unsqueeze(0).expand(x[0].shape),), lambda x, t: (t[0].sum(1),)
)
NORMALIZE = Formula(  # the derivative of the sum that divides is forgotten
    lambda x: (x / x.sum(),),
    lambda x, v: (v[0] / x[0].sum().conj(),),
    lambda x, t: (t[0] / x[0].sum() - x[0] * t[0].sum() / x[0].sum() ** 2,),
)
TWICE = [0, 0, 1]


def overwritten(x: Tensors, v: Tensors) -> Tensors:
    (wide,) = v
    return (torch.cat([wide[1:2], wide[2:3]]),)  # the rows of equal indices should have been added up


GATHER = Formula(lambda x: (x[TWICE],), overwritten, lambda x, t: (t[0][TWICE],))
CLAMP = Formula(lambda x: (x.clamp(max=1.0),), lambda x, v: (v[0] * 1,), lambda x, t: (t[0] * (x[0] < 1),))
CUMSUM = Formula(lambda x: (x.cumsum(0),), lambda x, v: (v[0].cumsum(0),), lambda x, t: (t[0].cumsum(0),))


def one_entry_off_the_diagonal(x: Tensors, v: Tensors) -> Tensors:
    off = torch.zeros_like(x[0])
    off[0] = 1e-2
    return (2 * v[0] * x[0].conj() + off * v[0][-1],)


def rank_one_error(x: Tensors, v: Tensors) -> Tensors:
    # Visible for cotangents along one direction only, and there in every entry.
    direction = torch.ones_like(x[0]) / math.sqrt(x[0].numel())
    return (2 * v[0] * x[0].conj() + 1e-2 * direction * (direction * v[0]).sum(),)


SUMS = (
    fault(
        "first_row_instead_of_the_sum_over_a_broadcast_dimension",
        replace(BROADCAST, vjp=lambda p, v: ((v[0] * p[1].conj())[:1], v[0] * p[0].conj())),
        BROADCAST_LEAVES,
    ),
    fault(
        "mean_instead_of_the_sum_over_a_broadcast_dimension",
        replace(BROADCAST, vjp=lambda p, v: ((v[0] * p[1].conj()).mean(0, keepdim=True), v[0] * p[0].conj())),
        BROADCAST_LEAVES,
    ),
    fault("cotangent_expanded_along_the_wrong_dimension", ROW_SUMS),
    fault("derivative_of_the_norm_forgotten", NORMALIZE),
    fault("gradients_of_equal_indices_overwritten", GATHER, random_leaves((2, 2))),
    fault("clamped_elements_not_masked", CLAMP, dtypes=(REAL,)),
    fault("cumulative_sum_not_reversed", CUMSUM),
    fault(
        "one_entry_off_the_diagonal_of_a_large_jacobian",
        replace(SQUARE, vjp=one_entry_off_the_diagonal),
        random_leaves((24,)),
    ),
    fault("error_of_rank_one", replace(SQUARE, vjp=rank_one_error), random_leaves((24,))),
)


# Several inputs and outputs


def weighted_squares(*x: Tensor) -> Tensors:
    return (sum((weight * part * part).sum() for weight, part in enumerate(x, start=1)),)


def gradient_of_the_fifth_missing(x: Tensors, v: Tensors) -> tuple[Tensor | None, ...]:
    found = [2 * weight * part.conj() * v[0] for weight, part in enumerate(x, start=1)]
    return (*found[:4], None, *found[5:])


MANY = Formula(
    weighted_squares,
    gradient_of_the_fifth_missing,
    lambda x, t: (sum((2 * weight * p * d).sum() for weight, (p, d) in enumerate(zip(x, t, strict=True), start=1)),),
)


def index_beside(x: Tensor) -> Tensors:
    return x * x, x.abs().argsort(-1)


WITH_INDICES = Formula(index_beside, lambda x, v: (3 * v[0] * x[0].conj(),), lambda x, t: (2 * x[0] * t[0], None))


class CrossTermsDropped(torch.autograd.Function):
    """(x, y) -> (x y, y y), whose backward forgets that both outputs may be used."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        return x * y, y * y

    @staticmethod
    def backward(ctx, v, w):
        x, y = ctx.saved_tensors
        if v is not None:
            return v * y.conj(), v * x.conj()
        return None, None if w is None else 2 * w * y.conj()

    @staticmethod
    def jvp(ctx, s, t):
        x, y = ctx.saved_tensors
        s, t = (torch.zeros_like(x) if d is None else d for d in (s, t))
        return s * y + x * t, 2 * y * t


SEVERAL = (
    fault(
        "gradients_swapped_between_the_inputs",
        replace(MATMUL, vjp=lambda p, v: (p[0].mH @ v[0], v[0] @ p[1].mH)),
        TWO,
    ),
    fault(
        "second_of_two_outputs_wrong",
        replace(PRODUCTS, vjp=lambda p, v: (v[0] * p[1].conj(), v[0] * p[0].conj() + v[1] * p[1].conj())),
        TWO,
    ),
    fault(
        "tangent_of_the_second_input_missing",
        replace(PRODUCTS, jvp=lambda p, t: (t[0] * p[1], 2 * p[1] * t[1])),
        TWO,
        FORWARD_AD,
    ),
    # torch pulls back one output at a time.
    fault("cross_terms_dropped", CrossTermsDropped.apply, TWO, torch_misses=BACKWARD),
    fault("gradient_of_one_of_many_inputs_missing", MANY, random_leaves((2,), (), (0,), (1, 2), (2, 1), (3,))),
    fault("wrong_beside_an_output_of_integers", WITH_INDICES),
    fault("wrong_at_rank_zero", replace(SQUARE, vjp=lambda x, v: (3 * v[0] * x[0].conj(),)), random_leaves(())),
)


# Not a number, and no number at all

NAN = float("nan")
BROKEN = (
    # A difference quotient of NaN is NaN, which agrees with nothing.
    fault(
        "nan_gradient", replace(SQUARE, vjp=lambda x, v: (NAN * v[0] * x[0].conj(),)), caught_by={*BACKWARD, *SECOND}
    ),
    fault("nan_tangent", replace(SQUARE, jvp=lambda x, t: (NAN * t[0],)), caught_by=FORWARD_AD),
    fault(
        "infinite_gradient",
        replace(SQUARE, vjp=lambda x, v: (v[0] * x[0].conj() / 0,)),
        caught_by={*BACKWARD, *SECOND},
    ),
    fault(
        "gradient_of_another_shape",
        replace(SQUARE, vjp=lambda x, v: (v[0].sum(0),)),
        caught_by={*BACKWARD, *SECOND},
        raises=True,
    ),
    fault(
        "gradient_raises",
        replace(SQUARE, vjp=lambda x, v: (v[0] @ v[0].sum(),)),
        caught_by={*BACKWARD, *SECOND},
        raises=True,
    ),
    # Forward over reverse may ask for tangents of the outputs as well, which it does not need.
    fault(
        "tangent_raises",
        replace(SQUARE, jvp=lambda x, t: (t[0] @ t[0].sum(),)),
        caught_by=FORWARD_AD,
        either=frozenset({"fwd_over_rev"}),
        raises=True,
    ),
)

FAULTS = (*COMPLEX_FAULTS, *LINEAR_ALGEBRA, *SUMS, *SEVERAL, *BROKEN)
