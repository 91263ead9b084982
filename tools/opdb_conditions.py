"""Counts the operators for which PyTorch's op_db would notice a wrong gradient, and the shipped specs would not.

For each operator that both have: the conditions of `opcheck mutate` that a sample of op_db meets, and none of ours, be
it written or derived. Needs the package expecttest.

    python tools/opdb_conditions.py                        # the whole library: minutes
    python tools/opdb_conditions.py specs/linalg --json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from opcheck.mutation.call import Call, Signature
from opcheck.mutation.conditions import Condition, conditions
from opcheck.mutation.measure import Target, measure
from opcheck.planning import load
from opcheck.running.apart import Ended, apart
from opcheck.running.session import RunSession
from opcheck.samples.inputs import parts
from opcheck.samples.resolve import resolve_operator
from opcheck.samples.results import differentiable
from opcheck.settings import Settings
from opcheck.spec.device import DeviceProfile
from opcheck.spec.library import Operator

ROOT = Path(__file__).resolve().parent.parent
MOST = 200
"""The most samples of an entry of op_db that are called."""


@dataclass(frozen=True)
class Comparison:
    """The conditions of one operator."""

    name: str
    ours: frozenset[str]
    theirs: frozenset[str]

    @property
    def missing(self) -> list[str]:
        """Those that only op_db meets."""
        return sorted(self.theirs - self.ours)


def spec_names(entry: Any) -> tuple[str, ...]:
    """Return what a spec may call the operator of an entry of op_db: its dotted name, or that of a method."""
    return f"torch.{entry.name}", f"torch.Tensor.{entry.name}"


def by_name(operators: Sequence[Operator], entries: Sequence[Any]) -> dict[str, tuple[list[Operator], list[Any]]]:
    """Return the operators that both have, with all specs and all entries of a name."""
    specs, both = defaultdict(list), dict[str, tuple[list[Operator], list[Any]]]()
    for operator in operators:
        specs[operator.spec.name].append(operator)
    for entry in entries:
        name = next((name for name in spec_names(entry) if name in specs), None)
        if name is not None and entry.supports_autograd:
            both.setdefault(name, (specs[name], []))[1].append(entry)
    return both


def compare(
    name: str, operators: Sequence[Operator], entries: Sequence[Any], session: RunSession, derive: str
) -> Comparison:
    signature = Signature.of(resolve_operator(name, session.settings.modules), name)
    samples = [sample for operator in operators for sample in operator.samples]
    listed = [one for one in conditions(samples, signature, ()) if not one.checks]
    device, ours = DeviceProfile(name="cpu"), set[str]()
    for operator in operators:
        target = Target(operator, device, session, derive)
        ours |= {answer.condition for answer in measure(target).those("met")}
    return Comparison(name, frozenset(ours), frozenset(met(listed, (c for e in entries for c in calls(e, signature)))))


def met(listed: Sequence[Condition], of_op_db: Iterator[Call]) -> set[str]:
    names = set()
    for call in of_op_db:
        names |= {condition.name for condition in listed if condition.name not in names and condition.met_by(call)}
    return names


def calls(entry: Any, signature: Signature) -> Iterator[Call]:
    """Yield the calls of an entry whose outputs have a backward pass, in float64."""
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
        outputs = differentiable(part for part in parts(_plain(result)) if isinstance(part, torch.Tensor))
        if any(output.requires_grad for output in outputs):
            yield Call(args, dict(sample.kwargs), signature, outputs)


def _plain(result: Any) -> Any:
    return [_plain(part) for part in result] if isinstance(result, (tuple, list)) else result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", default=[str(ROOT / "specs")], help="default: the shipped library")
    parser.add_argument("--derive", default="standard", choices=["none", "standard", "thorough"])
    parser.add_argument("--json", action="store_true", help="print one object")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        parser.error(f"PyTorch's database cannot be loaded: {error}. It needs the package expecttest")
    settings = Settings(derive=options.derive)
    session = RunSession.start(settings, derive=options.derive, own_process=True)
    operators = list(load(options.specs, settings))
    session.prepare(operators)
    both = by_name(operators, op_db)
    answers = apart(lambda name: compare(name, *both[name], session, options.derive), sorted(both), os.cpu_count() or 1)
    named = dict(zip(sorted(both), answers, strict=True))
    compared = [one for one in named.values() if not isinstance(one, Ended)]
    lost = {name: one.why for name, one in named.items() if isinstance(one, Ended)}
    behind = [one for one in compared if one.missing]
    if options.json:
        missing = {one.name: one.missing for one in behind}
        print(json.dumps({"both": len(both), "behind": missing, "not_measured": lost}, indent=1))
        return int(bool(lost))
    for one in behind:
        print(f"{one.name}: {', '.join(one.missing)}")
    for name, why in lost.items():
        print(f"{name}: NOT MEASURED: {why}")
    print(f"{len(both)} operators that both have; for {len(behind)}, only op_db meets some condition")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
