"""`opcheck mutate`: measures which wrong gradients the samples of specs would not detect."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from opcheck.cli.selecting import add_fail_under, add_paths, add_processes, falls_short, loaded, one_device, selection
from opcheck.cli.stdout import say
from opcheck.planning.planner import rule_against
from opcheck.pytest_plugin.options import ONE_DEVICE, add_options, whole_number
from opcheck.settings import Settings
from opcheck.spec import SpecError
from opcheck.spec.problems import RequestError
from opcheck.text import counted

if TYPE_CHECKING:
    from opcheck.mutation.measure import Answer, Measured, Target
    from opcheck.mutation.mutant import Proof

TIMEOUT = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_paths(parser)
    add_options(parser, "profiles", "--device", "--operator", "--tag", "--derive", device=ONE_DEVICE)
    parser.add_argument(
        "--of", default="gradient", choices=["gradient", "tangent", "second-derivative"],
        help="what is wrong in a mutant; default: gradient",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one object: the score, and each operator")
    parser.add_argument("--write", action="store_true", help="add the samples that are missing to the spec files")
    add_fail_under(parser, "score")
    count = partial(whole_number, least=0, otherwise="is not a count; expected a whole number of at least 0")
    parser.add_argument(
        "--prove", type=count, default=0, metavar="N", help="also run N mutants, to check the measured score"
    )
    add_processes(parser, TIMEOUT)


def run(options: argparse.Namespace) -> int:
    """Measure, and print a table or JSON. Raises SpecError.

    Return 1 if the score is too low, an operator could not be measured or a proof fails, else 0.
    """
    from opcheck.mutation.measure import Target, measure, score
    from opcheck.mutation.mutant import drawn, prove
    from opcheck.running.own_process import apart, split_results
    from opcheck.running.session import RunSession

    settings = Settings.find(profiles=options.device_profile)
    library = loaded(options.paths, settings)
    chosen = selection(options, settings, library)
    device = one_device(options, settings, "samples are measured")
    operators = [
        operator for operator in library if chosen.takes_operator(operator) and not rule_against(operator, device)
    ]
    session = RunSession(settings, own_process=True, derive=chosen.derive)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of operators, which `opcheck run` shows
        if problems := session.prepare(operators, [device]):
            raise SpecError(problems)
        wrong = options.of.replace("-", " ")
        own = {one.id: Target(one, device, session, chosen.derive, wrong) for one in operators}
        forks = device.device_string == "cpu"
        each = partial(apart, processes=options.n, seconds=options.timeout, forks=forks)
        answers = each(lambda name: measure(own[name]), list(own))
        by_name, lost = split_results(own, _shown(answers, "operators", len(own)))
        measured = list(by_name.values())
        mutants = drawn(measured, settings.seed) if options.prove else []
        proved = each(lambda pair: prove(own[pair[0]], pair[1]), mutants)
        proofs = list(_shown(islice(filter(None, proved), options.prove), "mutants", options.prove))
    if options.prove and not proofs:
        what = "--prove found no operator to mutate: it needs one that is not a module and passes without a mutation"
        raise RequestError([what])
    if options.json:
        print(json.dumps(_record(own, measured, lost, proofs, chosen.derive), indent=1))
    else:
        _print(measured, lost, proofs)
    if options.write:
        _write(own, measured, quiet=options.json)
    too_low = falls_short(options, "score", score(measured))
    return int(too_low or bool(lost) or not all(proof.agrees for proof in proofs))


def _shown(items: Iterable[Any], what: str, total: int) -> Iterable[Any]:
    """Return the items, with a progress bar on stderr if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, what, total, console=console, transient=True, disable=not console.is_terminal)


def _print(measured: Sequence[Measured], lost: Mapping[str, str], proofs: Sequence[Proof]) -> None:
    from opcheck.mutation.measure import score

    width = max((len(name) for name in (*lost, *(one.operator for one in measured))), default=0)
    say(f"{'operator':{width}}  score    met  survived  unreachable")
    for one in measured:
        met, survived, unreachable = (len(one.those(state)) for state in ("met", "survived", "unreachable"))
        if not one.answers:
            say(f"{one.operator:{width}}      -  no derivative is claimed, so there is nothing to mutate")
            continue
        say(f"{one.operator:{width}}  {score([one]):5.3f}  {met:5}  {survived:8}  {unreachable:11}")
        for answer in one.those("survived"):
            say(f"  {answer.words}")
    for name, why in lost.items():
        say(f"{name:{width}}  NOT MEASURED: {why}")
    for proof in proofs:
        if not proof.agrees:
            is_met, is_noticed = ("" if yes else "not " for yes in (proof.met, proof.noticed))
            say(
                f"DISAGREES: {proof.operator}: {proof.condition} is {is_met}met by a sample, "
                f"but its mutant is {is_noticed}noticed"
            )
    if proofs:
        say(f"{sum(proof.agrees for proof in proofs)} of {len(proofs)} mutants agree with the measurement")
    met, survived = (sum(len(one.those(state)) for one in measured) for state in ("met", "survived"))
    say(f"score {score(measured):.3f}: {met:,} of {met + survived:,} conditions are met by a sample or a check")


def _record(
    own: Mapping[str, Target],
    measured: Sequence[Measured],
    lost: Mapping[str, str],
    proofs: Sequence[Proof],
    derive: str,
) -> dict[str, Any]:
    from opcheck.mutation.measure import score

    record: dict[str, Any] = {
        "score": score(measured),
        "derive": derive,
        "operators": [
            {
                "operator": one.operator,
                "file": own[one.operator].operator.document.file,
                "line": own[one.operator].operator.line,
                "score": score([one]) if one.answers else None,
                "conditions": [_answer_record(answer) for answer in one.answers],
            }
            for one in measured
        ],
        "not_measured": dict(lost),
    }
    if proofs:
        record["proofs"] = [asdict(proof) for proof in proofs]
    return record


def _answer_record(answer: Answer) -> dict[str, Any]:
    record: dict[str, Any] = {"condition": answer.condition, "state": answer.state}
    if answer.state == "met":
        record["by"] = answer.by
    elif answer.state == "survived":
        record["words"] = answer.words
        record["add"] = answer.add or None
    return record


def _write(own: Mapping[str, Target], measured: Sequence[Measured], *, quiet: bool) -> None:
    """Add to the spec files the sample that was found for each survivor, if any. Equal samples are added once."""
    from opcheck.mutation.writing import write

    missing = [
        (own[one.operator].operator, list(dict.fromkeys(each.add for each in one.those("survived") if each.add)))
        for one in measured
    ]
    added = [(operator, samples) for operator, samples in missing if samples]
    for path in write(added):
        if not quiet:
            count = sum(len(samples) for operator, samples in added if operator.document.file == str(path))
            say(f"{path}: {counted(count, 'sample')} added")
