"""Runs scripts in new processes: plain-torch reproductions of failures, and the reproductions of known findings."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from opcheck.checks.plain_torch import script_of
from opcheck.checks.subject import Context
from opcheck.checks.verdict import Verdict
from opcheck.running.outcome import Outcome
from opcheck.samples.source import Unwritable
from opcheck.text import class_of, ending, message_of, one_line

PATIENCE = 60.0
"""The time limit of a script, in seconds."""


def reproduced(outcome: Outcome, context: Context, verdict: Verdict) -> Outcome:
    """Return the outcome of a failure with a script in plain torch that reproduces it, or with why there is none.

    verdict: the verdict that the outcome reports.
    """
    try:
        script = reproduction(context, verdict)
    except Exception as error:
        why = str(error) if isinstance(error, Unwritable) else f"writing it raised {one_line(error)}"
        return replace(outcome, message=f"{outcome.message}\n\nnot shown in plain torch: {why}")
    shown = f"in plain torch, without opcheck:\n\n```python\n{script}```"
    fields = {**outcome.fields, "reproduction": script}
    return replace(outcome, message=f"{outcome.message}\n\n{shown}", fields=fields)


def reproduction(context: Context, verdict: Verdict) -> str:
    """Return a script in plain torch that fails like a verdict. The script has been run. Raises Unwritable."""
    script = script_of(context, verdict)
    status, said = executed(script, context.settings.root)
    lines = said.splitlines()
    last_line = f'  File "<string>", line {len(script.splitlines())}, in <module>'
    ends = [f"{class_of(verdict.cause)}: {message_of(verdict.cause)}"] if verdict.cause is not None else []
    ends += ["AssertionError"] if last_line in lines else []
    if not any(end.partition("\n")[0] in line for end in ends for line in lines):
        last = lines[-1] if lines else ending(status)
        raise Unwritable(f"in a new process, the same calls do not fail in this way: {last:.200}")
    return script


def executed(script: str, folder: Path | None = None) -> tuple[int, str]:
    """Run a script in a new process. Return its exit status and its stderr.

    folder: the working directory; default: that of this process. Raises TimeoutError after `PATIENCE` seconds.
    """
    command = [sys.executable, "-W", "ignore", "-c", script]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"it takes longer than {PATIENCE:g} s") from error
    return done.returncode, done.stderr.decode(errors="backslashreplace")
