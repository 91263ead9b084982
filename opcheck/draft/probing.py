"""Asks about operators in processes of their own, which may crash or hang."""

from __future__ import annotations

import json
import os
import re
import signal
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

RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?: .*\n)*(\S.*)", re.MULTILINE)
"""What Python says of the exception that ends a process."""

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
            names: dict[str, str] = answer["names"]
            return names
        if "ended" in answer:
            raise Unanswered(f'looking for "{target}" {answer["ended"]}')
    raise AssertionError("a process always ends")


def probe(
    groups_of: Mapping[str, Given], around: Surroundings, module: dict[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Return for each operator samples that it takes and what they show; or `refusal`, why there are none.

    `fatal` are the samples with which it ends the process, or hangs, each with `how`.

    groups_of: samples to try for each operator, in groups of which one is enough. An empty list asks for guesses.
    module: how to construct those that are classes of modules. Default: guesses.
    """
    answers: dict[str, dict[str, Any]] = {}
    fatal: dict[str, dict[int, dict[str, Any]]] = {path: {} for path in groups_of}
    ended = ""
    while left := {path: groups for path, groups in groups_of.items() if path not in answers}:
        path, last = next(iter(left)), Last(-1, {})
        skip = {path: list(samples) for path, samples in fatal.items()}
        request = {"what": "operators", "operators": left, "skip": skip, "module": module}
        for answer in _answers(request, around):
            if "trying" in answer:
                path, last = answer["trying"], Last(answer["number"], answer["sample"])
            elif "ended" in answer:
                ended = answer["ended"]
            else:
                answers[answer["operator"]] = answer
        if path not in answers:
            fatal[path][last.number] = {"how": ended, "sample": last.sample}
            if last.number < 0 or len(fatal[path]) >= MOST_RESTARTS:
                answers[path] = {"refusal": ""}
    for path, answer in answers.items():
        answer["fatal"] = list(fatal[path].values())
        if "refusal" in answer and answer["fatal"]:
            answer["refusal"] = f"it {answer['fatal'][0]['how']}"
    return answers


def _answers(request: dict[str, Any], around: Surroundings) -> Iterator[dict[str, Any]]:
    """Yield the answers of a process, until it ends or says nothing for too long; at last, how it `ended`.

    Raises Unanswered for an error.
    """
    with tempfile.TemporaryDirectory(prefix="opcheck-") as folder:
        question, answered, said = (Path(folder, name) for name in ("request.json", "answers", "said"))
        question.write_text(json.dumps({**request, "modules": around.modules, "path": around.path}), encoding="utf-8")
        with answered.open("wb") as out, said.open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "opcheck.draft.probe", str(question)],
                stdout=out, stderr=err, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            )  # fmt: skip
            try:
                _wait(process, answered, around.seconds)
                code = process.poll()
            finally:
                process.kill()
                process.wait()
        lines = [line for line in answered.read_bytes().splitlines() if line.startswith(b'{"')]
        ended = _ending(code, said.read_text(encoding="utf-8", errors="replace"), around.seconds)
    for line in lines:
        try:
            answer = json.loads(line)
        except ValueError:
            continue  # the operator's own output
        if "error" in answer:
            raise Unanswered(answer["error"], answer["hint"])
        yield answer
    yield {"ended": ended}


def _ending(code: int | None, said: str, seconds: float) -> str:
    """Return how a process ended, as a predicate. code: its exit status, None if it still runs; said: its stderr."""
    if code is None:
        return f"hangs: it has said nothing for {seconds:g} s"
    if code < 0:
        return f"ends its process by a signal: {signal.strsignal(-code)}"
    if code == 1 and (raised := RAISED.findall(said)):
        return f"ends its process by an exception: {raised[-1]}"
    return f"ends its process with status {code}"


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
