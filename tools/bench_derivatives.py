"""Compares the time of derivative checks: torch's slow mode, torch's fast mode and opcheck, in one process.

One thread. The three take turns at each sample, each after a warm-up call that is not timed. With torch, each check is
one call of gradcheck or gradgradcheck, with everything else switched off. opcheck computes the evidence for all checks
once, always with full Jacobians. Times are sums over samples. Compare the ratios: the times depend on the machine.

    python tools/bench_derivatives.py            a fixed pseudo-random part of the shipped samples, in under a minute
    python tools/bench_derivatives.py --all      all of them
    python tools/bench_derivatives.py --large    samples of thousands of elements: the check `backward`, all entries of
                                                 block-diagonal Jacobians, beside torch's fast mode
    python tools/bench_derivatives.py --json     an object: `total`, `dtype`, `check` and `size`, each with the ratios
"""

from __future__ import annotations

import argparse
import json
import random
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

from opcheck.checks import Context
from opcheck.derivatives import AUTO, Coverage, Numbers
from opcheck.derivatives.check_claim import check_claim
from opcheck.derivatives.point import Point
from opcheck.devices.device import CPU
from opcheck.planning import Selection, load, plan
from opcheck.settings import Settings
from opcheck.spec.device_profile import profiles

CHECKS = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev")
DTYPES = ("float64", "complex128")
SIZES = (4, 16, 64, 256, 1024)
BATCHES = (64, 1024, 16384)
PART = 160
"""The number of samples of each dtype in a run without --all."""

OFF: dict[str, Any] = {"check_undefined_grad": False, "check_batched_grad": False}
CALLS: dict[str, tuple[Callable[..., bool], dict[str, Any]]] = {
    "backward": (gradcheck, {**OFF, "check_grad_dtypes": False}),
    "forward_ad": (gradcheck, {**OFF, "check_forward_ad": True, "check_backward_ad": False}),
    "rev_over_rev": (gradgradcheck, OFF),
    "fwd_over_rev": (gradgradcheck, {**OFF, "check_rev_over_rev": False, "check_fwd_over_rev": True}),
}
"""The function of torch and its keywords for each check."""

Times = dict[tuple[str, str, str], float]
"""Seconds by (dtype or size, check, "slow", "fast" or "opcheck")."""


class Asked(NamedTuple):
    """A function whose derivatives are checked, at leaves."""

    function: Callable[..., tuple[Tensor, ...]]
    leaves: tuple[Tensor, ...]
    numbers: Numbers
    coverage: Coverage = AUTO

    @property
    def point(self) -> Point:
        """A new point."""
        return Point.of(self.function, self.leaves, coverage=self.coverage)


def shipped(settings: Settings) -> Iterator[tuple[str, list[str], Asked]]:
    """Yield dtype, checks and function of each sample of the shipped specs whose leaves are strided."""
    library = load(["specs"], settings)
    cases: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for case in plan(library, [profiles()["cpu"]], Selection(checks=CHECKS, dtypes=DTYPES)):
        if case.variant.kind == "function" and not case.expectations:
            cases[case.subject, case.dtype][case.check] = case
    for (_, dtype), checks in cases.items():
        context = Context(next(iter(checks.values())), settings, CPU)
        for sample in context.case.samples:
            subject = context.subject(sample)
            if subject.leaves and all(leaf.layout is torch.strided for leaf in subject.leaves):
                asked = Asked(subject.function, subject.leaves, subject.numbers, context.coverage)
                yield dtype, [check for check in CHECKS if check in checks], asked


def by_size() -> Iterator[tuple[int, str, Asked]]:
    """Yield number of elements, dtype and function of two functions at inputs of growing size."""
    numbers = Numbers(eps=1e-6, atol=1e-5, rtol=1e-3)
    functions: tuple[Callable[[Tensor], tuple[Tensor, ...]], ...] = (
        lambda x: (x.sin(),),
        lambda x: ((x * x.cumsum(0)).exp(),),
    )
    for size in SIZES:
        for dtype in DTYPES:
            for function in functions:
                leaf = (0.1 * torch.randn(size, dtype=getattr(torch, dtype))).requires_grad_()
                yield size, dtype, Asked(function, (leaf,), numbers)


def measure(asked: Asked, checks: list[str], label: str, times: Times, *, slow: bool = True) -> bool:
    """Add the seconds that each mode and opcheck take for a sample to `times`.

    Return False, and add nothing, if a check fails or raises an error in one of them: such times are not comparable.
    """
    mine: Times = defaultdict(float)
    for check, mode in product(checks, ("fast", "slow") if slow else ("fast",)):
        call, parameters = CALLS[check]
        call = partial(call, asked.function, asked.leaves, fast_mode=mode == "fast", **parameters)
        if not _timed(call, mine, (label, check, mode)):
            return False
    _answers(asked, checks, None, label)
    if not _answers(asked, checks, mine, label):
        return False
    for key, seconds in mine.items():
        times[key] += seconds
    return True


def _answers(asked: Asked, checks: list[str], mine: Times | None, label: str) -> bool:
    point = asked.point
    for check in checks:
        start = time.perf_counter()
        found = check_claim(check, point, asked.numbers, undefined_grad=False, non_contiguous=(False,))
        if mine is not None:
            mine[label, check, "opcheck"] += time.perf_counter() - start
        if found is not None:
            return False
    return True


def _timed(call: Callable[[], bool], mine: Times, key: tuple[str, str, str]) -> bool:
    try:
        call()
        start = time.perf_counter()
        held = call()
        mine[key] += time.perf_counter() - start
    except Exception:
        return False
    return held


def large() -> Iterator[tuple[str, int, Callable[..., Tensor], list[Tensor]]]:
    """Yield name, batch size, function and leaves of operators with independent batch elements."""

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64).requires_grad_()

    for batch in BATCHES:
        yield "sin", batch, torch.sin, [leaf(batch)]
        yield "softmax, rows of 8", batch, lambda x: functional.softmax(x, -1), [leaf(batch, 8)]
        yield "layer_norm, rows of 16", batch, lambda x: functional.layer_norm(x, (16,)), [leaf(batch, 16)]
        yield "products of 3 x 3", batch, torch.bmm, [leaf(batch, 3, 3), leaf(batch, 3, 3)]
    yield "sin", 65536, torch.sin, [leaf(65536)]
    yield "softmax, rows of 8", 4096, lambda x: functional.softmax(x, -1), [leaf(4096, 8)]


def measure_large(repeats: int = 9) -> list[dict[str, Any]]:
    """Return a row for each operator with the milliseconds of a plain call, of torch's fast mode and of opcheck.

    The three take turns. Times are medians of CPU time, since wall-clock time depends on other processes.
    """
    found = []
    for name, batch, function, leaves in large():
        asked = Asked(lambda *x, f=function: (f(*x),), tuple(leaves), Numbers(1e-6, 1e-5, 1e-3))
        fast = partial(gradcheck, function, tuple(leaves), fast_mode=True, **CALLS["backward"][1])
        calls: dict[str, Callable[[], object]] = {
            "call": partial(function, *leaves),
            "fast": fast,
            "opcheck": lambda asked=asked: check_claim("backward", asked.point, asked.numbers),
        }
        times: dict[str, list[float]] = {who: [] for who in calls}
        for _, (who, call) in product(range(repeats), calls.items()):
            start = time.process_time()
            call()
            times[who].append(1000 * (time.process_time() - start))
        row = {who: round(sorted(own)[repeats // 2], 3) for who, own in times.items()}
        extent = asked.point.directions.extent
        found.append(
            {"name": name, "batch": batch, "jacobian": extent, **row, "ratio": round(row["opcheck"] / row["fast"], 2)}
        )
    return found


def ratios(times: Times, chosen: Callable[[str, str], bool] = lambda label, check: True) -> dict[str, float | None]:
    """Return the sums of seconds, and the ratios of opcheck to torch's modes."""
    seconds = dict.fromkeys(("slow", "fast", "opcheck"), 0.0)
    for (label, check, who), value in times.items():
        if chosen(label, check):
            seconds[who] += value
    own = seconds["opcheck"]
    return {
        # None: this mode of torch was not run, since it takes too long.
        "opcheck_over_fast": round(own / seconds["fast"], 4) if seconds["fast"] else None,
        "opcheck_over_slow": round(own / seconds["slow"], 4) if seconds["slow"] else None,
        **{f"{who}_seconds": round(value, 4) for who, value in seconds.items()},
    }


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="all shipped samples")
    parser.add_argument("--large", action="store_true", help="samples of thousands of elements")
    parser.add_argument("--json", action="store_true", help="print an object")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")

    if options.large:
        rows = measure_large()
        print(json.dumps(rows, indent=2) if options.json else _table_of_large(rows))
        return
    samples = list(shipped(Settings.find()))
    random.Random(0).shuffle(samples)
    times: Times = defaultdict(float)
    taken: dict[str, int] = defaultdict(int)
    for dtype, checks, asked in samples:
        if (options.all or taken[dtype] < PART) and measure(asked, checks, dtype, times):
            taken[dtype] += 1
    sizes: Times = defaultdict(float)
    for size, dtype, asked in by_size():
        measure(asked, list(CHECKS), f"{size} {dtype}", sizes, slow=size <= 256)

    found: dict[str, Any] = {
        "samples": dict(taken),
        "total": ratios(times),
        "dtype": {d: ratios(times, lambda label, _, d=d: label == d) for d in DTYPES},
        "check": {c: ratios(times, lambda _, check, c=c: check == c) for c in CHECKS},
        "size": {
            f"{s} {d}": ratios(sizes, lambda label, _, s=s, d=d: label == f"{s} {d}") for s in SIZES for d in DTYPES
        },
    }
    print(json.dumps(found, indent=2) if options.json else _table(found))


def _table_of_large(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'':24}{'batch':>7}{'jacobian':>12}{'call ms':>9}{'fast ms':>9}{'opcheck ms':>11}{'/ fast':>8}"]
    lines += [
        f"{row['name']:24}{row['batch']:>7}{row['jacobian']:>12}{row['call']:>9.2f}{row['fast']:>9.2f}"
        f"{row['opcheck']:>11.2f}{row['ratio']:>8.2f}"
        for row in rows
    ]
    return "\n".join(lines)


def _table(found: dict[str, Any]) -> str:
    lines = [
        f"samples: {found['samples']}",
        f"{'':18}{'slow s':>10}{'fast s':>10}{'opcheck s':>11}{'/ fast':>9}{'/ slow':>9}",
    ]
    rows = [("total", found["total"])]
    rows += [(name, row) for group in ("dtype", "check", "size") for name, row in found[group].items()]
    for name, row in rows:
        lines.append(
            f"{name:18}{row['slow_seconds']:>10.3f}{row['fast_seconds']:>10.3f}{row['opcheck_seconds']:>11.3f}"
            + "".join(
                f"{'' if ratio is None else f'{ratio:.3f}':>9}"
                for ratio in (row["opcheck_over_fast"], row["opcheck_over_slow"])
            )
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
