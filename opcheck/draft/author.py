"""Drafts the specs of a target, appends each to a file as soon as it is done, and reports failures first."""

from __future__ import annotations

import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from opcheck.checks.jacobian.compare import REMEDY
from opcheck.draft.allow import allow
from opcheck.draft.draft import Draft, what_happened
from opcheck.draft.recorder import Recorder
from opcheck.draft.smaller import Group, chosen
from opcheck.draft.target import modules_in, names, package_of
from opcheck.draft.trial import reproduced, trial
from opcheck.draft.workplace import Record, Trial, Workplace
from opcheck.planning.loading import examine, load
from opcheck.running import process_state
from opcheck.running.outcome import findings_in
from opcheck.running.own_process import Ended, Item, Result, apart
from opcheck.samples.resolve import Unresolved
from opcheck.settings import Settings
from opcheck.spec.document import shown
from opcheck.text import counted, printable, with_more

MOST_BUDGETS = 7
"""Wall-clock limit of a process, as a multiple of the budget, for its first step and for reproducing a failure."""

MOST_REPRODUCED = 3
"""The maximum number of operators of which a failure is reproduced in plain torch."""

FEW = 3
"""The maximum number of operators to name that fail in one way."""

MOST_RESTARTS = 5
"""The maximum number of restarts of one operator, each after a call that ended its process."""


@dataclass
class Author:
    """Drafts the operators of one target."""

    target: str
    file: Path
    settings: Settings
    workplace: Workplace
    processes: int
    say: Callable[..., None]
    """The function that prints lines to the user."""
    trials: list[Trial] = field(default_factory=list)
    """The operators to draft, in order: at first those that no spec has, then each in the state in which it ended."""
    unusable: dict[str, str] = field(default_factory=dict)
    """The names in the target that cannot be tested as operators, with the reasons."""
    forks: bool = False
    """Whether this process can be forked."""
    added: list[str] = field(default_factory=list)
    """The additions to the settings of the project, in words."""

    def draft(
        self, arguments: Sequence[list[dict[str, Any]]], module: dict[str, Any] | None, tests: Sequence[str]
    ) -> None:
        """Draft the operators that have no spec yet, and append each to the file as soon as it is done.

        arguments: groups of samples; module: how to construct modules; tests: pytest arguments for the tests to record
        calls in. Each may be empty.

        Raises Unresolved if there is nothing to draft, SpecError if the file has a mistake.
        """
        threads = threading.active_count()
        self.workplace.enter()
        before = process_state.read()
        all_names = names(self.target, self.workplace.settings.modules)
        changes = process_state.changes(before, process_state.read())
        process_state.write(before)
        self.workplace = replace(self.workplace, changes=tuple(changes))
        wanted = self._wanted(all_names)
        calls = self._calls(wanted, tests) if tests else {}
        self.trials = [Trial(name, [*arguments, *calls.get(name, [])], module) for name in wanted]
        if len(wanted) > 1:
            process_state.preload_lazy_imports()  # once here, instead of in each process
        is_alone = threading.active_count() == threads and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self.forks = is_alone and self.workplace.device.device_string == "cpu"
        for index, own in enumerate(self._tried([*self.trials])):
            self.trials[index] = own
            self._take(own, f"{index + 1:{len(str(len(wanted)))}} of {len(wanted)}: {own.name}: ")
        if not self.drafts:
            raise nothing_to_draft(self._left_out())

    def _wanted(self, all_names: dict[str, str]) -> list[str]:
        """Return the operators that no spec has. Raises Unresolved if there are none."""
        known = self._known()
        self.unusable = {name: why for name, why in all_names.items() if why}
        had = Counter(known[name] for name in all_names if name in known)
        there = [f"{file} has {counted(count, 'operator')} of {self.target} already" for file, count in had.items()]
        wanted = [name for name, why in all_names.items() if not why and name not in known]
        if not wanted:
            why = [*there, *self._left_out()] or [f"{self.target} has no operators"]
            raise nothing_to_draft(why if there else [*why, *modules_in(self.target)])
        self.say(*there)
        return wanted

    def _known(self) -> dict[str, str]:
        """Return the ids of the operators in the file and, if it is one of the project's specs, in all of these.

        The values are the names of their files. Raises SpecError if the file has a mistake, Unresolved if it has a
        table `[defaults]`. Mistakes in other files do not matter.
        """
        library = load([self.file] if self.file.exists() else [], self.workplace.settings)
        if any(operator.document.data.get("defaults") for operator in library):
            what = "has [defaults], which would apply to the draft; choose another file by --output"
            raise Unresolved(f"{shown(self.file)} {what}")
        file, places = self.file.resolve(), [path.resolve() for path in self.settings.spec_paths()]
        belongs = any(place in (file, *file.parents) for place in places)
        others, _ = examine(places if belongs else [], self.workplace.settings)
        return {operator.id: operator.document.file for operator in (*others, *library)}

    def _calls(self, operators: Sequence[str], tests: Sequence[str]) -> dict[str, list[Group]]:
        """Run tests in a separate process. Return the calls that they make of each operator, one of each kind."""

        def run(tests: Sequence[str]) -> dict[str, list[Group]]:
            import pytest

            self.workplace.alone()
            recorder = Recorder(operators, self.workplace.settings.modules)
            pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[recorder])
            return {path: chosen(groups.values()) for path, groups in recorder.calls.items()}

        (calls,) = apart(run, [tests], 1)
        if isinstance(calls, Ended):
            self.say(f"no calls were recorded: {calls.why}")
            return {}
        if not any(calls.values()):
            self.say("no calls were recorded in the tests")
        return calls

    def _tried(self, trials: Sequence[Trial]) -> Iterator[Trial]:
        """Yield the finished trial of each operator. If a call ends the process, try again without that call.

        There is no new try after a call of the operator that hangs, and after `MOST_RESTARTS`.
        """
        for begun, answer in zip(trials, self._apart(partial(trial, workplace=self.workplace), trials), strict=True):
            own = begun.ended_by(answer) if isinstance(answer, Ended) else answer
            if own.call is None or (own.hangs and own.is_called) or len(own.skip) == MOST_RESTARTS:
                yield own
            else:
                yield from self._tried([Trial(own.name, own.given, own.module, (*own.skip, own.call), ended=own.ended)])

    def _apart(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result | Ended]:
        """Yield the result of a function for each item, or how its process ended. Fork processes where that is safe."""
        patience = MOST_BUDGETS * self.workplace.budget
        return apart(work, items, self.processes, patience, forks=self.forks, fresh=True)

    def _take(self, own: Trial, head: str) -> None:
        """Write the drafts of an operator to the file, and print a line about the operator. head: its start."""
        if own.draft:
            self._write(own.draft)
            failing = len(own.recorded("failed"))
            self.say(head + samples_of([own.draft]) + (f", {counted(failing, 'case')} failed" if failing else ""))
        elif own.begun:
            self.say(f"{head}not drafted")

    @property
    def drafts(self) -> list[Draft]:
        """The drafts of all trials so far. Each is in the file."""
        return [own.draft for own in self.trials if own.draft]

    def _write(self, draft: Draft) -> None:
        """Append a draft to the file, and allow the module in the settings of the project."""
        self.added = self.added or allow(package_of(self.target), self.settings)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        old = self.file.read_text(encoding="utf-8").rstrip("\n") + "\n\n" if self.file.exists() else HEAD
        self.file.write_text(old + draft.toml(), encoding="utf-8")

    def report(self, *, interrupted: bool = False) -> int:
        """Print what fails, then what was written. Return the exit code: 1 if anything fails, or nothing was drafted.

        interrupted: whether the user interrupted the command. Then failures are not reproduced.
        """
        wrong, drafts = self._wrong(), self.drafts
        self.say(*wrong)
        if not interrupted and time.monotonic() < self.workplace.until:
            self._reproduce()
        self.say(*(f"not drafted: {line}" for line in self._left_out()))
        self.say(f"wrote {counted(len(drafts), 'operator')} with {samples_of(drafts)} to {shown(self.file)}")
        self.say(*(f"  {draft.name} {line}" for draft in drafts for line in draft.remarks()))
        if self.added:
            self.say(f"added to [tool.opcheck] in pyproject.toml: {'; '.join(self.added)}")
        unreached = sum(not own.begun for own in self.trials)
        if unreached:
            self.say(f"not tried: {counted(unreached, 'operator')}; run the same command again to continue")
        if not drafts:
            return 1
        file = shlex.quote(shown(self.file))
        self.say("review the claims; then:", *(f"  opcheck {command} {file}" for command in ("run", "show", "mutate")))
        return 1 if wrong else 0

    def _reproduce(self) -> None:
        """Print the first failure of some operators as a script in plain torch."""
        first = {record["operator"]: record["id"] for record in reversed(self._recorded("failed"))}
        failures = [(draft, first[draft.name]) for draft in self.drafts if draft.name in first][:MOST_REPRODUCED]
        answers = self._apart(partial(reproduced, workplace=self.workplace), failures)
        scripts = {
            name: said for (_, name), said in zip(failures, answers, strict=True) if isinstance(said, str) and said
        }
        for name, script in scripts.items():
            self.say(f"{name}, in plain torch, without opcheck:", "", *script.splitlines(), "")
        if scripts:
            self.say(f"all failures in plain torch: opcheck run --repro {shlex.quote(shown(self.file))}")

    def _wrong(self) -> list[str]:
        """Return lines about everything that is wrong: wrong results, crashes, and cases that could not be tested."""
        failed = self._recorded("failed")
        ended = [f"{own.name}: {why}" for own in self.trials if not own.is_slow for why in own.ended[:1]]
        lines = [f"failed: {line}" for line in [*lines_of(failed), *ended]]
        lines += [REMEDY] * any(REMEDY in record["message"] for record in failed)
        lines += [f"not tested: {line}" for line in lines_of(self._recorded("error", "inconclusive"))]
        lines += [
            f"not tested: {own.name}: {counted(own.left, 'case')}, in {self.workplace.budget:g} s (--budget)"
            + (f": {own.ended[-1]}" if own.is_slow else "")
            for own in self.trials if own.left
        ]  # fmt: skip
        return lines

    def _recorded(self, *outcomes: str) -> list[Record]:
        """Return the records of the cases with one of these outcomes."""
        return [record for own in self.trials for record in own.recorded(*outcomes)]

    def _left_out(self) -> list[str]:
        """Return a line for each name in the target that has no draft, with the reason."""
        refused = {own.name: own.refusal for own in self.trials if own.begun and not own.draft}
        return [f"{name}: {why}" for name, why in {**self.unusable, **refused}.items()]


HEAD = "# Drafted by `opcheck new`, from what the operators did. Review each claim.\n\n"


def nothing_to_draft(why: Sequence[str]) -> Unresolved:
    """Return the exception for a target without drafts. Several reasons get a line each, one is on the first line."""
    return Unresolved("nothing to draft:" + "".join(f"\n  {line}" if len(why) > 1 else f" {line}" for line in why))


def samples_of(drafts: Sequence[Draft]) -> str:
    """Return the number of samples in drafts, in words."""
    return counted(sum(len(draft.samples) for draft in drafts), "sample")


def lines_of(records: Sequence[Record]) -> list[str]:
    """Return a line for each distinct failure: its diagnosis if there is one, else its reason.

    What occurs in several cases gets one line, which names the first cases of a few operators, and counts the others.
    """
    ids, counts, texts = dict[str, dict[str, str]](), Counter[str](), dict[str, str]()
    for record in records:
        findings, raised = findings_in(record["fields"]), record["fields"].get("raised")
        text = findings[0] if findings else record["reason"]
        if raised and isinstance(remedy := record["fields"].get("remedy"), dict):
            text = f"{remedy['key'].rpartition('.')[2]} raised {raised}"  # the line is short
        what = what_happened(text)
        counts[what] += 1
        ids.setdefault(what, {}).setdefault(record["operator"], record["id"])
        texts.setdefault(what, printable(" ".join(text.split())))
    return [f"{with_more(islice(ids[what].values(), FEW), count)}: {texts[what]}" for what, count in counts.items()]
