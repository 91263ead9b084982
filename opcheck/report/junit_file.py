"""A JUnit report made of a report: the names of its tests are those in pytest's `--junitxml`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

from opcheck.report.junit import class_name
from opcheck.report.model import Record, Report, Run
from opcheck.report.writing import put

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write."""

TAGS = {"failed": "failure", "xpassed": "failure", "inconclusive": "failure", "blocked": "failure", "error": "error"}


def write_junit(report: Report, path: Path) -> None:
    """Write a JUnit report with a suite for each run. Raises OSError."""
    root = Element("testsuites", {"name": "opcheck"})
    runs: list[list[Record]] = [[] for _ in report.runs]
    for record in report.records:
        runs[record.run].append(record)
    for run, records in zip(report.runs, runs, strict=True):
        root.append(_suite(run, records))
    put(path, [tostring(root, encoding="utf-8", xml_declaration=True), b"\n"])


def _suite(run: Run, records: Sequence[Record]) -> Element:
    tags = Counter(TAGS.get(record.outcome, record.outcome) for record in records)
    counts = {"failures": tags["failure"], "errors": tags["error"], "skipped": tags["skipped"] + tags["xfailed"]}
    suite = Element("testsuite", {"name": f"opcheck, torch {run.torch}", "tests": str(len(records))})
    for name, count in counts.items():
        suite.set(name, str(count))
    suite.set("time", f"{sum(record.seconds for record in records):.3f}")
    suite.set("timestamp", run.started)
    about = {"opcheck": run.opcheck, "torch": run.torch, "python": run.python, "platform": run.platform}
    about |= {"engine": run.engine, "seed": str(run.seed), "complete": str(run.complete).lower()}
    about |= {f"device {device.name}": device.details for device in run.devices}
    properties = SubElement(suite, "properties")
    for name, value in about.items():
        SubElement(properties, "property", {"name": _xml(name), "value": _xml(value)})
    suite.extend(map(_case, records))
    return suite


def _case(record: Record) -> Element:
    names = {"classname": _xml(class_name(record.file)), "name": _xml(record.id)}
    case = Element("testcase", {**names, "time": f"{record.seconds:.3f}"})
    if record.is_bad:
        bad = SubElement(case, TAGS[record.outcome], {"message": _xml(record.reason), "type": record.outcome})
        bad.text = _xml(record.message or record.reason)
    elif record.outcome in ("skipped", "xfailed"):
        kind = "pytest.skip" if record.outcome == "skipped" else "pytest.xfail"
        SubElement(case, "skipped", {"message": _xml(record.reason), "type": kind})
    return case


def _xml(text: str) -> str:
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
