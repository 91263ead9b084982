"""Drafts the spec of a target, writes it to a file, and says what is wrong first."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opcheck.draft.draft import Draft
from opcheck.draft.probing import Surroundings, Unanswered, names_in, probe
from opcheck.draft.project import allow
from opcheck.draft.recording import recorded
from opcheck.draft.trial import Record, tried_out
from opcheck.draft.writing import comment, written
from opcheck.planning.loading import load
from opcheck.settings import Settings
from opcheck.spec.document import shown
from opcheck.spec.render import render

Say = Callable[[Sequence[str]], None]

BATCH = 8
"""How many operators are tried before they are written, so that an interrupt costs little."""

COMPLEX = '{}: fails for complex numbers only; if they are not meant, write dtypes = {{ forward = ["floating"] }}'


class Author:
    """Drafts the operators of one target."""

    def __init__(self, target: str, file: Path, settings: Settings, around: Surroundings, processes: int) -> None:
        self.target, self.file, self.settings, self.around, self.processes = target, file, settings, around, processes
        self.drafts: list[Draft] = []
        self.records: list[Record] = []
        self.left_out: dict[str, str] = {}
        """Why there is no draft of an operator."""
        self.fatal: dict[str, list[dict[str, Any]]] = {}
        """The samples with which an operator ends the process, or hangs, and how, by operator."""
        self.said: list[str] = []
        """What was added to the settings of the project."""

    def draft(
        self, arguments: Sequence[list[dict[str, Any]]], module: dict[str, Any] | None, tests: Sequence[str], say: Say
    ) -> None:
        """Draft the operators that the file does not have yet, and write them.

        arguments: samples; module: how to construct modules; tests: where calls are recorded. All may be empty.

        Raises Unanswered, Broken, SpecError.
        """
        names = names_in(self.target, self.around)
        known = self._known()
        self.left_out = {name: why for name, why in names.items() if why}
        wanted = [name for name in names if name not in self.left_out and name not in known]
        had = sum(name in known for name in names)
        there = [f"{shown(self.file)} has {_count(had, 'operator')} of {self.target} already"] if had else []
        if not wanted:
            why = [*there, *self._left_out()] or [f"{self.target} has no operators"]
            raise Unanswered("nothing to draft: " + "; ".join(why))
        say(there)
        calls = recorded(wanted, tests, self.around) if tests else {}
        groups = {name: [*arguments, *calls.get(name, [])] for name in wanted}
        say([f"looking for arguments of {_count(len(wanted), 'operator')}"])
        answers = probe(groups, self.around, module)
        self.fatal = {name: own["fatal"] for name, own in answers.items() if own["fatal"]}
        self.left_out |= {
            name: "; ".join(filter(None, (own["refusal"], own.get("remedy"))))
            for name, own in answers.items()
            if "refusal" in own
        }
        kept = [name for name in wanted if name not in self.left_out]
        self.drafts = [draft for name in kept for draft in Draft.all_of(name, answers[name])]
        if not self.drafts:
            raise Unanswered("no arguments found: " + "; ".join(self._left_out()))
        for first in range(0, len(self.drafts), BATCH):
            batch = self.drafts[first : first + BATCH]
            say([f"trying what they can do: {', '.join(draft.id for draft in batch)}"])
            self.records += tried_out(batch, self.around, self.processes)
            self._write(batch)

    def _known(self) -> set[str]:
        """Return the operators that the file has. Raises SpecError for a mistake in it, Unanswered for its defaults."""
        if not self.file.exists():
            return set()
        library = load([self.file], self.settings.model_copy(update={"modules": self.around.modules}))
        if any(operator.document.data.get("defaults") for operator in library):
            what = "has [defaults], which would apply to the draft; choose another file by --output"
            raise Unanswered(f"{shown(self.file)} {what}")
        return {operator.id for operator in library}

    def _write(self, drafts: Sequence[Draft]) -> None:
        """Append drafts to the file, and allow the module in the settings of the project."""
        self.said = self.said or allow(package_of(self.target), self.settings)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        old = self.file.read_text(encoding="utf-8").rstrip("\n") + "\n\n" if self.file.exists() else HEAD
        self.file.write_text(old + written(drafts), encoding="utf-8")

    def report(self, say: Say) -> int:
        """Say what is wrong, then what was written. Return the exit code."""
        wrong = self._wrong()
        say(wrong)
        say([f"not drafted: {line}" for line in self._left_out()])
        samples = sum(len(draft.samples) for draft in self.drafts)
        say([f"wrote {_count(len(self.drafts), 'operator')} with {_count(samples, 'sample')} to {shown(self.file)}"])
        lacking = {draft.id: [key for key in draft.supports if key != "out"] for draft in self.drafts}
        say([f"  {name} does not support {', '.join(keys)}" for name, keys in lacking.items() if keys])
        if self.said:
            say([f"added to [tool.opcheck] in pyproject.toml: {'; '.join(self.said)}"])
        say([f"review the claims; then run: opcheck run {shlex.quote(shown(self.file))}"])
        return 1 if wrong else 0

    def _wrong(self) -> list[str]:
        """Return what fails: wrong results, crashes, what could not be tested."""
        failed = [record for record in self.records if record["outcome"] == "failed"]
        untested = [record for record in self.records if record["outcome"] in ("error", "inconclusive")]
        crashes = [f"{name} {own[0]['how']}: {render(own[0]['sample'])}" for name, own in self.fatal.items()]
        lines = [f"failed: {line}" for line in [*lines_of(failed), *crashes]]
        lines += [f"not tested: {line}" for line in lines_of(untested)]
        return lines + [COMPLEX.format(name) for name in wrong_for_complex_only(failed)]

    def _left_out(self) -> list[str]:
        return [f"{name}: {why}" for name, why in self.left_out.items()]


HEAD = "# Drafted by `opcheck new`, from what the operators did. Review each claim.\n\n"


def lines_of(records: Sequence[Record]) -> list[str]:
    """Return a line for each thing that goes wrong with an operator: its diagnosis if there is one."""
    lines: dict[tuple[str, str], str] = {}
    for record in records:
        findings = record["fields"].get("diagnosis") or []
        text = findings[0]["text"] if findings else record["reason"]
        lines.setdefault((record["operator"], text), f"{record['id']}: {comment(text)}")
    return list(lines.values())


def wrong_for_complex_only(failed: Sequence[Record]) -> list[str]:
    """Return the operators that fail in complex dtypes and in no other."""
    only_complex: dict[str, bool] = {}
    for record in failed:
        is_complex = record["dtype"].startswith("complex")
        only_complex[record["operator"]] = only_complex.get(record["operator"], True) and is_complex
    return [name for name, only in only_complex.items() if only]


def package_of(target: str) -> str:
    """Return the package that a target is in."""
    return target.replace(":", ".").partition(".")[0]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
