"""`gradcheck` and `gradgradcheck` with the parameters, results and exceptions of torch's functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck as torch_gradcheck
from torch.autograd import gradgradcheck as torch_gradgradcheck
from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

from opcheck.derivatives.autodiff import Function
from opcheck.derivatives.tolerances import Numbers
from opcheck.dropin.errors import GradcheckError
from opcheck.dropin.fast_path import Claims, look, quiet
from opcheck.dropin.in_place import InPlace, Second, pullback_of
from opcheck.dropin.memory import Kept
from opcheck.dropin.slow_path import check_claims, is_remark, sentence_of_torch
from opcheck.strides import is_expanded

Tensors = Tensor | Sequence[Any]


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensors,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Check gradients against finite differences, as `torch.autograd.gradcheck` does, with the same parameters.

    The whole Jacobian is compared, from a few batched calls. With more than 512 real coordinates of inputs or of
    outputs, all entries are compared only if the function works independently along some dims; otherwise 8 x 8 random
    projections are. Fast mode, a step of zero, sparse and mkldnn inputs, and functions that write to their inputs are
    left to torch. At a kink of the function, where one-sided differences disagree, this warns if torch would pass.

    Inputs are moved in place for single calls, as in torch, and restored bit by bit. Apparent errors are confirmed in
    this way, one element at a time. Messages begin like torch's.

    Args:
        func: A function of the inputs that returns a tensor or a tuple of tensors. It may capture inputs, such as the
            parameters of a module, instead of using its arguments.
        inputs: A tensor or a tuple of tensors of any shape; float64 or complex128 if they require grad.

    Returns:
        True if all gradients are right; False if one is not and `raise_exception` is False.

    Raises:
        GradcheckError: A gradient is wrong. The error is an AssertionError, too, if the shape or dtype of an output
            depends on the values of the inputs.
        ValueError: No input requires grad, or an output is sparse.
        RuntimeError: Elements of an input share memory.

    Example:
        >>> import opcheck, torch
        >>> x = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
        >>> opcheck.gradcheck(torch.sin, x, check_forward_ad=True)
        True
    """
    values, numbers = _as_tuple(inputs), Numbers(eps, atol, rtol, nondet_tol)
    claims = Claims(
        check_forward_ad, check_backward_ad, check_undefined_grad, check_grad_dtypes, check_batched_grad,
        check_batched_forward_grad,
    )  # fmt: skip

    __tracebackhide__ = True
    by_torch = partial(
        torch_gradcheck, func, values, eps=eps, atol=atol, rtol=rtol, nondet_tol=nondet_tol, fast_mode=fast_mode,
        masked=masked, check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad, check_batched_forward_grad=check_batched_forward_grad,
        check_forward_ad=check_forward_ad, check_backward_ad=check_backward_ad,
    )  # fmt: skip
    if fast_mode or _is_for_torch(values, numbers) or not claims.go_together:
        return _by_torch(by_torch, raise_exception)
    return _checked(func, values, numbers, claims, raise_exception, by_torch)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensors,
    grad_outputs: Tensors | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check gradients of gradients against finite differences, as `torch.autograd.gradgradcheck` does.

    Args:
        func: As for `gradcheck`.
        inputs: As for `gradcheck`.
        grad_outputs: Cotangents with the shapes and dtypes of the outputs. Gradients are also differentiated with
            respect to those that require grad; the others are constant. Default: random cotangents that require grad,
            the same in each call.

    Returns:
        True if all gradients are right; False if one is not and `raise_exception` is False.

    Raises:
        GradcheckError: A gradient is wrong.
        ValueError: No input requires grad.
        RuntimeError: Elements of an input share memory.

    Example:
        >>> import opcheck, torch
        >>> x = torch.rand(3, dtype=torch.float64, requires_grad=True)
        >>> opcheck.gradgradcheck(lambda x: x**3, x)
        True
    """
    values, numbers = _as_tuple(inputs), Numbers(eps, atol, rtol, nondet_tol)
    cotangents = None if grad_outputs is None else _as_tuple(grad_outputs)
    claims = Claims(
        check_fwd_over_rev, check_rev_over_rev, check_undefined_grad, check_grad_dtypes, check_batched_grad
    )  # fmt: skip

    __tracebackhide__ = True
    by_torch = partial(
        torch_gradgradcheck, func, values, cotangents, eps=eps, atol=atol, rtol=rtol,
        gen_non_contig_grad_outputs=gen_non_contig_grad_outputs, nondet_tol=nondet_tol, fast_mode=fast_mode,
        masked=masked, check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad, check_fwd_over_rev=check_fwd_over_rev,
        check_rev_over_rev=check_rev_over_rev,
    )  # fmt: skip
    needs_rev = check_undefined_grad and not check_rev_over_rev
    if fast_mode or _is_for_torch(values, numbers, cotangents or ()) or needs_rev or not claims.go_together:
        return _by_torch(by_torch, raise_exception)
    second = partial(pullback_of, cotangents=cotangents, gaps=gen_non_contig_grad_outputs)
    return _checked(func, values, numbers, claims, raise_exception, by_torch, second, cotangents or ())


def _checked(
    func: Callable[..., Any], values: tuple[Any, ...], numbers: Numbers, claims: Claims, raise_exception: bool,
    by_torch: Callable[..., bool], second: Second | None = None, cotangents: Sequence[Tensor] = (),
) -> bool:  # fmt: skip
    """Return whether the claims hold for a function or, if `second` is given, for its gradients.

    A function that writes to its inputs is left to torch, as are outputs of layouts that torch refuses, and another
    number of cotangents than of outputs.
    """
    __tracebackhide__ = True
    _warn_of_coarse(values)
    function, leaves, expected = _function(func, values), _leaves(values), not raise_exception
    with Kept((*values, *cotangents)) as memory:
        point = InPlace.of(function, leaves)
        is_for_torch = memory.is_changed() or any(output.layout is not torch.strided for output in point.outputs)
        is_for_torch |= len(cotangents) not in (0, len(point.outputs))
        answer = None if is_for_torch else look(point, second, numbers, claims, expected)
        if answer is not None and not memory.is_changed():
            return answer
    if is_for_torch:
        return _by_torch(by_torch, raise_exception)
    point = InPlace.of(function, leaves)  # with a new graph
    if second is not None:
        point = InPlace(*second(point))
    with quiet():
        for disagreement in check_claims(point, numbers, claims, expected):
            if is_remark(disagreement):
                warnings.warn(disagreement.text, stacklevel=3)
            elif raise_exception:
                lines = sentence_of_torch(by_torch, values, point), disagreement.text
                raise GradcheckError("\n".join(filter(None, lines)), disagreement)
            else:
                return False
    return True


def _by_torch(check: Callable[[], bool], raise_exception: bool) -> bool:
    """Return the result of torch's check. Raise its error as our own GradcheckError, or return False."""
    try:
        return check()
    except TorchGradcheckError as error:
        if not raise_exception:
            return False
        raise GradcheckError(str(error)) from error


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _leaves(values: tuple[Any, ...]) -> tuple[Tensor, ...]:
    return tuple(value for value in values if isinstance(value, Tensor) and value.requires_grad)


def _is_for_torch(values: tuple[Any, ...], numbers: Numbers, cotangents: tuple[Any, ...] = ()) -> bool:
    """Return whether torch is to check the arguments, or to refuse them.

    These are sparse or overlapping inputs and cotangents, no leaves, a step of zero, and tolerances that are negative
    or NaN. In inference mode, there are no graphs.
    """
    leaves, tolerances = _leaves(values), (numbers.atol, numbers.rtol, numbers.nondeterminism)
    if not (numbers.eps and leaves and all(own >= 0 for own in tolerances)) or torch.is_inference_mode_enabled():
        return True
    return any(own.layout is not torch.strided or is_expanded(own) for own in (*leaves, *_leaves(cotangents)))


def _function(func: Callable[..., Any], values: tuple[Any, ...]) -> Function:
    """Return `func` as a function of the leaves alone. The other inputs are constant."""
    places = [index for index, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad]

    def filled(*leaves: Tensor) -> tuple[Tensor, ...]:
        if len(leaves) == len(values):
            return _as_tuple(func(*leaves))
        arguments = list(values)
        for place, leaf in zip(places, leaves, strict=True):
            arguments[place] = leaf
        return _as_tuple(func(*arguments))

    return filled


def _warn_of_coarse(values: tuple[Any, ...]) -> None:
    """Warn of inputs that are not in double precision, with torch's message."""
    for index, value in enumerate(values):
        coarse = isinstance(value, Tensor) and value.dtype not in (torch.float64, torch.complex128)
        if coarse and value.requires_grad:
            warnings.warn(
                f"Input #{index} requires gradient and is not a double precision floating point or complex. "
                "This check will likely fail if all the inputs are not of double precision floating point or complex. ",
                stacklevel=4,
            )
