"""Function, method, in-place, out= and aliases give the same values; in-place raises if its tensor cannot hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.per_sample import PerSample
from opcheck.checks.relations import agree
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails, remedy
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import Tensors
from opcheck.derivatives.coordinates import are_strided
from opcheck.samples.arguments import takes_out
from opcheck.samples.function import with_copies
from opcheck.samples.layouts import equal, share_memory, writable
from opcheck.samples.resolve import Unresolved
from opcheck.samples.results import flatten, named, names_among
from opcheck.strides import transposed
from opcheck.text import one_line

NOT_MARKED = (
    "it returns another tensor in the same memory: the forward of an autograd.Function that writes to x must call "
    "ctx.mark_dirty(x)"
)


def judge(subject: Subject) -> Iterator[Verdict]:
    """Compare each way of calling the operator with the function."""
    operator = subject.case.operator
    expected = flatten(_call(subject, subject.function.operator))
    ways: list[tuple[str, str, dict[str, Any]]]
    ways = [("inplace", operator.variants[0].path, {})] if operator.spec.inplace is True else []
    ways += [(variant.kind, variant.path, dict(variant.kwargs)) for variant in operator.variants[1:]]
    ways += [("alias", path, {}) for path in operator.spec.aliases]
    for kind, path, more in ways:
        try:
            callee = subject.context.resolve(path, subject.sample)
        except Unresolved as error:
            yield fails(f"variants: {error}", f'did you mean "{error.hint}"?' if error.hint else "")
            return
        way = path + (f"({', '.join(f'{name}={value!r}' for name, value in more.items())})" if more else "")
        if kind == "inplace":
            yield _inplace(subject, callee, more, expected, way)
        else:
            yield _same(subject, flatten(_call(subject, callee, **more)), expected, way)
    if operator.spec.module is None:  # modules have no out=
        yield _out(subject, expected)


def _call(subject: Subject, operator: Callable[..., Any], **more: Any) -> Any:
    args, kwargs = subject.inputs.detached().fill()
    return replace(subject.function, operator=operator).called(args, {**kwargs, **more})


def _inplace(
    subject: Subject, callee: Callable[..., Any], more: dict[str, Any], expected: Tensors, way: str
) -> Verdict:
    inputs, fits = subject.inputs.detached(), subject.fits_in_place
    # Its first argument is a copy already.
    function = replace(subject.function, operator=callee, writes={}, on_copies=False)

    def call(copy: Callable[[Tensor], Tensor]) -> tuple[Tensor, Any]:
        args, kwargs = inputs.fill()
        if subject.function.on_copies:
            args, kwargs = with_copies(args, kwargs, writable, [args[1:], kwargs])
        args, kwargs = with_copies(args, kwargs, copy, args[0])
        return args[0], function.called(args, {**kwargs, **more})

    got = tried(lambda: call(writable))
    if isinstance(got, Exception):
        return fails(f"variants: {way} raised {one_line(got)}") if fits else HOLDS
    target, returned = got
    if not fits and target.numel():  # an empty tensor may be resized
        return fails(f"variants: {way} accepts an input that cannot hold the result", "it should raise an error")
    may_return_nothing = subject.case.operator.spec.inplace is True  # it is not a variant of a function with a result
    if returned is not target and not (returned is None and may_return_nothing):
        is_unmarked = isinstance(returned, Tensor) and share_memory(returned, target)
        return fails(f"variants: {way} does not return its first argument", NOT_MARKED if is_unmarked else "")
    verdict = _same(subject, (target,), expected[:1], way)
    if not verdict.passed:
        return verdict
    values, _ = inputs.fill()
    return _in_other_memory(subject, values[:1], lambda own: call(lambda _: own[0]), expected[:1], f"{way} with")


def _out(subject: Subject, expected: Tensors) -> Verdict:
    supports = subject.supports
    stated = "out" in supports.model_fields_set
    claimed = supports.out if stated else takes_out(subject.context.operator)
    buffers = tuple(map(_with_other_values, expected))
    returned = tried(lambda: _call_out(subject, buffers))
    if claimed is None:  # only the call tells whether a function in C has the parameter
        claimed = not issubclass(type(returned), TypeError)
    if isinstance(returned, Exception):
        if not claimed:
            return HOLDS
        hint = "if the operator has no out=, set supports.out = false"
        return fails(f"variants: out= raised {one_line(returned)}", hint, **remedy("supports.out", False))
    verdict = _same(subject, buffers, expected, "out=")
    if not (claimed or verdict.passed):
        return HOLDS  # a function with **kwargs may have accepted and ignored it
    if stated and not claimed:
        hint = "take supports.out out of the spec"
        return fails("variants: out= is disclaimed, but accepted", hint, **remedy("supports.out", True))
    if verdict.passed and not _are_returned(returned, buffers):
        return fails("variants: out= is filled, but another tensor is returned", "return the tensor passed as out=")
    return _out_in_other_memory(subject, expected) if verdict.passed else verdict


def _call_out(subject: Subject, buffers: Tensors) -> Any:
    out = buffers if len(buffers) > 1 else buffers[0] if buffers else None
    return _call(subject, subject.context.operator, out=out)


def _are_returned(returned: Any, buffers: Tensors) -> bool:
    """Return whether a call returns the buffers passed as out=, views of them, or nothing."""
    if returned is None:
        return True
    got = flatten(returned)
    return len(got) == len(buffers) and all(
        one is buffer or share_memory(one, buffer) or not buffer.numel()
        for one, buffer in zip(got, buffers, strict=True)
    )


def _out_in_other_memory(subject: Subject, expected: Tensors) -> Verdict:
    """Pass buffers in other memory as out=; then empty buffers, which must be resized or rejected."""
    call = partial(_call_out, subject)
    verdict = _in_other_memory(subject, tuple(map(_with_other_values, expected)), call, expected, "out=")
    if not verdict.passed or not are_strided(expected):
        return verdict
    empty = tuple(tensor.new_empty(0) for tensor in expected)
    if isinstance(tried(partial(call, empty)), Exception):
        return verdict
    return _in_memory_of_its_own(subject, empty, expected, "out= an empty buffer")


def _in_other_memory(
    subject: Subject, values: Tensors, call: Callable[[Tensors], Any], expected: Tensors, way: str
) -> Verdict:
    """Return whether a call writes the expected values into slices of larger buffers, and into transposed buffers.

    values: the values of the buffers before the call. The call may reject tensors that are not contiguous.
    """
    others = tuple(map(_with_other_values, expected))
    shapes_stay = [tensor.shape for tensor in values] == [tensor.shape for tensor in others]
    if not values or not shapes_stay or not are_strided((*values, *expected)):
        return HOLDS
    larger = [torch.stack(pair, -1) for pair in zip(values, others, strict=True)]
    slices, beside = (tuple(whole[..., k] for whole in larger) for k in (0, 1))
    verdict = _into(subject, slices, beside, call, expected, f"{way} a slice of a larger buffer")
    plain = (tensor.resolve_conj().resolve_neg().clone() for tensor in values)
    turned = tuple(map(transposed, plain))  # unlike those of slices, their reshape(-1) is not a view
    if not verdict.passed or all(tensor.is_contiguous() for tensor in turned):
        return verdict
    turned, rest = zip(*map(_with_room, turned), strict=True)
    return _into(subject, turned, rest, call, expected, f"{way} a transposed buffer")


def _with_room(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return a copy of a tensor, with its strides, in the middle of a larger buffer, and the rest of that buffer."""
    rows = tensor.new_zeros(3, tensor.numel())
    return rows[1].as_strided(tensor.shape, tensor.stride()).copy_(tensor), rows[::2]


def _into(
    subject: Subject, buffers: Tensors, beside: Tensors, call: Callable[[Tensors], Any], expected: Tensors, way: str
) -> Verdict:
    """Return whether a call writes the expected values into buffers, and nothing beside them. It may reject them."""
    around = [tensor.clone() for tensor in beside]
    held = tuple(tensor.detach() for tensor in buffers)
    if isinstance(tried(lambda: call(buffers)), Exception):
        return HOLDS
    pairs = zip(buffers, held, strict=True)  # `x.t_()` gives a buffer other strides, `out.data = result` other memory
    got = tuple(now if share_memory(now, before) else before for now, before in pairs)
    verdict = _in_memory_of_its_own(subject, got, expected, way)
    if not verdict.passed or all(map(equal, beside, around)):
        return verdict
    return fails(f"variants: {way} writes beside it")


def _in_memory_of_its_own(subject: Subject, got: Tensors, expected: Tensors, way: str) -> Verdict:
    """As `_same`, but the values of random operators are not compared: numbers may be drawn in the order of memory."""
    return HOLDS if subject.function.is_random else _same(subject, got, expected, way)


def _with_other_values(tensor: Tensor) -> Tensor:
    """Return a buffer whose elements all differ from those of a tensor. New memory might hold the right values."""
    if tensor.is_mkldnn:  # torch makes no uninitialized mkldnn tensors
        return torch.zeros_like(tensor.to_dense()).to_mkldnn()
    if tensor.layout is not torch.strided:
        return torch.empty_like(tensor)
    return torch.empty_like(tensor).copy_(tensor != 1)


def _same(subject: Subject, got: Tensors, expected: Tensors, way: str) -> Verdict:
    names = names_among([path for path, _ in named(subject.result)])
    return agree(subject, got, expected, f"the function, called by {way}", names=names)


check = PerSample(judge, derivative=False)
