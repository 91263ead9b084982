"""JUnit XML: writes that of a report, and renames the tests in the file that pytest writes of a run."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement, tostring

from opcheck.report.content import Report, Run
from opcheck.report.files import is_stream, replace
from opcheck.report.labels import columns
from opcheck.report.merge import gaps
from opcheck.running.outcome import Outcome

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot represent."""

TAGS = {"failed": "failure", "xpassed": "failure", "inconclusive": "failure", "blocked": "failure", "error": "error"}


def rendered(report: Report) -> str:
    """Return a report as JUnit XML, with a suite for each run.

    Tests have the names that they have in a run with `--junitxml`. If several runs have a case, its name includes the
    run, since many readers identify a test by its name alone. If the report is incomplete, a suite of its own has an
    error that lists what is missing.
    """
    root = Element("testsuites", {"name": "opcheck"})
    times = Counter(record.id for record in report.records)
    for run, own in zip(report.runs, columns(report), strict=True):
        names = [f"{one.id} ({own[one.device]})" if times[one.id] > 1 else one.id for one in run.records]
        root.append(_suite(run, names))
    if missing := gaps(report):
        root.append(_incomplete(missing))
    text: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return f"{text.decode()}\n"


def _suite(run: Run, names: Sequence[str]) -> Element:
    tags = Counter(TAGS.get(record.outcome, record.outcome) for record in run.records)
    counts = {"failures": tags["failure"], "errors": tags["error"], "skipped": tags["skipped"] + tags["xfailed"]}
    suite = Element("testsuite", {"name": f"opcheck, torch {run.torch}", "tests": str(len(run.records))})
    for name, count in counts.items():
        suite.set(name, str(count))
    suite.set("time", f"{sum(record.seconds for record in run.records):.3f}")
    suite.set("timestamp", run.started)
    about = {"opcheck": run.opcheck, "torch": run.torch, "python": run.python, "platform": run.platform}
    about |= {"engine": run.engine, "seed": str(run.seed), "complete": str(run.complete).lower()}
    about |= {f"device {device}": run.details.get(device, "") for device in run.devices}
    properties = SubElement(suite, "properties")
    for name, value in about.items():
        SubElement(properties, "property", {"name": xml_text(name), "value": xml_text(value)})
    suite.extend(map(_case, run.records, names))
    return suite


def _incomplete(missing: Sequence[str]) -> Element:
    counts = {"tests": "1", "failures": "0", "errors": "1", "skipped": "0", "time": "0.000"}
    suite = Element("testsuite", {"name": "opcheck, the report", **counts})
    case = SubElement(suite, "testcase", {"classname": "opcheck", "name": "the report is complete", "time": "0.000"})
    error = SubElement(case, "error", {"message": f"incomplete: {xml_text(missing[0])}", "type": "incomplete"})
    error.text = xml_text("\n".join(missing))
    return suite


def _case(record: Outcome, name: str) -> Element:
    names = {"classname": xml_text(class_name(record.file)), "name": xml_text(name)}
    case = Element("testcase", {**names, "time": f"{record.seconds:.3f}"})
    if record.is_bad:
        bad = SubElement(case, TAGS[record.outcome], {"message": xml_text(record.headline), "type": record.outcome})
        bad.text = xml_text(record.message or record.reason)
    elif record.outcome in ("skipped", "xfailed"):
        kind = "pytest.skip" if record.outcome == "skipped" else "pytest.xfail"
        SubElement(case, "skipped", {"message": xml_text(record.reason), "type": kind})
    return case


def xml_text(text: str) -> str:
    """Return text with characters replaced that XML cannot represent."""
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def class_name(file: str) -> str:
    """Return the class name of the test cases of a spec file: its path with dots."""
    return ".".join(part for part in file.removesuffix(".toml").split("/") if part not in ("..", ""))


def check_writable(path: Path) -> None:
    """Check that pytest can write to a file, without leaving anything behind. Raises OSError if it cannot."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder")
    if is_stream(path):
        if path.is_file():
            raise OSError(f"{path} is a standard stream, which pytest would overwrite; expected a file of its own")
    elif path.is_file():
        path.open("ab").close()
    elif not path.exists():
        folder = next(parent for parent in path.parents if parent.exists())
        tempfile.TemporaryFile(dir=folder).close()


def name_tests(path: Path, cases: Mapping[str, tuple[str, str]], prefix: str = "") -> str:
    """Rename the tests in a JUnit file that pytest has written: give them the names of their cases.

    cases: by node id, the name of each case, and the reason if it ended its process, else an empty string. prefix: the
    prefix of all class names. Returns an error message if the file cannot be changed, else an empty string.
    """
    if not cases or is_stream(path) or not path.is_file():
        return ""
    prefix = f"{prefix}." if prefix else ""
    known = {_dotted(nodeid): (nodeid, *own) for nodeid, own in cases.items()}
    try:
        tree = ElementTree.parse(path)
        for test in tree.iter("testcase"):
            address = _dotted(f"{test.get('classname', '')}.{test.get('name', '')}".removeprefix(prefix))
            if address in known:
                nodeid, name, ending = known[address]
                test.set("classname", prefix + class_name(nodeid.removesuffix(f"::{name}")))
                test.set("name", name)
                for error in test.iter("error") if ending else ():
                    error.set("message", xml_text(ending))
        text = ElementTree.tostring(tree.getroot(), encoding="utf-8", xml_declaration=True)
        replace(path, [text])
    except (OSError, ElementTree.ParseError) as error:
        return f"the report {path} is incomplete: its tests do not have the names of the cases: {error}"
    return ""


def _dotted(address: str) -> str:
    """Return a node id with dots only. Then it does not matter where pytest splits it into class name and name."""
    return address.replace("::", ".").replace("/", ".")
