"""The benchmark of shards: what it measures, and what it compares."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from report_files import record, report, run

from opcheck.report.store import write
from opcheck.running.outcome import Outcome

PATH = Path(__file__).resolve().parent.parent.parent / "tools" / "bench_shards.py"
CASES = [record(f"torch.{name}::backward[cpu-float64]") for name in ("sin", "cos", "exp", "log")]


@pytest.fixture
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_shards", PATH)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shards(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[float, list[Outcome]]]:
    """What runs take and leave, by shard; in place of real ones."""
    planned = {"": (9.0, CASES), "1/2": (4.0, CASES[:2]), "2/2": (5.0, CASES[2:])}

    def pretend(command: list[str]) -> float:
        options = dict(word.split("=", 1) for word in command if word.startswith("--"))
        shard = options.get("--shard", "")
        seconds, records = planned[shard]
        write(report(*records, runs=[run(shard=shard, seconds=seconds)]), Path(options["--report-json"]))
        assert ("--durations" in options) == bool(shard)
        return seconds

    monkeypatch.setattr(bench, "cpu_seconds", pretend)
    return planned


def test_even_shards_that_are_the_whole_run_pass(bench, shards, capsys) -> None:
    assert bench.main(["specs", "--shards=2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "whole run: 9.0 s of CPU time", "shard 1/2: 4.0 s of CPU time, 2 cases",
        "shard 2/2: 5.0 s of CPU time, 2 cases", "mean 4.5 s, slowest 1.11 of it; together they are the whole run",
    ]  # fmt: skip


def test_uneven_ones_fail(bench, shards) -> None:
    shards["2/2"] = (8.0, CASES[2:])
    assert bench.main(["specs", "--shards=2"]) == 1


@pytest.mark.parametrize(
    "records", [CASES[2:3], [CASES[2], record(CASES[3].id, "failed")]], ids=["a case is lost", "a case fails"]
)
def test_so_do_those_that_are_not_the_whole_run(bench, shards, capsys, records) -> None:
    shards["2/2"] = (5.0, records)
    assert bench.main(["specs", "--shards=2"]) == 1
    assert f"not the whole run: {CASES[3].id} (1 differences)" in capsys.readouterr().out


def test_cpu_time_is_that_of_the_processes(bench) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    assert 0.3 <= bench.cpu_seconds([sys.executable, "-c", busy]) < 3
    with pytest.raises(SystemExit, match="could not run its cases"):
        bench.cpu_seconds([sys.executable, "-c", "raise SystemExit(2)"])
