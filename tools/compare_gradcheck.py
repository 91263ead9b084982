"""Holds `opcheck.gradcheck` and `gradgradcheck` against torch's functions, over the samples of PyTorch's own database.

    python tools/compare_gradcheck.py                          float64, first order, one sample of each operator
    python tools/compare_gradcheck.py --order 2 --samples 3    second order, three samples of each
    python tools/compare_gradcheck.py --dtype complex128 --only linalg

Needs the package expecttest, with which PyTorch's own tests are written.

Prints each sample on which opcheck and torch's slow mode differ, and the CPU time of opcheck beside those of torch's
slow and fast modes. Samples are small: at most `--elements` numbers go in, and as many come out.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import opcheck

WAYS = ("opcheck", "slow", "fast")
REFUSAL = "refused"


@dataclass(frozen=True)
class Question:
    """One call of gradcheck or gradgradcheck, as PyTorch's own tests make it."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    parameters: dict[str, Any]


def questions(operators: Iterable[Any], dtype: torch.dtype, order: int, samples: int, most: int) -> Iterator[Question]:
    """Yield the calls for the first samples of each operator that are small and work."""
    for op in operators:
        if not op.supports_autograd or dtype not in op.supported_backward_dtypes("cpu"):
            continue
        if order == 2 and not op.supports_gradgrad:
            continue
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        for number, sample in enumerate(islice(op.sample_inputs("cpu", dtype, requires_grad=True), samples)):
            found = question(f"{name}[{number}]", op, sample, order)
            if is_small(found, most):
                yield found


def question(name: str, op: Any, sample: Any, order: int) -> Question:
    """Return the call for a sample: a function of all its tensors."""
    leaves, structure = tree_flatten(((sample.input, *sample.args), sample.kwargs))
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def function(*tensors: Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        args, kwargs = tree_unflatten(filled, structure)
        result = sample.output_process_fn_grad(op.gradcheck_wrapper(op.op, *args, **kwargs))
        return tuple(r for r in result if isinstance(r, Tensor)) if isinstance(result, (tuple, list)) else result

    if order == 1:
        claims = ("forward_ad", "batched_grad", "batched_forward_grad")
        values = (op.supports_forward_ad, op.check_batched_grad, op.check_batched_forward_grad)
    else:
        claims, values = ("fwd_over_rev",), (op.supports_fwgrad_bwgrad,)
    parameters = {f"check_{claim}": value for claim, value in zip(claims, values, strict=True)}
    parameters["nondet_tol"] = op.gradcheck_nondet_tol
    return Question(name, function, tuple(leaves[place] for place in places), parameters)


def is_small(asked: Question, most: int) -> bool:
    """Tell whether few numbers go in and come out, and the operator takes the sample."""
    differentiated = sum(tensor.numel() for tensor in asked.inputs if tensor.requires_grad)
    try:
        outputs = [leaf for leaf in tree_leaves(asked.function(*asked.inputs)) if isinstance(leaf, Tensor)]
    except Exception:  # samples of errors, and of other builds of torch
        return False
    return 0 < differentiated <= most and sum(output.numel() for output in outputs) <= most


def answer(way: str, order: int, asked: Question) -> tuple[str, float]:
    """Return the verdict of one of `WAYS`, and the CPU time that it took, in seconds."""
    name = "gradcheck" if order == 1 else "gradgradcheck"
    function = getattr(opcheck if way == "opcheck" else torch.autograd, name)
    more = {"fast_mode": True} if way == "fast" else {}
    torch.manual_seed(0)
    start = time.process_time()
    try:
        verdict = str(function(asked.function, asked.inputs, raise_exception=False, **asked.parameters, **more))
    except Exception as error:
        verdict = f"{REFUSAL}: {type(error).__name__}"
    return verdict, time.process_time() - start


def compare(asked: Iterable[Question], order: int) -> tuple[int, list[str], Counter[str]]:
    """Return the number of samples, a line for each on which opcheck and slow mode differ, and CPU times in seconds."""
    count, different, seconds = 0, [], Counter[str]()
    for one in asked:
        if not count:  # the first calls import parts of torch
            for way in WAYS:
                answer(way, order, one)
        answers = {way: answer(way, order, one) for way in WAYS}
        count += 1
        seconds.update({way: spent for way, (_, spent) in answers.items()})
        if answers["opcheck"][0] != answers["slow"][0]:
            different.append(f"{one.name}: opcheck {answers['opcheck'][0]}, torch {answers['slow'][0]}")
            print(different[-1], flush=True)
    return count, different, seconds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float64", choices=["float64", "complex128"])
    parser.add_argument("--order", type=int, default=1, choices=[1, 2])
    parser.add_argument("--samples", type=int, default=1, metavar="N", help="of each operator; default: 1")
    parser.add_argument("--elements", type=int, default=60, metavar="N", help="the most of a sample; default: 60")
    parser.add_argument("--only", default="", metavar="TEXT", help="operators whose name contains it")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        parser.error(f"PyTorch's database cannot be loaded: {error}. It needs the package expecttest")

    chosen = (op for op in op_db if options.only in op.name)
    dtype = getattr(torch, options.dtype)
    asked = questions(chosen, dtype, options.order, options.samples, options.elements)
    count, different, seconds = compare(asked, options.order)
    times = ", ".join(f"{way} {seconds[way]:.1f} s" for way in WAYS)
    print(f"{count} samples, {len(different)} differ; CPU time: {times}")
    if seconds["fast"]:
        print(f"opcheck takes {seconds['opcheck'] / seconds['fast']:.2f} of fast mode")
    return 0


if __name__ == "__main__":
    sys.exit(main())
