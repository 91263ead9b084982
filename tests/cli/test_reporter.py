"""What a run misses of an earlier report."""

from __future__ import annotations

import pytest
from report_files import record, report, run

from opcheck.cli.run.reporter import changes
from opcheck.planning import load
from opcheck.settings import Settings
from opcheck.spec.device_profile import profiles

SIN, LOST, ELSEWHERE = "torch.sin::vmap[cpu-float64]", "torch.lost::vmap[cpu-float64]", "torch.lost::vmap[cuda-float64]"


@pytest.fixture
def since(write):
    """Return a function that compares reports of a run of some paths."""

    def compare(old, new, *paths):
        spec = write('[[operator]]\nname = "torch.sin"\nsamples = [{ use = "unary" }]\n', "specs/a.toml")
        return changes(old, new.runs[0], load([spec], Settings()), [profiles()["cpu"]], paths or ["specs"])

    return compare


def gone(diff):
    return {change.old.id for change in diff.changes if change.kind == "gone"}


def old(*names, file="specs/a.toml"):
    return report(*(record(name, file=file) for name in names))


def test_what_the_specs_have_no_longer_is_missed_on_the_devices_of_the_run(since):
    assert gone(since(old(SIN, LOST, ELSEWHERE), old(SIN))) == {LOST}


@pytest.mark.parametrize(
    ("paths", "file", "is_missed"),
    [
        (("specs",), "specs/b.toml", True), (("specs",), "specs/deep/b.toml", True), ((".",), "specs/b.toml", True),
        (("specs/a.toml",), "specs/a.toml", True), (("specs/a.toml",), "specs/b.toml", False),
        (("specs",), "specs2/b.toml", False), (("more", "specs"), "specs/b.toml", True), (("specs",), "", True),
    ],
)  # fmt: skip
def test_of_other_files_nothing_is_missed(since, paths, file, is_missed):
    assert gone(since(old(LOST, file=file), old(SIN), *paths)) == ({LOST} if is_missed else set())


def test_what_was_not_selected_is_counted(since):
    found = since(old("torch.sin::backward[cpu-float64]", SIN, ELSEWHERE), old(SIN))
    assert (found.changes, found.left_aside, found.is_regression()) == ([], {"cpu": 1, "cuda": 1}, False)


def test_other_shards_are_not_missed(since):
    shard = report(record(SIN), runs=[run(shard="2/3", cases=5)])
    found = since(old(SIN), shard)
    assert (found.gaps, found.is_regression()) == ([], False)


def test_a_run_that_did_not_end_shows_nothing(since):
    part = report(record(SIN), runs=[run(shard="2/3", complete=False)])
    assert since(old(SIN), part).is_regression()
