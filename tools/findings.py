"""The faults of torch in findings/: the page docs/findings.md, text ready to file, and whether each is still there.

`python tools/findings.py` tries all with the installed torch, `python tools/findings.py ID` prints one to file.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tomli

FOLDER = Path(__file__).resolve().parent.parent / "findings"

KINDS = {
    "wrong": "Silently wrong",
    "crash": "Crashes",
    "integers": "Integers that wrap around or lose their fractions",
    "nan": "NaN, where there is a number",
    "refused": "Errors, where there should be none",
}
"""The files, from what hides most to what tells itself."""


@dataclass(frozen=True)
class Finding:
    """One fault of torch."""

    kind: str
    id: str
    title: str
    since: str
    """The oldest version of torch that it was seen in."""
    right: str
    """What would be right."""
    reasons: tuple[str, ...]
    """Those of the expectations that are there because of it."""
    reproduction: str
    """Plain torch, which sets `actual` and `expected`, raises an error or ends the process."""
    raises: str = ""
    """A part of the message of the error."""
    crashes: bool = False
    link: str = ""
    mended: str = ""
    """The first version of torch without it."""


@cache
def findings() -> tuple[Finding, ...]:
    """Return all, the worst first."""
    return tuple(
        Finding(kind, **{**entry, "reasons": tuple(entry["reasons"]), "reproduction": entry["reproduction"].strip()})
        for kind in KINDS
        for entry in tomli.loads((FOLDER / f"{kind}.toml").read_text(encoding="utf-8"))["finding"]
    )


@cache
def others() -> dict[str, tuple[str, ...]]:
    """Return the reasons of expectations that belong to no finding, by why that is so."""
    lists = tomli.loads((FOLDER / "others.toml").read_text(encoding="utf-8"))
    return {name: tuple(reasons) for name, reasons in lists.items()}


@cache
def expecting() -> dict[str, list[str]]:
    """Return the ids of the shipped operators that expect to fail, by the reasons they give."""
    from opcheck.planning import loading
    from opcheck.settings import Settings
    from opcheck.spec.load import BUILTIN

    operators: dict[str, list[str]] = {}
    for operator in loading.load([Path(BUILTIN)], Settings()):
        for one in (operator, *operator.elsewhere):
            for expect in one.spec.expect:
                ids = operators.setdefault(" ".join(expect.reason.split()), [])
                if operator.id not in ids:
                    ids.append(operator.id)
    return operators


def observed(finding: Finding) -> str:
    """Return what happens instead of what is right, or an empty string if the fault is not there."""
    import torch

    if finding.crashes:
        command = [sys.executable, "-c", finding.reproduction]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        signal = done.returncode < 0 and f"the process ends by signal {-done.returncode}"
        return signal or ""
    names: dict[str, Any] = {}
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            exec(finding.reproduction, names)
    except Exception as error:
        if not finding.raises or finding.raises not in str(error):
            raise
        return f"{type(error).__name__}: {error}".strip()
    if finding.raises:
        return ""
    try:
        torch.testing.assert_close(names["actual"], names["expected"], rtol=1e-3, atol=1e-4, check_dtype=False)
    except AssertionError:
        return f"actual = {names['actual']}\nexpected = {names['expected']}"
    return ""


def is_known_in(finding: Finding, version: str) -> bool:
    """Tell whether a version of torch is known to have the fault."""
    from packaging.version import Version

    mended = finding.mended and Version(version) >= Version(finding.mended)
    return Version(version) >= Version(finding.since) and not mended


def page() -> str:
    """Return the findings as Markdown."""
    parts = [_overview()]
    for kind, title in KINDS.items():
        parts.append(f"## {title}")
        parts += [_section(finding) for finding in findings() if finding.kind == kind]
    return "\n\n".join(parts)


def _overview() -> str:
    rows = ["| what | findings | expected by |", "|---|---|---|"]
    for kind, title in KINDS.items():
        of_kind = [finding for finding in findings() if finding.kind == kind]
        operators = {operator for finding in of_kind for operator in _operators(finding)}
        rows.append(f"| {title} | {len(of_kind)} | {len(operators)} operators |")
    return "\n".join(rows)


def _section(finding: Finding) -> str:
    seen = f"Seen in torch {finding.since}" + (f", mended in {finding.mended}." if finding.mended else ".")
    expected = ", ".join(f"`{operator}`" for operator in _operators(finding))
    lines = [
        f"### {finding.id}",
        f"**{_plain(finding.title)}.** {seen}" + (f" [Upstream]({finding.link})." if finding.link else ""),
        # Not marked as Python: what the page shows is run by the test of the findings, each by itself.
        f"```\n{finding.reproduction}\n```",
        f"Raises: `{finding.raises}`." if finding.raises else "The process ends." if finding.crashes else "",
        f"Right: {_plain(finding.right)}",
        f"Expected by {expected}."
        if expected
        else "No spec expects it: samples stay clear of it, or `supports` says so.",
    ]
    return "\n\n".join(line for line in lines if line)


def _operators(finding: Finding) -> list[str]:
    return list(dict.fromkeys(one for reason in finding.reasons for one in expecting().get(reason, ())))


def _plain(text: str) -> str:
    """Return text with what Markdown would take for emphasis escaped."""
    return text.replace("*", "\\*").replace("_", "\\_")


def report(finding: Finding) -> str:
    """Return a finding as text ready to file, with what the installed torch does."""
    import torch

    seen = observed(finding) or f"not seen in torch {torch.__version__}"
    return (
        f"# {finding.title}\n\n```python\n{finding.reproduction}\n```\n\n## Actual\n\n```\n{seen}\n```\n\n"
        f"## Expected\n\n{_plain(finding.right)}\n\n## Versions\n\ntorch {torch.__version__}; "
        f"seen since {finding.since} at least.\n" + (f"\nSee {finding.link}\n" if finding.link else "")
    )


def main(arguments: list[str]) -> int:
    by_id = {finding.id: finding for finding in findings()}
    unknown = [name for name in arguments if name not in by_id]
    if unknown:
        print(f"no such finding: {', '.join(unknown)}; expected one of {', '.join(by_id)}", file=sys.stderr)
        return 2
    for name in arguments:
        print(report(by_id[name]))
    if not arguments:
        for finding in findings():
            print("seen  " if observed(finding) else "absent", finding.id)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
