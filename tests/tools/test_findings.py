"""Faults of torch: each expectation of the library belongs to one or is by design, and each can be reproduced."""

from __future__ import annotations

import ast
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import opcheck

tool = runpy.run_path(str(Path(__file__).resolve().parent.parent.parent / "tools" / "findings.py"))
FINDINGS = tool["findings"]()
OTHERS = tool["others"]()


@pytest.mark.nightly
@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.id)
def test_a_fault_is_there_in_the_versions_it_is_known_of(finding):
    is_known = tool["is_known_in"](finding, torch.__version__)
    seen = tool["observed"](finding)
    assert bool(seen) == is_known, (
        seen
        or f"torch {torch.__version__} is mended: write mended, and `torch` in the expectations whose reasons are\n"
        + "\n".join(finding.reasons)
    )


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.id)
def test_a_reproduction_is_short_and_plain_torch(finding):
    assert len(finding.reproduction.splitlines()) <= 12
    imports = [
        node for node in ast.walk(ast.parse(finding.reproduction)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    modules = [node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports]
    assert {module.split(".")[0] for module in modules} == {"torch"}
    assert bool(finding.raises) + finding.crashes + ("expected" in finding.reproduction) == 1


def test_ids_are_unique():
    assert len({finding.id for finding in FINDINGS}) == len(FINDINGS)


def test_each_reason_of_an_expectation_belongs_to_a_fault_or_is_listed_once():
    listed = [reason for finding in FINDINGS for reason in finding.reasons]
    listed += [reason for reasons in OTHERS.values() for reason in reasons]
    assert sorted(listed) == sorted(set(listed))
    missing = set(tool["expecting"]()) - set(listed)
    assert not missing, "write a finding with a reproduction in findings/, or list it as by design in others.toml"
    assert not set(listed) - set(tool["expecting"]()), "no expectation gives this reason any more"


def test_what_is_mended_is_expected_before_that_version_alone():
    conditions: dict[str, set[str | None]] = {}
    for operator in opcheck.load("builtin"):
        for expect in operator.spec.expect:
            conditions.setdefault(" ".join(expect.reason.split()), set()).add(expect.when.torch)
    for finding in FINDINGS:
        for reason in finding.reasons:
            assert conditions[reason] == {f"<{finding.mended}" if finding.mended else None}, finding.id


def test_few_faults_are_without_a_reproduction():
    assert set(OTHERS) == {"by_design", "without_reproduction"}
    assert len(OTHERS["without_reproduction"]) <= 5  # it only becomes fewer


class TestObserved:
    def finding(self, reproduction, **keys):
        return replace(FINDINGS[0], reproduction=reproduction, **keys)

    @pytest.mark.parametrize(
        ("actual", "is_seen"), [("1.0", False), ("torch.nan", True), ("1.1", True), ("1.0 + 0.5j", True)]
    )
    def test_numbers_differ(self, actual, is_seen):
        code = f"import torch\nactual, expected = torch.tensor({actual}), torch.tensor(1.0)"
        assert bool(tool["observed"](self.finding(code))) is is_seen

    def test_an_error_is_raised(self):
        assert "so it is" in tool["observed"](self.finding("raise ValueError('so it is')", raises="it is"))
        assert tool["observed"](self.finding("pass", raises="it is")) == ""

    def test_another_error_is_not_hidden(self):
        with pytest.raises(ValueError, match="otherwise"):
            tool["observed"](self.finding("raise ValueError('otherwise')", raises="it is"))

    def test_a_process_ends(self):
        assert "signal 6" in tool["observed"](self.finding("import os; os.abort()", crashes=True))
        assert tool["observed"](self.finding("raise ValueError", crashes=True)) == ""


def test_a_fault_is_known_from_one_version_to_another():
    finding = replace(FINDINGS[0], since="2.13.0", mended="2.14")
    known = [tool["is_known_in"](finding, version) for version in ("2.12.1", "2.13.0+cpu", "2.13.1", "2.14.1")]
    assert known == [False, True, True, False]


def test_text_to_file_names_what_is_wrong_and_what_is_right():
    (finding,) = [finding for finding in FINDINGS if finding.id == "logical-inplace-gradient"]
    text = tool["report"](finding)
    assert text.startswith(f"# {finding.title}\n")
    for part in (finding.reproduction, "expected = tensor([0., 0.])", torch.__version__):
        assert part in text
    assert "opcheck" not in text


def test_an_unknown_id_is_an_error(capsys):
    assert tool["main"](["no-such-fault"]) == 2
    assert "no such finding: no-such-fault; expected one of logical-inplace-gradient" in capsys.readouterr().err
