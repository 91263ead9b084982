"""Generates the page docs/findings.md: the faults of torch in findings/, with the specs that expect them.

`python tools/findings.py` tries all of them with the installed torch; `opcheck report finding ID` prints an issue.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import tomli
from packaging.version import Version

from opcheck.report.findings import KINDS, Finding, as_markdown, findings, folder


@cache
def others() -> dict[str, tuple[str, ...]]:
    """Return the reasons of expectations that no finding covers, by the name of their list in others.toml."""
    lists = tomli.loads((folder() / "others.toml").read_text(encoding="utf-8"))
    return {name: tuple(reasons) for name, reasons in lists.items()}


@cache
def expecting() -> dict[str, list[str]]:
    """Return the ids of the shipped operators with expected failures, by the reason of the expectation."""
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


def is_known_in(finding: Finding, version: str) -> bool:
    """Return whether a version of torch is known to have the fault."""
    mended = finding.mended and Version(version) >= Version(finding.mended)
    return Version(version) >= Version(finding.since) and not mended


def page() -> str:
    """Return the findings as Markdown."""
    parts = [_overview(), *_changes()]
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


def _changes() -> list[str]:
    """Return a table for each version that fixed or introduced faults."""
    on_cpu = [finding for finding in findings() if not finding.device]  # on other devices, only one version was tried
    oldest = min((finding.since for finding in on_cpu), key=Version)
    versions = {version for one in on_cpu for version in (one.since, one.mended) if version not in ("", oldest)}
    parts = []
    for version in sorted(versions, key=Version):
        rows = [
            f"| {what} | [{one.id}](#{one.id}) | {as_markdown(one.title)} |"
            for what, its in (("mended", "mended"), ("new", "since"))
            for one in on_cpu
            if getattr(one, its) == version
        ]
        title = f"## What torch {version} mended, and what is new"
        parts.append("\n".join((title, "", "| | finding | what |", "|---|---|---|", *rows)))
    return parts


def _section(finding: Finding) -> str:
    seen = f"Seen in torch {finding.since}" + (f" on {finding.device}" if finding.device else "")
    seen += f", mended in {finding.mended}." if finding.mended else "."
    seen += f" Processors: {finding.processors}." if finding.processors else ""
    expected = ", ".join(f"`{operator}`" for operator in _operators(finding))
    lines = [
        f"### {finding.id}",
        f"**{as_markdown(finding.title)}.** {seen}" + (f" [Upstream]({finding.link})." if finding.link else ""),
        # Not marked as Python, so that tests of the docs do not run it: the test of the findings runs each separately.
        f"```\n{finding.reproduction}\n```",
        f"Raises: `{finding.raises}`." if finding.raises else "The process ends." if finding.crashes else "",
        f"Right: {as_markdown(finding.right)}",
        f"Expected by {expected}."
        if expected
        else "No spec expects it: samples stay clear of it, or `supports` says so.",
    ]
    return "\n\n".join(line for line in lines if line)


def _operators(finding: Finding) -> list[str]:
    return list(dict.fromkeys(one for reason in finding.reasons for one in expecting().get(reason, ())))


def main() -> int:
    from opcheck.cli.report import is_out_of_reach, observed

    for finding in findings():
        print("not run" if is_out_of_reach(finding) else "seen   " if observed(finding) else "absent ", finding.id)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
