"""`opcheck report`: merges, compares and converts reports of `opcheck run --report-json`, prints faults of torch."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from opcheck.cli.stdout import say, warn
from opcheck.pytest_plugin.options import number, whole_number
from opcheck.report.annotations import MOST, github_annotations
from opcheck.report.content import Report
from opcheck.report.diff import diff
from opcheck.report.files import STANDARD, is_stream, replace
from opcheck.report.findings import Finding, findings
from opcheck.report.merge import gaps, merge
from opcheck.report.store import read, write
from opcheck.spec.document import shown
from opcheck.spec.problems import RequestError, nearest, worded
from opcheck.text import counted, ending, printable

WHY_NOT = (
    "Exit code 1: a case newly fails, fails for a different reason, is newly skipped or is gone, or a report is "
    "incomplete. Missing and skipped cases count because they could hide a regression; use --allow if the change is "
    "intended. Slower cases are only listed, since times depend on the machine."
)
INCOMPLETE = (
    "Exit code 1: the report is written, but incomplete: a shard is missing, a run did not come to its end, or a file "
    "cannot be read."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(run: Callable[[argparse.Namespace], int], name: str, about: str, epilog: str = "") -> Any:
        description = about[0].upper() + about[1:] + "."
        parser = actions.add_parser(name, help=about, description=description, epilog=epilog, allow_abbrev=False)
        parser.set_defaults(run=run, usage=parser.format_usage)
        return parser

    merging = action(_merge, "merge", "put the reports of several devices, versions and shards into one", INCOMPLETE)
    merging.add_argument("reports", nargs="+", type=Path, metavar="REPORT")
    comparing = action(_diff, "diff", "show what has changed from one report to another", WHY_NOT)
    comparing.add_argument("old", type=Path, metavar="OLD")
    comparing.add_argument("new", type=Path, metavar="NEW")
    factor = partial(
        number, least=1, most=sys.float_info.max, otherwise="is not a factor; expected a number of at least 1"
    )
    comparing.add_argument(
        "--slower", type=factor, metavar="FACTOR", help="also list the cases that take FACTOR times as long"
    )
    comparing.add_argument(
        "--allow", action="append", default=[], choices=["gone", "newly-skipped", "failing-otherwise"],
        help="a kind of change that does not count as a regression; may be repeated",
    )  # fmt: skip
    comparing.add_argument("--github-annotations", action="store_true", help="annotate the newly failing cases")
    markdown = action(_convert, "markdown", "print a report as Markdown, for the summary of a step in CI", INCOMPLETE)
    markdown.set_defaults(output=Path(STANDARD))
    lines = "print failures as annotations, which GitHub shows at their lines"
    annotations = action(_annotate, "github-annotations", lines, INCOMPLETE)
    junit = action(_convert, "junit", "write a report as JUnit's XML", INCOMPLETE)
    html = action(_convert, "html", "write a report as a page for a browser", INCOMPLETE)
    for one in (markdown, annotations, junit, html):
        one.add_argument("report", type=Path, metavar="REPORT")
    for one in (merging, junit, html):
        one.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="-: standard output")
    finding = action(
        _finding, "finding", "print a fault of torch, ready to file, with what the installed torch does",
        "Exit code 1: the installed torch does not have the fault.",
    )  # fmt: skip
    finding.add_argument("id", nargs="?", metavar="ID", help="default: list all")
    count = partial(
        whole_number, least=0, otherwise="is not a number of annotations; expected a whole number of at least 0"
    )
    for one in (comparing, annotations):
        one.add_argument("--folder", default="", metavar="FOLDER", help="where the project is in its repository")
        one.add_argument("--most", type=count, default=MOST, metavar="N", help=f"most annotations; default: {MOST}")


def run(options: argparse.Namespace) -> int:
    """Run the action. Raises SpecError if a report cannot be read or merged, OSError if a file cannot be written."""
    return int(options.run(options))


def _merge(options: argparse.Namespace) -> int:
    reports: list[tuple[str, Report]] = []
    unread: list[str] = []
    for path in options.reports:
        try:
            reports.append((shown(path), read(path)))
        except RequestError as error:
            unread.append(str(error))
    if not reports:
        raise RequestError(unread, prefix="")
    report = merge(reports, unread)
    write(report, options.output)
    stream = sys.stderr if is_stream(options.output) else sys.stdout
    print(
        f"wrote {shown(options.output)}: {counted(len(report.records), 'case')} of {counted(len(report.runs), 'run')}",
        file=stream,
    )
    return _told(report)


def _told(report: Report) -> int:
    """Print why a report is incomplete. Return the exit code: 1 if it is incomplete, else 0."""
    missing = gaps(report)
    for line in missing:
        print(printable(f"incomplete: {line}"), file=sys.stderr)
    return int(bool(missing))


def _diff(options: argparse.Namespace) -> int:
    changes = diff(read(options.old), read(options.new), options.slower)
    say(*changes.lines())
    if options.github_annotations:
        say(*github_annotations(changes.newly_failing(), options.folder, options.most))
    allowed = [name.replace("-", " ") for name in options.allow]
    return int(changes.is_regression(allowed) or not changes.compared)


def _convert(options: argparse.Namespace) -> int:
    """Write a report in the format of the action. Each format is a module of that name in `opcheck.report`."""
    report = read(options.report)
    text: str = import_module(f"opcheck.report.{options.action}").rendered(report)
    replace(options.output, [text.encode()])
    return _told(report)


def _annotate(options: argparse.Namespace) -> int:
    report = read(options.report)
    say(*github_annotations((run.records for run in report.runs), options.folder, options.most))
    return _told(report)


def _finding(options: argparse.Namespace) -> int:
    by_id = {finding.id: finding for finding in findings()}
    if options.id is None:
        say(*(f"{name}: {finding.title}" for name, finding in by_id.items()))
        return 0
    if options.id not in by_id:
        near = nearest(options.id, by_id)
        known = "" if near else "one that `opcheck report finding` lists"
        raise RequestError([worded(f'unknown finding "{options.id}"', known, near)])
    import torch

    try:
        seen = observed(by_id[options.id])
    except Exception as error:  # other versions may reject the call, or lack a formula for it
        warn(f"with torch {torch.__version__}, it raises {type(error).__name__}: {error}")
        return 1
    print(by_id[options.id].text(torch.__version__, seen), end="")
    return int(not seen)


def observed(finding: Finding) -> str:
    """Run the reproduction of a fault. Return the wrong behavior in words, or an empty string if it behaves correctly.

    If the device of the fault is absent, nothing runs, and the text says so. A fault that crashes is reproduced in a
    separate process, which may raise TimeoutError. Errors of the reproduction other than the known one are raised.
    """
    import torch

    if is_out_of_reach(finding):
        return f"not run: {finding.device} is absent"
    if finding.crashes:
        from opcheck.running.reproduction import executed

        status, _ = executed(finding.reproduction)
        return ending(status) if status < 0 else ""
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


def is_out_of_reach(finding: Finding) -> bool:
    """Return whether a fault needs a device that is absent."""
    import torch

    return bool(finding.device) and not torch.get_device_module(finding.device).is_available()
