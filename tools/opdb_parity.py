"""Compares the shipped library with op_db, PyTorch's own operator database: `python tools/opdb_parity.py [--json]`.

An entry of op_db is covered by a spec of the same name. An entry for a variant, such as one value of a keyword, is only
covered by a spec with such a sample. For covered entries, the claims of op_db on the CPU and of the specs are compared
aspect by aspect. Then the autograd formulas that the samples reach, at first and second order, are counted, out of all
formulas in libtorch; with `--op-db-formulas`, those that op_db's samples reach, too. `--conditions` (minutes) lists the
conditions of `opcheck mutate` that a sample of op_db meets, but none of our written or derived samples.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import unittest
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

import opcheck
from opcheck.draft.coverage import by_path
from opcheck.mutation.call import Call
from opcheck.mutation.conditions import Condition, conditions
from opcheck.mutation.measure import Target, measure
from opcheck.running.autograd_nodes import name_of, names_in, orders, reached
from opcheck.running.own_process import apart, split_results
from opcheck.running.session import RunSession
from opcheck.samples.arguments import Signature, signature_of
from opcheck.samples.inputs import parts
from opcheck.samples.resolve import resolve_operator
from opcheck.samples.results import differentiable as with_derivative
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.dtypes import expand
from opcheck.spec.library import Operator

SPECS = Path(__file__).resolve().parent.parent / "specs"

SECONDS = 60.0
"""The time limit of an operator, or of an entry, in seconds."""

MOST = 200
"""The maximum number of samples of an entry that are called."""

KNOWN = frozenset(expand(("all",)))
"""The dtypes whose claims are compared. op_db also lists complex32 and eight-bit floats."""

NAMES = {
    "T": "torch.Tensor.T",
    "_batch_norm_with_update": "torch.ops.aten._batch_norm_with_update.default",
    "_native_batch_norm_legit": "torch.ops.aten._native_batch_norm_legit.default",
    "_segment_reduce": "torch.segment_reduce",
    "_softmax_backward_data": "torch.ops.aten._softmax_backward_data.default",
    "_unsafe_masked_index": "torch.ops.aten._unsafe_masked_index.default",
    "_unsafe_masked_index_put_accumulate": "torch.ops.aten._unsafe_masked_index_put_accumulate.default",
    "_upsample_bilinear2d_aa": "torch.ops.aten._upsample_bilinear2d_aa.default",
    "mH": "torch.adjoint",
    "max_pool2d_with_indices_backward": "torch.ops.aten.max_pool2d_with_indices_backward.default",
    "native_dropout_backward": "torch.ops.aten.native_dropout_backward.default",
    "slice": "torch.ops.aten.slice.Tensor",
    "torch.ops.aten._safe_softmax.default": "torch.ops.aten._safe_softmax.default",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": (
        "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default"
    ),
}
"""The operator of an entry, if it is neither `torch.NAME` nor `torch.Tensor.NAME`."""

SECOND_IS_A_TENSOR = r"^\{ args = \[\{[^}]*\}, \{ (shape|values)"
SAMPLES = {
    "as_strided.partial_views": 'memory = "noncontiguous"',
    "div.floor_rounding": 'rounding_mode = "floor"',
    "div.no_rounding_mode": "^(?!.*rounding_mode)",
    "div.trunc_rounding": 'rounding_mode = "trunc"',
    "index_reduce.amax": '"amax"',
    "index_reduce.amin": '"amin"',
    "index_reduce.mean": '"mean"',
    "index_reduce.prod": '"prod"',
    "linalg.norm.subgradients_at_zero": r"values = \[?\[?0",
    "linalg.pinv.hermitian": "hermitian = true",
    "linalg.pinv.singular": "low_rank",
    "log_softmax.with_dtype": "dtype = { dtype",
    "max.binary": SECOND_IS_A_TENSOR,
    "max.reduction_no_dim": r"^\{ args = \[\{[^}]*\}\] \}$",
    "max.reduction_with_dim": r"dim = |\}, -?\d",
    "meshgrid.list_of_tensors": r"args = \[\[",
    "meshgrid.variadic_tensors": r"args = \[\{",
    "min.binary": SECOND_IS_A_TENSOR,
    "min.reduction_no_dim": r"^\{ args = \[\{[^}]*\}\] \}$",
    "min.reduction_with_dim": r"dim = |\}, -?\d",
    "mvlgamma.mvlgamma_p_1": "p = 1|, 1]",
    "mvlgamma.mvlgamma_p_3": "p = 3|, 3]",
    "mvlgamma.mvlgamma_p_5": "p = 5|, 5]",
    "nn.functional.feature_alpha_dropout.with_train": "training = true",
    "nn.functional.feature_alpha_dropout.without_train": "^(?!.*training = true)",
    "nn.functional.interpolate.area": 'mode = "area"',
    "nn.functional.interpolate.bicubic": 'mode = "bicubic"',
    "nn.functional.interpolate.bilinear": 'mode = "bilinear"',
    "nn.functional.interpolate.linear": 'mode = "linear"',
    "nn.functional.interpolate.nearest": 'mode = "nearest"',
    "nn.functional.interpolate.nearest-exact": 'mode = "nearest-exact"',
    "nn.functional.interpolate.trilinear": 'mode = "trilinear"',
    "nn.functional.linear_cross_entropy.chunked": "LinearCrossEntropyOptions",
    "nn.functional.linear_cross_entropy.chunked_none": '(?=.*LinearCrossEntropyOptions).*reduction = "none"',
    "nn.functional.pad.circular": 'mode = "circular"',
    "nn.functional.pad.constant": "^(?!.*mode)|constant",
    "nn.functional.pad.reflect": 'mode = "reflect"',
    "nn.functional.pad.replicate": 'mode = "replicate"',
    "nn.functional.pad.replicate_negative": r'\[[^\[\]{}]*-\d[^\[\]{}]*\].*mode = "replicate"',
    "nn.functional.softmin.with_dtype": "dtype = { dtype",
    "norm.fro": '"fro"',
    "norm.inf": r"\binf\b",
    "norm.nuc": '"nuc"',
    "normal.number_mean": r"args = \[-?\d",
    "round.decimals_0": "decimals = 0",
    "round.decimals_3": "decimals = 3",
    "round.decimals_neg_3": "decimals = -3",
    "softmax.with_dtype": "dtype = { dtype",
    "sparse.mm.reduce": r'"(sum|mean|amax|amin)"',
    "split.list_args": r"\}, \[",
    "squeeze.multiple": "tuple",
    "std.unbiased": r"\}, (0, )?(true|false)|unbiased",
    "std_mean.unbiased": r"\}, (0, )?(true|false)|unbiased",
    "var.unbiased": r"\}, (0, )?(true|false)|unbiased",
    "var_mean.unbiased": r"\}, (0, )?(true|false)|unbiased",
    **{f"_segment_reduce.{by}": f"{by} = " for by in ("lengths", "offsets")},
    **{f"polygamma.polygamma_n_{n}": rf"args = \[{n},|\}}, {n}\]" for n in range(5)},
    **{f"scatter_reduce.{how}": f'"{how}"' for how in ("amax", "amin", "mean", "prod", "sum")},
}
"""Regular expressions that the TOML of a sample must match to cover a variant, by entry."""

ANY_SAMPLE = frozenset({
    "addmm.decomposed",  # the same function, written as mm and add
    "linalg.lstsq.grad_oriented",
    "nn.functional.max_unpool1d.grad",
    "nn.functional.max_unpool2d.grad",
    "nn.functional.max_unpool3d.grad",
    "special.polygamma.special_polygamma_n_0",
})  # fmt: skip
"""Entries of variants that any sample of the spec covers: only op_db's samples or its implementation differ."""


class Comparison(NamedTuple):
    """One aspect of one entry: the claims of op_db and those of the specs."""

    entry: str
    aspect: str
    theirs: frozenset[str]
    ours: frozenset[str]
    where: str

    @property
    def verdict(self) -> str:
        """`weaker`, `equal` or `stronger`: the claims of the specs compared with those of op_db."""
        if self.theirs - self.ours:
            return "weaker"
        return "stronger" if self.ours - self.theirs else "equal"


def differentiable() -> list[Any]:
    """Return the entries of op_db that have a backward pass on the CPU."""
    if "expecttest" not in sys.modules and find_spec("expecttest") is None:  # imported by torch's test utilities
        stub = ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub
    from torch.testing._internal.common_methods_invocations import op_db

    return [entry for entry in op_db if entry.supports_autograd and entry.supported_backward_dtypes("cpu")]


def tested(entry: Any, test: str) -> bool:
    """Return whether PyTorch's gradient suites run a test of an entry and expect it to pass.

    A claim of op_db whose test is skipped or expected to fail does not count.
    """
    for one in entry.decorators:
        if getattr(one, "cls_name", None) not in ("TestBwdGradients", "TestFwdGradients"):
            continue
        off = any(re.match("skip|expectedFailure", getattr(each, "__qualname__", "")) for each in one.decorators)
        here = one.device_type in (None, "cpu") and (one.dtypes is None or torch.float64 in one.dtypes)
        if off and here and one.test_name in (None, test):
            return False
    return True


def covering(entry: Any, named: dict[str, list[Operator]]) -> list[Operator]:
    """Return the specs that cover an entry. Raises KeyError for a variant that the tables of this module lack."""
    own = NAMES.get(entry.name)
    names = [own] if own else [f"torch.{entry.name}", f"torch.Tensor.{entry.name}"]
    specs = list(dict.fromkeys(operator for name in names for operator in named.get(name, ())))
    if not entry.variant_test_name or entry.full_name in ANY_SAMPLE:
        return specs
    says = re.compile(SAMPLES[entry.full_name])
    return [operator for operator in specs if any(says.search(sample.toml()) for sample in operator.samples)]


def compare(entry: Any, specs: Sequence[Operator]) -> Iterator[Comparison]:
    """Yield, for each aspect, the claims of op_db and of the specs that cover an entry."""

    def named(dtypes: Iterable[torch.dtype]) -> frozenset[str]:
        return frozenset(str(dtype).removeprefix("torch.") for dtype in dtypes) & KNOWN

    def either(claims: Iterable[bool]) -> frozenset[str]:
        return frozenset(["yes"] if any(claims) else [])

    supports = [operator.spec.supports for operator in specs]
    dtypes = [operator.spec.dtypes for operator in specs]
    both = [each for each in supports if each.forward_ad and each.second_order]
    aspects = {
        "forward": (
            named(entry.supported_dtypes("cpu")),
            frozenset(name for each in dtypes for name in each.forward_names()),
        ),
        "backward": (
            named(entry.supported_backward_dtypes("cpu")),
            frozenset(
                name
                for each, claims in zip(dtypes, supports, strict=True)
                if claims.backward is not False
                for name in each.backward_names()
            ),
        ),
        "forward_ad": (either([entry.supports_forward_ad]), either(each.forward_ad for each in supports)),
        "second_order": (
            either([entry.supports_gradgrad and tested(entry, "test_fn_gradgrad")]),
            either(each.second_order for each in supports),
        ),
        "fwd_over_rev": (
            either([entry.supports_fwgrad_bwgrad and tested(entry, "test_fn_fwgrad_bwgrad")]),
            either(each.fwd_over_rev for each in both),
        ),
        "batched_grad": (
            either([entry.check_batched_grad and tested(entry, "test_fn_grad")]),
            either(each.batched_grad for each in supports),
        ),
        "batched_forward_grad": (
            either([entry.check_batched_forward_grad]),
            either(each.forward_ad and each.batched_forward_grad for each in supports),
        ),
        "inplace": (
            either([entry.inplace_variant is not None and tested(entry, "test_inplace_grad")]),
            either(
                operator.spec.inplace or any(variant.kind == "inplace" for variant in operator.variants)
                for operator in specs
            ),
        ),
    }
    where = ", ".join(sorted({f"{Path(operator.document.file).name}:{operator.line}" for operator in specs}))
    for aspect, (theirs, ours) in aspects.items():
        yield Comparison(entry.full_name, aspect, theirs, ours, where)


@dataclass(frozen=True)
class Conditions:
    """The conditions of one operator that our samples and those of op_db meet."""

    name: str
    ours: frozenset[str]
    theirs: frozenset[str]

    @property
    def missing(self) -> list[str]:
        """The conditions that only samples of op_db meet."""
        return sorted(self.theirs - self.ours)


def both(operators: Iterable[Operator]) -> dict[str, tuple[list[Operator], list[Any]]]:
    """Return the operators that specs and op_db have in common: the specs and the entries of each, by name."""
    named, pairs = by_path(operators), dict[str, tuple[list[Operator], list[Any]]]()
    for entry in differentiable():
        specs = covering(entry, named)
        if specs:
            own, entries = pairs.setdefault(specs[0].spec.name, ([], []))
            own += [operator for operator in specs if operator not in own]
            entries.append(entry)
    return pairs


def compare_conditions(
    name: str, operators: Sequence[Operator], entries: Sequence[Any], session: RunSession, derive: str
) -> Conditions:
    signature = signature_of(resolve_operator(name, session.settings.modules), name)
    samples = [sample for operator in operators for sample in operator.samples]
    listed = [one for one in conditions(samples, signature, ()) if not one.checks]
    device, ours = DeviceProfile(name="cpu"), set[str]()
    for operator in operators:
        target = Target(operator, device, session, derive)
        ours |= {answer.condition for answer in measure(target).those("met")}
    return Conditions(name, frozenset(ours), frozenset(met(listed, (c for e in entries for c in calls(e, signature)))))


def met(listed: Sequence[Condition], theirs: Iterator[Call]) -> set[str]:
    names = set()
    for call in theirs:
        names |= {condition.name for condition in listed if condition.name not in names and condition.met_by(call)}
    return names


def calls(entry: Any, signature: Signature) -> Iterator[Call]:
    """Yield the float64 calls of an entry that the operator accepts, and whose outputs require grad."""
    if torch.float64 not in entry.supported_backward_dtypes("cpu"):
        return
    for number, sample in enumerate(entry.sample_inputs("cpu", torch.float64, requires_grad=True)):
        if number == MOST:
            break
        args = (sample.input, *sample.args)
        try:
            result = entry.op(*args, **sample.kwargs)
        except Exception:
            continue
        outputs = with_derivative(part for part in parts(_plain(result)) if isinstance(part, torch.Tensor))
        if any(output.requires_grad for output in outputs):
            yield Call(args, dict(sample.kwargs), signature, outputs)


def _plain(result: Any) -> Any:
    return [_plain(part) for part in result] if isinstance(result, (tuple, list)) else result


def universe() -> set[str]:
    """Return the names of all autograd formulas, from class names in libtorch_cpu.so: torch has no other list."""
    found = find_spec("torch")
    assert found is not None
    assert found.origin is not None
    library = (Path(found.origin).parent / "lib" / "libtorch_cpu.so").read_bytes()
    names = re.findall(rb"\x00N5torch8autograd9generated(\d+)(\w+)E(?=\x00)", library)
    own = {name.decode() for size, name in names if len(name) == int(size)}
    return {name_of(name) for name in own if "Backward" in name}


def formulas_of(entry: Any) -> set[str]:
    """Return the formulas that the samples of an entry reach, by the function and its in-place variant."""
    names = set[str]()
    warnings.simplefilter("ignore")
    for dtype in {torch.float64, torch.complex128} & entry.supported_backward_dtypes("cpu"):
        for sample in islice(entry.sample_inputs("cpu", dtype, requires_grad=True), MOST):
            args = (sample.input, *sample.args)
            leaves = [part for part in parts((args, sample.kwargs)) if isinstance(part, torch.Tensor)]
            for way in filter(None, (entry.op, entry.inplace_variant)):
                try:
                    for outputs in orders(lambda *_: _called(way, entry, args, sample.kwargs), leaves):  # noqa: B023
                        names |= names_in(outputs)
                except Exception:
                    continue
    return names


def _called(way: Any, entry: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    first, *others = args
    return _plain(way(first.clone() if way is entry.inplace_variant else first, *others, **kwargs))


def parity(specs: str | Path = SPECS, *, op_db_formulas: bool = False) -> dict[str, Any]:
    """Return the data that `--json` prints, except for the conditions."""
    operators, entries = list(opcheck.load(Path(specs).resolve())), differentiable()
    named = by_path(operators)
    covered = {entry.full_name: (entry, by) for entry in entries if (by := covering(entry, named))}
    compared = [one for entry, by in covered.values() for one in compare(entry, by)]
    counts = Counter(one.verdict for one in compared)
    weaker = [
        {"entry": one.entry, "aspect": one.aspect, "lacks": sorted(one.theirs - one.ours), "where": one.where}
        for one in compared
        if one.verdict == "weaker"
    ]
    missing = [entry.full_name for entry in entries if entry.full_name not in covered]
    return {
        "torch": torch.__version__,
        "entries": {"covered": len(covered), "total": len(entries), "missing": missing},
        "formulas": formulas(operators, entries if op_db_formulas else None),
        "claims": {"equal": counts["equal"], "stronger": counts["stronger"], "weaker": weaker},
    }


def formulas(operators: Sequence[Operator], entries: Sequence[Any] | None) -> dict[str, Any]:
    """Return how many formulas our samples and those of op_db reach. entries: those of op_db; None: not counted."""
    session = RunSession(Settings(), own_process=True)
    session.prepare(operators)
    processes, every = os.cpu_count() or 1, universe()
    ours, lost = reached(operators, session, processes, SECONDS)
    theirs: set[str] | None = None
    if entries is not None:
        answers = apart(formulas_of, entries, processes, SECONDS)
        by_entry, lost_of_op_db = split_results((f"op_db: {entry.full_name}" for entry in entries), answers)
        theirs = set[str]().union(*by_entry.values())
        lost |= lost_of_op_db
    return {
        "ours": len(ours & every),
        "op_db": None if theirs is None else len(theirs & every),
        "universe": len(every),
        "missing": sorted(every - ours),
        "not_measured": lost,
    }


def behind(specs: str | Path, derive: str) -> dict[str, Any]:
    """Return the operators for which samples of op_db meet conditions that our samples do not, with these."""
    session = RunSession(Settings(derive=derive), derive=derive, own_process=True)
    operators = list(opcheck.load(Path(specs).resolve()))
    session.prepare(operators)
    pairs = both(operators)

    def work(name: str) -> Conditions:
        return compare_conditions(name, *pairs[name], session, derive)

    compared, lost = split_results(pairs, apart(work, list(pairs), os.cpu_count() or 1))
    missing = {name: one.missing for name, one in compared.items() if one.missing}
    return {"both": len(pairs), "behind": missing, "not_measured": lost}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="?", default=str(SPECS), help="default: the shipped library")
    parser.add_argument("--json", action="store_true", help="print all as JSON")
    parser.add_argument("--op-db-formulas", action="store_true", help="count those that op_db reaches, too: minutes")
    parser.add_argument("--conditions", action="store_true", help="compare the conditions that are met, too: minutes")
    parser.add_argument("--derive", default="standard", choices=["none", "standard", "thorough"], help="for conditions")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    result = parity(options.specs, op_db_formulas=options.op_db_formulas)
    if options.conditions:
        result["conditions"] = behind(options.specs, options.derive)
    lost = {**result["formulas"]["not_measured"], **result.get("conditions", {}).get("not_measured", {})}
    if options.json:
        print(json.dumps(result, indent=2))
        return int(bool(lost))
    entries, claims, reach = result["entries"], result["claims"], result["formulas"]
    print(f"torch {result['torch']}: {entries['covered']} of {entries['total']} differentiable entries are covered")
    for name in entries["missing"]:
        print(f"  missing: {name}")
    print(f"claims: {len(claims['weaker'])} weaker, {claims['equal']} equal, {claims['stronger']} stronger")
    for one in claims["weaker"]:
        print(f"  weaker: {one['entry']} {one['aspect']}, lacks {', '.join(one['lacks'])} ({one['where']})")
    theirs = "" if reach["op_db"] is None else f", op_db {reach['op_db']}"
    print(f"formulas: {reach['ours']} of {reach['universe']} are reached{theirs}")
    if options.conditions:
        conditions_of = result["conditions"]
        for name, missing in conditions_of["behind"].items():
            print(f"  {name}: {', '.join(missing)}")
        print(f"conditions: of {conditions_of['both']}, op_db alone meets some for {len(conditions_of['behind'])}")
    for name, why in lost.items():
        print(f"{name}: NOT MEASURED: {why}")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
