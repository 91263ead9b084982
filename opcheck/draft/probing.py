"""Asks about operators in processes of their own, which may crash or hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

MOST_RESTARTS = 5
"""How many samples of one operator may end the process before it is given up."""

PERIOD = 0.05
"""Seconds between two looks at a process."""

Given = Sequence[Sequence[dict[str, Any]]]


class Unanswered(Exception):
    """A target that names no operator, or that takes no sample. `hint` is the nearest valid name."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


@dataclass(frozen=True)
class Surroundings:
    """Where operators are looked for, and how long a process may say nothing."""

    modules: tuple[str, ...]
    path: tuple[str, ...]
    """The folders to import from, besides those of the environment."""
    seconds: float

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a process that imports from these folders, with more variables."""
        path = os.pathsep.join(filter(None, (*self.path, os.environ.get("PYTHONPATH", ""))))
        return {**os.environ, "PYTHONPATH": path, **more}


class Last(NamedTuple):
    """The sample that a process was trying last."""

    number: int
    sample: dict[str, Any]


def names_in(target: str, around: Surroundings) -> dict[str, str]:
    """Return the operators that a target names: itself, or the functions of a module. The values say what is wrong
    with one, if anything is. Raises Unanswered."""
    for answer in _answers({"what": "names", "target": target}, around):
        if "names" in answer:
            found: dict[str, str] = answer["names"]
            return found
    raise Unanswered(f'looking for "{target}" ended the process')


def probe(
    given: Mapping[str, Given], around: Surroundings, module: dict[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Return for each operator samples that it takes and what they show; or `refusal`, why there are none.

    `fatal` are the samples with which it ends the process, or hangs.

    given: samples to try for each operator, in groups of which one is enough. An empty list asks for guesses.
    module: how to construct those that are classes of modules. Default: guesses.
    """
    found: dict[str, dict[str, Any]] = {}
    fatal: dict[str, dict[int, dict[str, Any]]] = {path: {} for path in given}
    while left := {path: groups for path, groups in given.items() if path not in found}:
        path, last = next(iter(left)), Last(-1, {})
        skip = {path: list(samples) for path, samples in fatal.items()}
        request = {"what": "operators", "operators": left, "skip": skip, "module": module}
        for answer in _answers(request, around):
            if "trying" in answer:
                path, last = answer["trying"], Last(answer["number"], answer["sample"])
            else:
                found[answer["operator"]] = answer
        if path not in found:
            fatal[path][last.number] = last.sample
            if last.number < 0 or len(fatal[path]) >= MOST_RESTARTS:
                found[path] = {"refusal": "it ends the process that calls it, or hangs"}
    return {path: {**answer, "fatal": list(fatal[path].values())} for path, answer in found.items()}


def _answers(request: dict[str, Any], around: Surroundings) -> Iterator[dict[str, Any]]:
    """Yield the answers of a process, until it ends or says nothing for too long. Raises Unanswered for an error."""
    with tempfile.TemporaryDirectory(prefix="opcheck-") as folder:
        asked, answered = Path(folder, "request.json"), Path(folder, "answers")
        asked.write_text(json.dumps({**request, "modules": around.modules, "path": around.path}), encoding="utf-8")
        with answered.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "opcheck.draft.probe", str(asked)],
                stdout=out, stderr=subprocess.DEVNULL, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            )  # fmt: skip
            try:
                _wait(process, answered, around.seconds)
            finally:
                process.kill()
                process.wait()
        lines = [line for line in answered.read_bytes().splitlines() if line.startswith(b'{"')]
    for line in lines:
        try:
            answer = json.loads(line)
        except ValueError:
            continue  # the operator's own output
        if "error" in answer:
            raise Unanswered(answer["error"], answer["hint"])
        yield answer


def _wait(process: subprocess.Popen[bytes], answered: Path, seconds: float) -> None:
    """Wait for a process to end, or until it has been silent for some time."""
    size, since = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(PERIOD)
        now = answered.stat().st_size
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > seconds:
            return
