"""Durations from the report of an earlier run."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_files import record, report

from opcheck.report.durations import read_durations
from opcheck.report.store import ReportError, write


def test_they_are_those_of_the_cases_that_ran(tmp_path: Path) -> None:
    vmap = "torch.sin::vmap[cuda-float64]"
    ran = [record("torch.sin::vmap[cpu-float64]", seconds=3.0), record("torch.sin::backward[cpu-float64]", "failed")]
    absent = record(vmap, "skipped", seconds=0.0)
    write(report(*ran, absent), tmp_path / "old.json")
    durations = read_durations(tmp_path / "old.json")
    assert durations.by_case == {ran[0].id: 3.0, ran[1].id: 0.25}
    assert durations.by_check == {"vmap": 3.0, "backward": 0.25}
    assert durations.operators == {"torch.sin"}
    assert durations.source == str(tmp_path / "old.json")


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(ReportError, match="it is no report of opcheck"):
        read_durations(tmp_path / "old.json")
