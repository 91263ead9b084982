"""Compares `opcheck.gradcheck` and `gradgradcheck` with torch's functions on the samples of op_db, PyTorch's database.

    python tools/compare_gradcheck.py                          float64, first order, one sample of each operator
    python tools/compare_gradcheck.py --order 2 --samples 3    second order, three samples of each
    python tools/compare_gradcheck.py --dtype complex128 --only linalg
    python tools/compare_gradcheck.py --all                    both orders, both dtypes, all small samples: an hour

Needs the package expecttest, which PyTorch's test utilities import.

Prints each sample on which opcheck and torch's slow mode differ, the CPU times of opcheck and of torch's slow and fast
modes for the samples that pass in all three, and the number of samples for which opcheck takes longer than slow mode.
Only small samples are used: their inputs and their outputs have at most `--elements` elements each.

Differences in which torch is known to be wrong are listed in known_differences.toml, with reasons. The exit status is 1
if there is any other difference and, with --all, if an entry of the list no longer applies.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import tomli
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import opcheck

WAYS = ("opcheck", "slow", "fast")
REFUSAL = "refused"
KNOWN = Path(__file__).with_name("known_differences.toml")
DTYPES = ("float64", "complex128")
ORDERS = (1, 2)


@dataclass(frozen=True)
class Question:
    """The arguments of one call of gradcheck or gradgradcheck, as in PyTorch's own tests."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """A sample on which opcheck and torch's slow mode differ, or an entry of the list of known differences."""

    operator: str
    order: int
    dtype: str
    opcheck: str
    torch: str
    sample: str = ""
    reason: str = ""

    def __str__(self) -> str:
        which = self.sample or self.operator
        return f"{which}, order {self.order}, {self.dtype}: opcheck {self.opcheck}, torch {self.torch}"

    def covers(self, other: Difference) -> bool:
        """Return whether this entry of the list applies to the difference of a sample."""
        kinds = [(one.operator, one.order, one.dtype, one.opcheck, one.torch) for one in (self, other)]
        return kinds[0] == kinds[1]


def known_differences(path: Path = KNOWN) -> list[Difference]:
    """Return the list, with a difference for each order and dtype of an entry."""
    entries = tomli.loads(path.read_text(encoding="utf-8"))["difference"]
    for entry in entries:
        if not entry["reason"].strip():
            raise ValueError(f"{path}: the entry for {entry['operator']} gives no reason")
    return [
        Difference(entry["operator"], order, dtype, entry["opcheck"], entry["torch"], reason=entry["reason"])
        for entry in entries for order in entry["orders"] for dtype in entry["dtypes"]
    ]  # fmt: skip


def questions(
    operators: Iterable[Any], dtype: torch.dtype, order: int, samples: int | None, most: int
) -> Iterator[Question]:
    """Yield the calls for the small samples of each operator that the operator accepts.

    samples: how many samples of each operator to try, from the first; None: all. most: see `is_small`.
    """
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
    """Return the call for a sample, with a function of all of its tensors, including those in lists."""
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
    """Return whether the operator accepts the inputs, and inputs that require grad and outputs have few elements."""
    differentiated = sum(tensor.numel() for tensor in asked.inputs if tensor.requires_grad)
    try:
        outputs = [leaf for leaf in tree_leaves(asked.function(*asked.inputs)) if isinstance(leaf, Tensor)]
    except Exception:  # the sample is for an error, or for another build of torch
        return False
    return 0 < differentiated <= most and sum(output.numel() for output in outputs) <= most


def answer(way: str, order: int, asked: Question) -> tuple[str, float]:
    """Return the verdict of one of `WAYS`, and its CPU time in seconds."""
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


def is_slower(order: int, asked: Question) -> bool:
    """Return whether opcheck takes longer than slow mode, by 10 % and 0.1 ms, in the best of three calls each."""
    best = {way: min(answer(way, order, asked)[1] for _ in range(3)) for way in ("opcheck", "slow")}
    return best["opcheck"] > 1.1 * best["slow"] + 1e-4


def compare(asked: Iterable[Question], order: int, dtype: str) -> tuple[int, list[Difference], Counter[str]]:
    """Return the number of samples, the differences of opcheck and slow mode, and CPU times in seconds.

    The times are those of samples that pass in all `WAYS`: slow mode stops at the first wrong entry. Their number is
    the entry "passing". The entry "slower" is the number of samples for which opcheck takes longer than slow mode.
    """
    count, different, seconds = 0, [], Counter[str]()
    for one in asked:
        if not count:  # warm up: the first calls import parts of torch
            for way in WAYS:
                answer(way, order, one)
        first = count % len(WAYS)  # in turn, since the first one also loads the kernels of the operator
        answers = {way: answer(way, order, one) for way in WAYS[first:] + WAYS[:first]}
        count += 1
        if all(verdict == "True" for verdict, _ in answers.values()):
            seconds.update({"passing": 1, **{way: spent for way, (_, spent) in answers.items()}})
        if answers["opcheck"][1] > answers["slow"][1] and is_slower(order, one):
            seconds["slower"] += 1
        if answers["opcheck"][0] != answers["slow"][0]:
            verdicts = answers["opcheck"][0], answers["slow"][0]
            different.append(Difference(one.name.rpartition("[")[0], order, dtype, *verdicts, one.name))
            print(different[-1], flush=True)
    return count, different, seconds


def unexpected(found: Sequence[Difference], known: Sequence[Difference], is_whole: bool) -> list[str]:
    """Return a line for each difference that is not listed and, if `is_whole`, each listed one that was not found.

    is_whole: whether all samples were compared.
    """
    lines = [f"not listed: {one}" for one in found if not any(entry.covers(one) for entry in known)]
    gone = [entry for entry in known if not any(entry.covers(one) for one in found)] if is_whole else []
    return lines + [f"listed, but there is none: {entry}" for entry in gone]


def summary(what: str, count: int, differences: int, seconds: Counter[str]) -> str:
    """Return a line with the totals of a run."""
    times = ", ".join(f"{way} {seconds[way]:.1f} s" for way in WAYS)
    share = f"; opcheck takes {seconds['opcheck'] / seconds['fast']:.2f} of fast mode" if seconds["fast"] else ""
    longer = f"; {seconds['slower']:.0f} samples take longer than slow mode" if seconds["slow"] else ""
    passing = f"CPU time of the {seconds['passing']:.0f} that pass in each way"
    return f"{what}: {count} samples, {differences} differ; {passing}: {times}{share}{longer}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="both orders, both dtypes and all small samples")
    parser.add_argument("--dtype", default=DTYPES[0], choices=DTYPES)
    parser.add_argument("--order", type=int, default=1, choices=ORDERS)
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

    chosen = [op for op in op_db if options.only in op.name]
    runs = [(order, dtype) for order in ORDERS for dtype in DTYPES] if options.all else [(options.order, options.dtype)]
    samples = None if options.all else options.samples
    count, found, seconds = 0, list[Difference](), Counter[str]()
    for order, dtype in runs:
        asked = questions(chosen, getattr(torch, dtype), order, samples, options.elements)
        own_count, own, own_seconds = compare(asked, order, dtype)
        print(summary(f"order {order}, {dtype}", own_count, len(own), own_seconds), flush=True)
        count, found, seconds = count + own_count, found + own, seconds + own_seconds
    if len(runs) > 1:
        print(summary("all", count, len(found), seconds))
    names = {f"{op.name}.{op.variant_test_name}".rstrip(".") for op in chosen}
    known = [entry for entry in known_differences() if not options.only or entry.operator in names]
    lines = unexpected(found, known, options.all)
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
