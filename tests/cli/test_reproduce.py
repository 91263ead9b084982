"""What a reproduction shows: other numbers, an error, the end of the process, or that the fault is gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opcheck.cli.report import observed
from opcheck.report.findings import findings


def finding(reproduction, **keys):
    return replace(findings()[0], reproduction=reproduction, **keys)


@pytest.mark.parametrize(
    ("actual", "is_seen"), [("1.0", False), ("torch.nan", True), ("1.1", True), ("1.0 + 0.5j", True)]
)
def test_numbers_differ(actual, is_seen):
    code = f"import torch\nactual, expected = torch.tensor({actual}), torch.tensor(1.0)"
    assert bool(observed(finding(code))) is is_seen


def test_an_error_is_raised():
    assert "so it is" in observed(finding("raise ValueError('so it is')", raises="it is"))
    assert observed(finding("pass", raises="it is")) == ""


def test_another_error_is_not_hidden():
    with pytest.raises(ValueError, match="otherwise"):
        observed(finding("raise ValueError('otherwise')", raises="it is"))


def test_a_process_ends():
    assert "SIGABRT" in observed(finding("import os; os.abort()", crashes=True))
    assert observed(finding("raise ValueError", crashes=True)) == ""


def test_a_fault_of_an_absent_device_is_not_run(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert observed(finding("raise ValueError", device="cuda")) == "not run: cuda is absent"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert observed(finding("raise ValueError('so')", raises="so", device="cuda")) == "ValueError: so"
