"""Faults of torch: each expectation of the library belongs to one or is by design, and each can be reproduced."""

from __future__ import annotations

import ast
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import opcheck
from opcheck.cli.report import is_out_of_reach, observed
from opcheck.report.findings import findings
from opcheck.running import reproduction

tool = runpy.run_path(str(Path(__file__).resolve().parent.parent.parent / "tools" / "findings.py"))
FINDINGS = findings()
OLDEST = "2.13.0"  # the version of torch in which most were seen first: whether they are older is not known
OTHERS = tool["others"]()


@pytest.mark.nightly
@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.id)
def test_a_fault_is_there_in_the_versions_it_is_known_of(finding):
    if is_out_of_reach(finding):
        pytest.skip(f"{finding.device} is absent")
    is_known = tool["is_known_in"](finding, torch.__version__)
    try:
        seen = observed(finding)
    except Exception:
        if is_known:
            raise
        seen = ""  # what a version without the fault refuses, or has no formula for
    if is_known and not seen and finding.processors:
        pytest.skip(f"not seen on this processor; seen on: {finding.processors}")
    assert bool(seen) == is_known, (
        seen
        or f"torch {torch.__version__} is mended: write mended, and `torch` in the expectations whose reasons are\n"
        + "\n".join(finding.reasons)
    )


def test_a_reproduction_that_hangs_does_not_tell_that_nothing_is_wrong(monkeypatch):
    monkeypatch.setattr(reproduction, "PATIENCE", 0.2)
    (crash, *_) = (finding for finding in FINDINGS if finding.crashes and not finding.device)
    with pytest.raises(TimeoutError):
        observed(replace(crash, reproduction="while True: pass"))


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.id)
def test_a_reproduction_is_short_and_plain_torch(finding):
    assert len(finding.reproduction.splitlines()) <= 12
    imports = [
        node for node in ast.walk(ast.parse(finding.reproduction)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    modules = [node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports]
    assert {module.split(".")[0] for module in modules} == {"torch"}
    assert bool(finding.raises) + finding.crashes + ("expected" in finding.reproduction) == 1


def test_each_reason_of_an_expectation_belongs_to_a_fault_or_is_listed_once():
    listed = [reason for finding in FINDINGS for reason in finding.reasons]
    listed += [reason for reasons in OTHERS.values() for reason in reasons]
    assert sorted(listed) == sorted(set(listed))
    missing = set(tool["expecting"]()) - set(listed)
    assert not missing, "write a finding with a reproduction in findings/, or list it as by design in others.toml"
    assert not set(listed) - set(tool["expecting"]()), "no expectation gives this reason any more"


def test_a_fault_is_expected_in_the_versions_that_have_it_alone():
    conditions: dict[str, set[str | None]] = {}
    for operator in opcheck.load("builtin"):
        for expect in operator.spec.expect:
            conditions.setdefault(" ".join(expect.reason.split()), set()).add(expect.when.torch)
    for finding in FINDINGS:
        for reason in () if finding.device else finding.reasons:  # one version has been tried there
            since, mended = finding.since != OLDEST and f">={finding.since}", finding.mended and f"<{finding.mended}"
            assert conditions[reason] == {",".join(filter(None, (since, mended))) or None}, finding.id


def test_few_faults_are_without_a_reproduction():
    assert set(OTHERS) == {"by_design", "without_reproduction"}
    assert len(OTHERS["without_reproduction"]) <= 1  # it only becomes fewer


def test_a_fault_is_known_from_one_version_to_another():
    finding = replace(FINDINGS[0], since="2.13.0", mended="2.14")
    known = [tool["is_known_in"](finding, version) for version in ("2.12.1", "2.13.0+cpu", "2.13.1", "2.14.1")]
    assert known == [False, True, True, False]


def test_a_version_has_a_table_of_what_it_mended_and_what_is_new(monkeypatch):
    entries = [
        replace(FINDINGS[0], id=name, title=name, since=since, mended=mended)
        for name, since, mended in (("old_a", "2.13.0", ""), ("new_b", "2.14", "2.15"), ("gone_c", "2.13.0", "2.14"))
    ]
    names = tool["page"].__globals__
    monkeypatch.setitem(names, "findings", lambda: tuple(entries))
    first, second = tool["_changes"]()
    head = "mended, and what is new\n\n| | finding | what |\n|---|---|---|\n"
    assert first == (
        f"## What torch 2.14 {head}| mended | [gone_c](#gone_c) | gone\\_c |\n| new | [new_b](#new_b) | new\\_b |"
    )
    assert second == f"## What torch 2.15 {head}| mended | [new_b](#new_b) | new\\_b |"
