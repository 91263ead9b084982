"""Complex as R^2: tensors of any dtype as vectors of real coordinates and back.

Coordinates and tensors never share memory. A function under test may write to its arguments, or later to the tensors
that it returned. Neither may change what is known about this function or another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from opcheck.strides import extent, laid_out


def real_size(tensor: Tensor) -> int:
    """Return the number of real coordinates: one for each element, or two for complex dtypes."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def are_strided(tensors: Iterable[Tensor]) -> bool:
    """Return whether all tensors are strided: only such tensors can have tangents."""
    return all(tensor.layout is torch.strided for tensor in tensors)


def split(coordinate: int, tensor: Tensor) -> tuple[tuple[int, ...], str]:
    """Return the index of the element that a coordinate belongs to, and the part ("real", "imag", or empty if real)."""
    element, part = divmod(coordinate, 2) if tensor.is_complex() else (coordinate, 0)
    index: list[int] = []
    for size in reversed(tensor.shape):
        element, own = divmod(element, size)
        index.insert(0, own)
    return tuple(index), ("real", "imag")[part] if tensor.is_complex() else ""


def index_text(index: tuple[int, ...], part: str) -> str:
    """Return an index and a part as text: `[1, 2]`, `[1, 2].imag`, or `[]` for rank 0."""
    return f"{[*index]}{'.' if part else ''}{part}"


def vector(tensors: Sequence[Tensor]) -> Tensor:
    """Return the real coordinates of several tensors, concatenated: float64, on the CPU, of shape (N,)."""
    # cat() copies, even a single tensor.
    pieces = [_plain(tensor).reshape(-1) for tensor in tensors]
    return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.float64, device="cpu")


def rows_of(batches: Sequence[Tensor], count: int) -> Tensor:
    """Return the real coordinates of batches of tensors, each of shape (count, ...), as the rows of a matrix."""
    plain = [_plain(batch) for batch in batches]
    pieces = [batch.reshape(count, batch.numel() // count) for batch in plain]
    return torch.cat(pieces, 1) if pieces else torch.zeros(count, 0, dtype=torch.float64, device="cpu")


def _plain(tensor: Tensor) -> Tensor:
    """Return a tensor in double precision on the CPU. For complex dtypes, real and imaginary parts alternate."""
    # Skip conversions that are not needed: each call of torch costs as much as arithmetic on a hundred numbers.
    plain = tensor.detach() if tensor.requires_grad else tensor
    plain = plain if plain.layout is torch.strided else plain.to_dense()
    plain = plain.resolve_neg() if plain.is_neg() else plain
    plain = plain.clone() if plain._is_zerotensor() else plain  # zeros without memory, which cannot be written to
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj() if plain.is_conj() else plain)
    # Convert on the CPU, since not every device has double precision.
    return plain if plain.dtype is torch.float64 and plain.is_cpu else plain.cpu().to(torch.float64)


def tensors_of(coordinates: Tensor, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the tensors with some coordinates: the inverse of `vector`, or of `rows_of` for a matrix.

    The tensors have the dtypes and memory formats of `like`. Those of a matrix have a leading dimension for its rows.
    Elements that share their memory (expanded tensors) get memory of their own.
    """
    if len(like) == 1:
        return (_tensor(coordinates, like[0]),)
    own = torch.split(coordinates, [*map(real_size, like)], -1)
    return tuple(_tensor(part, tensor) for part, tensor in zip(own, like, strict=True))


def _tensor(part: Tensor, like: Tensor) -> Tensor:
    rows = part.shape[:-1]
    dtype = like.dtype.to_real() if like.is_complex() else like.dtype
    values = part.to(dtype, copy=True, memory_format=torch.contiguous_format)
    values = values if like.is_cpu else values.to(like.device)
    if like.is_complex():
        values = torch.view_as_complex(values.view(*rows, like.numel(), 2))
    values = values.view((*rows, *like.shape))
    if like.is_contiguous() and not like.is_conj() and not like.is_neg():
        return values
    return _in_memory_of(values, like, rows)


def _in_memory_of(values: Tensor, like: Tensor, rows: Sequence[int]) -> Tensor:
    """Return values with the strides and the lazy conjugation of `like` in each row."""
    strides = (*(extent(like.shape, like.stride()) for _ in rows), *like.stride())
    laid = laid_out(values.conj() if like.is_conj() else values, strides)
    return laid.conj() if like.is_conj() else laid


def located(coordinate: int, tensors: Sequence[Tensor]) -> tuple[int, int]:
    """Return the index of the tensor that a coordinate belongs to, and the coordinate within that tensor."""
    number = 0
    while coordinate >= real_size(tensors[number]):
        coordinate -= real_size(tensors[number])
        number += 1
    return number, coordinate


def place_of(number: int, tensors: Sequence[Tensor]) -> slice:
    """Return the slice of all coordinates that belongs to one of several tensors."""
    start = sum(map(real_size, tensors[:number]))
    return slice(start, start + real_size(tensors[number]))


def labels(coordinates: Iterable[int], tensors: Sequence[Tensor], names: Sequence[str] | None = None) -> list[str]:
    """Return a label for each real coordinate of some tensors: see `index_text`.

    names: prefixes, one for each tensor, as in `x[1, 2].imag`.
    """
    places = (located(coordinate, tensors) for coordinate in coordinates)
    return [(names[k] if names else "") + index_text(*split(own, tensors[k])) for k, own in places]


def modulus(matrix: Tensor, leaves: Sequence[Tensor]) -> Tensor:
    """Return the moduli of the entries of a Jacobian of shape (M, N), in the same shape.

    The two columns of an element of a complex leaf have one modulus, which is returned in both.
    """
    if not any(leaf.is_complex() for leaf in leaves):
        return matrix.abs()
    if all(leaf.is_complex() for leaf in leaves):
        pairs = matrix.reshape(matrix.shape[0], matrix.shape[1] // 2, 2)
        moduli: Tensor = torch.linalg.vector_norm(pairs, dim=2, keepdim=True)
        return moduli.expand_as(pairs).reshape(matrix.shape)
    own = torch.split(matrix, [*map(real_size, leaves)], 1)
    return torch.cat([modulus(part, [leaf]) for part, leaf in zip(own, leaves, strict=True)], dim=1)


def largest_difference(one: Tensor, other: Tensor) -> float:
    """Return the largest absolute difference of two tensors of the same shape; NaN if any difference is NaN."""
    return float((one - other).abs_().max()) if one.numel() else 0.0


def deviation(one: Tensor, other: Tensor) -> float:
    """Return the largest absolute difference of two results of one call; NaN if one is NaN where the other is not.

    Equal infinities do not differ, nor does NaN from NaN.
    """
    if torch.equal(one, other):  # fast path
        return 0.0
    equal = (one == other) | (one.isnan() & other.isnan())
    return largest_difference(*(torch.where(equal, 0.0, tensor) for tensor in (one, other)))


def same(one: Tensor, other: Tensor, rtol: float, atol: float) -> bool:
    """Return whether two tensors have the same shape and agree: as `torch.allclose`, with NaN equal to NaN."""
    if one.shape != other.shape:
        return False
    return largest_difference(one, other) <= atol or torch.allclose(one, other, rtol, atol, equal_nan=True)
