"""A JUnit report made of a report: the names of its tests are those in pytest's `--junitxml`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

from opcheck.report.columns import Columns
from opcheck.report.junit import class_name, xml_text
from opcheck.report.model import Record, Report, Run
from opcheck.report.writing import put

TAGS = {"failed": "failure", "xpassed": "failure", "inconclusive": "failure", "blocked": "failure", "error": "error"}


def write_junit(report: Report, path: Path) -> None:
    """Write a JUnit report with a suite for each run. Raises OSError.

    The name of a case that several runs have says which run it is, since many readers know a test by its name alone.
    """
    root = Element("testsuites", {"name": "opcheck"})
    runs: list[list[Record]] = [[] for _ in report.runs]
    for record in report.records:
        runs[record.run].append(record)
    times, columns = Counter(record.id for record in report.records), Columns(report)
    for run, records in zip(report.runs, runs, strict=True):
        names = {one.id: f"{one.id} ({columns.of(one)})" if times[one.id] > 1 else one.id for one in records}
        root.append(_suite(run, records, names))
    put(path, [tostring(root, encoding="utf-8", xml_declaration=True), b"\n"])


def _suite(run: Run, records: Sequence[Record], names: Mapping[str, str]) -> Element:
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
        SubElement(properties, "property", {"name": xml_text(name), "value": xml_text(value)})
    suite.extend(_case(record, names[record.id]) for record in records)
    return suite


def _case(record: Record, name: str) -> Element:
    names = {"classname": xml_text(class_name(record.file)), "name": xml_text(name)}
    case = Element("testcase", {**names, "time": f"{record.seconds:.3f}"})
    if record.is_bad:
        bad = SubElement(case, TAGS[record.outcome], {"message": xml_text(record.reason), "type": record.outcome})
        bad.text = xml_text(record.message or record.reason)
    elif record.outcome in ("skipped", "xfailed"):
        kind = "pytest.skip" if record.outcome == "skipped" else "pytest.xfail"
        SubElement(case, "skipped", {"message": xml_text(record.reason), "type": kind})
    return case
