"""Finds the axes along which a function is independent, from its values and one derivative.

A function is independent along an axis, such as the batch, if slice i of its outputs depends on slice i of its inputs
and on inputs that all slices share, and on nothing else. Each leaf is moved once: the outputs that change leave few
dims that may belong to the same axis. A derivative confirms them: if each slice of a direction is scaled by a weight,
the same slice of the derivative must be scaled by the same weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from opcheck.derivatives.autodiff import Tensors
from opcheck.derivatives.coordinates import real_size
from opcheck.derivatives.cotangents import directions
from opcheck.derivatives.differences import Differences
from opcheck.derivatives.directions import Axis, weights
from opcheck.derivatives.refusals import tried
from opcheck.derivatives.uncertainty import CERTAIN, error_estimate, largest


def independent_axes(
    values: Callable[[Tensors], Tensors], slopes: Callable[[Tensor, float], Differences], unit: float, leaves: Tensors,
    outputs: Tensors,
) -> tuple[Axis, ...]:  # fmt: skip
    """Return the axes along which a function is independent, in the order of the first output's dims.

    values: the function, without a graph.
    slopes: its differences along directions, with a step.
    unit: the unit of its rounding.
    outputs: the outputs at the leaves.

    A function that raises nearby has no axes.
    """

    def independent() -> tuple[Axis, ...]:
        axes = tuple(_candidates(values, leaves, outputs))
        if not axes or _is_independent(axes, slopes, unit, leaves, outputs):
            return axes
        return tuple(axis for axis in axes if _is_independent([axis], slopes, unit, leaves, outputs))

    axes = tried(independent)
    return () if isinstance(axes, Exception) else axes


def _is_independent(
    axes: Sequence[Axis], slopes: Callable[[Tensor, float], Differences], unit: float, leaves: Tensors, outputs: Tensors
) -> bool:
    """Return whether scaling each slice of a direction scales the same slice of the derivative alike, and no other."""
    along, scales = [], []
    for k, leaf in enumerate(leaves):
        before, after = (sum(map(real_size, part)) for part in (leaves[:k], leaves[k + 1 :]))
        own = [(axis, weights(axis.size, number)) for number, axis in enumerate(axes) if axis.leaves[k] is not None]
        direction = directions(real_size(leaf), 1)[0]
        weighted = direction * _scale(leaf, [(axis.leaves[k], weight) for axis, weight in own])
        along += [functional.pad(part, (before, after)) for part in (direction, weighted)]
        parts = [_scale(y, [(axis.outputs[i], weight) for axis, weight in own]) for i, y in enumerate(outputs)]
        scales.append(torch.cat(parts))
    step, rows = unit ** (1 / 3), torch.stack(along)
    fine, scale = slopes(rows, step), torch.stack(scales, 1)
    off = (fine.jacobian[:, 1::2] - fine.jacobian[:, ::2] * scale).abs()
    error = error_estimate(fine, [slopes(rows, 2 * step)], unit)
    error += (
        unit * max(largest(leaf.detach()) for leaf in leaves) / step * largest(fine.jacobian)
    )  # the points are rounded, too
    return not bool((off > CERTAIN * (error[:, 1::2] + error[:, ::2] * scale.abs())).any())


def _scale(tensor: Tensor, vectors: Sequence[tuple[int | None, Tensor]]) -> Tensor:
    """Return the product of vectors along dims of a tensor, for each of its real coordinates."""
    scale = torch.ones(*tensor.shape, 1 + tensor.is_complex(), dtype=torch.float64, device="cpu")
    for dim, vector in vectors:
        scale *= vector.view([-1 if dim == own else 1 for own in range(scale.dim())])
    return scale.flatten()


def _candidates(values: Callable[[Tensors], Tensors], leaves: Tensors, outputs: Tensors) -> Iterator[Axis]:
    """Yield the axes that are possible after one change of each leaf.

    A leaf is changed in half of its slices along each dim. A dim of an output may belong to the same axis as a dim of
    the leaf of the same size, if the output changes along it within the same half only.
    """
    if not outputs or any(not output.numel() for output in outputs):
        return
    leaves, outputs = tuple(x.detach() for x in leaves), tuple(y.detach() for y in outputs)
    reaches = [_reach(values, leaves, outputs, number) for number in range(len(leaves))]
    taken: list[Axis] = []
    for dim, size in enumerate(outputs[0].shape):
        matched = tuple(
            _match(leaf, outputs[0], dim, {axis.leaves[k] for axis in taken}, reach)
            for k, (leaf, reach) in enumerate(zip(leaves, reaches, strict=True))
        )
        if size < 2 or all(own is None for own in matched):
            continue
        carried = [(own, reach) for own, reach in zip(matched, reaches, strict=True) if own is not None]
        others = []
        for k, output in enumerate(outputs[1:], 1):
            free = [own for own in range(output.dim()) if own not in {axis.outputs[k] for axis in taken}]
            fits = [own for own in (dim, *free) if own in free and output.shape[own] == size]
            others.append(next((own for own in fits if all(r.allows(of, k, own) for of, r in carried)), None))
        if None not in others:
            axis = Axis(size, (dim, *(other for other in others if other is not None)), matched)
            taken.append(axis)
            yield axis


@dataclass(frozen=True)
class Reach:
    """The effect of a change of one leaf."""

    halves: Sequence[Tensor]
    """For each dim of the leaf, a mask of the slices that are changed."""
    changed: Sequence[Sequence[Tensor]]
    """For each output and each of its dims, a mask of the slices that change."""

    def allows(self, dim: int, output: int, place: int) -> bool:
        """Return whether an output changes along its dim `place` only where the leaf does along `dim`."""
        half, changed = self.halves[dim], self.changed[output][place]
        return len(half) == len(changed) and not bool((changed & ~half).any())


def _reach(values: Callable[[Tensors], Tensors], leaves: Tensors, outputs: Tensors, number: int) -> Reach:
    leaf = leaves[number]
    halves, changes = [], torch.ones(leaf.shape, dtype=torch.bool, device="cpu")
    for dim, size in enumerate(leaf.shape):
        turn = list(leaf.shape[:dim]).count(size)  # dims of the same size change in different slices
        order = torch.randperm(size, generator=torch.Generator("cpu").manual_seed(size)).roll(turn)
        half = torch.zeros(size, dtype=torch.bool, device="cpu")
        half[order[: max(1, size // 2)]] = True
        halves.append(half)
        changes &= half.view([-1 if own == dim else 1 for own in range(leaf.dim())])
    by = leaf * 0.0117 + 0.00131  # a small change has an effect, and is likely to stay in the domain
    moved = torch.empty_like(leaf).copy_(torch.addcmul(leaf, by, changes.to(leaf)))
    others = values(tuple(moved if k == number else own.clone() for k, own in enumerate(leaves)))
    changed = []
    for before, after in zip(outputs, others, strict=True):
        differ = ((before != after) & ~(before.isnan() & after.isnan())).cpu()
        dims = range(differ.dim())
        changed.append([differ.movedim(dim, 0).flatten(1).any(1) if differ.dim() > 1 else differ for dim in dims])
    return Reach(halves, changed)


def _match(leaf: Tensor, output: Tensor, dim: int, used: set[int | None], reach: Reach) -> int | None:
    """Return the dim of a leaf that may belong to the same axis as a dim of the first output; None if there is none."""
    aligned = dim - output.dim() + leaf.dim()  # dims are aligned from the last, as in broadcasting, or from the first
    return next(
        (
            own for own in (aligned, dim, *range(leaf.dim()))
            if 0 <= own < leaf.dim() and leaf.shape[own] == output.shape[dim] and own not in used
            and reach.allows(own, 0, dim)
        ),
        None,
    )  # fmt: skip
