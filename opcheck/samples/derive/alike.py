"""What a derived sample has in common with the written one: its ranks, equal sizes, and dims that may be broadcast."""

from __future__ import annotations

from opcheck.spec.library import Sample
from opcheck.spec.values import parts


def has_same_ranks(written: Sample, other: Sample) -> bool:
    """Return whether each tensor of a derived sample has as many dims as that of the written one.

    If not, a dim may mean another one to a reference, as the last dim to NumPy and the first one to `torch.msort`.
    """
    pairs = zip(written.tensors, other.tensors, strict=False)
    return all(len(before.sizes) == len(after.sizes) for before, after in pairs)


def keeps_ties(written: Sample, other: Sample) -> bool:
    """Return whether sizes that are equal in a written sample are still equal in a sample derived from it.

    Sizes of 1 count, and so do the sizes of explicit values, which never change. If leading dims are added or removed,
    their number must be the same for all tensors.
    """
    if len(other.tensors) != len(written.tensors):  # some tensors are left out
        sizes = [recipe.sizes for recipe in written.tensors]
        return all(recipe.sizes in sizes for recipe in other.tensors)
    pairs = zip(written.tensors, other.tensors, strict=True)
    if len({len(after.sizes) - len(before.sizes) for before, after in pairs}) > 1:
        return False
    changes = _changes(written, other)
    return len(changes) == len({old for old, _ in changes})


def has_same_pattern(written: Sample, other: Sample) -> bool:
    """Return whether a reference at a derived sample means the same as at the written one.

    The ranks must be equal, and so must the arguments of the constructor of a module, but for sizes: a reference does
    not get them. If sizes that are equal in the written sample differ, and one of them is 1, a reference may broadcast
    it, where an operator never claimed to.
    """
    if not has_same_ranks(written, other) or not _is_constructed_alike(written, other):
        return False
    changes = _changes(written, other)
    return all(new != 1 for old, new in changes if any(own == old and size != new for own, size in changes))


def _is_constructed_alike(written: Sample, other: Sample) -> bool:
    one, another = written.module, other.module
    if one is None or another is None or one == another:
        return one == another
    before, after = (dict(parts([module.args, module.kwargs])) for module in (one, another))
    if one.train != another.train or before.keys() != after.keys():
        return False
    changed = [(before[place], after[place]) for place in before if before[place] != after[place]]
    return all(type(old) is type(new) is int for old, new in changed) and _changes(written, other).issuperset(changed)


def is_alike(written: Sample, other: Sample) -> bool:
    """Return whether a derived sample has as many dims as the written one, the same equal sizes, and no new 0 or 1.

    If so, an operator that accepts it does so on purpose, and not by broadcasting.
    """
    keeps = has_same_ranks(written, other) and keeps_ties(written, other)
    return keeps and all(new == old or new > 1 for old, new in _changes(written, other))


def _changes(written: Sample, other: Sample) -> set[tuple[int, int]]:
    """Return the pairs of an old and a new size of all dims, which correspond from the last one on."""
    pairs = zip(written.tensors, other.tensors, strict=False)
    return {change for before, after in pairs for change in zip(before.sizes[::-1], after.sizes[::-1], strict=False)}
