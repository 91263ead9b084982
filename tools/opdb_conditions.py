"""Counts the operators for which PyTorch's op_db would notice a wrong gradient, and the shipped specs would not.

For each operator that both have: the conditions of `opcheck mutate` that a sample of op_db meets, and none of ours, be
it written or derived.

    python tools/opdb_conditions.py                        # the whole library: minutes
    python tools/opdb_conditions.py specs/linalg --json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from opdb_parity import by_name, covering
from opdb_parity import differentiable as of_op_db

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


def both(operators: Iterable[Operator]) -> dict[str, tuple[list[Operator], list[Any]]]:
    """Return the operators that both have, by name, with the specs and the entries of each."""
    named, pairs = by_name(operators), dict[str, tuple[list[Operator], list[Any]]]()
    for entry in of_op_db():
        specs = covering(entry, named)
        if specs:
            own, entries = pairs.setdefault(specs[0].spec.name, ([], []))
            own += [operator for operator in specs if operator not in own]
            entries.append(entry)
    return pairs


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


def met(listed: Sequence[Condition], theirs: Iterator[Call]) -> set[str]:
    names = set()
    for call in theirs:
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
    settings = Settings(derive=options.derive)
    session = RunSession.start(settings, derive=options.derive, own_process=True)
    operators = list(load(options.specs, settings))
    session.prepare(operators)
    pairs = both(operators)
    answers = apart(lambda name: compare(name, *pairs[name], session, options.derive), list(pairs), os.cpu_count() or 1)
    named = dict(zip(pairs, answers, strict=True))
    compared = [one for one in named.values() if not isinstance(one, Ended)]
    lost = {name: one.why for name, one in named.items() if isinstance(one, Ended)}
    behind = [one for one in compared if one.missing]
    if options.json:
        missing = {one.name: one.missing for one in behind}
        print(json.dumps({"both": len(pairs), "behind": missing, "not_measured": lost}, indent=1))
        return int(bool(lost))
    for one in behind:
        print(f"{one.name}: {', '.join(one.missing)}")
    for name, why in lost.items():
        print(f"{name}: NOT MEASURED: {why}")
    print(f"{len(pairs)} operators that both have; for {len(behind)}, only op_db meets some condition")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
