"""Shards of `opcheck run`, `opcheck list` and plain pytest: together they are the whole run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_files import write_lines

from opcheck.report.store import read

WHOLE = """
[defaults]
dtypes   = { forward = ["float64", "complex128", "float32"] }
samples  = [{ args = [{ shape = [2] }] }]

[[operator]]
name = "torch.sin"
variants = ["method"]

[[operator]]
name = "torch.exp"

[[operator]]
name = "torch.sinc"

  [[operator.expect]]
  when    = { check = "variants" }
  outcome = "skip"
  reason  = "the only case with an expectation, in one shard only"
"""

VERSIONS = '"schema": "2.0", "opcheck": "1", "torch": "2", "python": "3", "platform": "Linux"'
NO_RECORDS = f'{{{VERSIONS}, "engine": "batched", "seed": 0, "started": "now"}}'
REPORTS = ("--report-json", "report.json", "--junitxml", "report.xml")
FEW = ("--check=backward,forward_ad,variants,context", "--device=cpu")


@pytest.fixture
def sines(project):
    project.write("specs/sines.toml", WHOLE)
    return project


def shards(cli, count, *options):
    """Return the finished runs of all shards."""
    return [cli("run", *FEW, *REPORTS, f"--shard={number}/{count}", *options) for number in range(1, count + 1)]


def test_shards_are_the_whole_run_and_fail_where_it_does(cli, sines):
    whole = cli("run", *FEW, *REPORTS)
    runs = shards(cli, 5)
    together = [id for run in runs for id in run.records]
    assert sorted(together) == sorted(whole.records)
    assert {id: outcome for run in runs for id, outcome in run.outcomes.items()} == whole.outcomes
    assert whole.code == 1
    assert [run.code for run in runs] == [int("demo.wrong::backward[cpu-float64]" in run.records) for run in runs]
    for number, run in enumerate(runs, 1):
        others = len(whole.records) - len(run.records)
        assert (run.header["shard"], run.header["complete"]) == (f"{number}/5", True)
        assert f"shard {number}/5: {len(run.records)} cases; the other shards have {others}\n" in run.out


def test_merged_they_are_the_report_of_the_whole_run(cli, sines):
    whole, merged = sines.folder / "whole.json", sines.folder / "merged.json"
    cli("run", *FEW, "--report-json", str(whole))
    for number in range(1, 6):
        balanced = ["--durations", str(whole)]
        cli("run", *FEW, f"--shard={number}/5", *balanced, "--report-json", f"{number}.json")
    done = cli("report", "merge", *(f"{number}.json" for number in (3, 1, 5, 2, 4)), "-o", str(merged))
    old, new = read(whole), read(merged)
    assert (done.code, done.out) == (0, f"wrote merged.json: {len(old.records)} cases of 1 run\n")
    assert new.runs[0].complete
    times = {"started", "seconds", "command", "records"}
    assert new.runs[0].model_dump(exclude=times) == old.runs[0].model_dump(exclude=times)
    same = [{each.id: replace(each, seconds=0.0) for each in one.records} for one in (old, new)]
    assert same[0] == same[1]
    assert len(old.records) == len(new.records) > 25


def test_a_shard_that_is_missing_is_told_by_merging(cli, sines):
    for number in (1, 3):
        cli("run", *FEW, f"--shard={number}/3", "--report-json", f"{number}.json")
    done = cli("report", "merge", "1.json", "3.json", "-o", "merged.json")
    assert done.code == 1
    assert "2/3" in done.err


@pytest.mark.nightly
def test_processes_divide_alike(cli, sines):
    alone = cli("run", *FEW, *REPORTS, "--shard=2/3")
    several = cli("run", *FEW, *REPORTS, "--shard=2/3", "-n", "2")
    assert several.outcomes == alone.outcomes
    assert several.out.splitlines()[-2] == alone.out.splitlines()[-2]
    assert several.out.splitlines()[-2].startswith("shard 2/3: ")


def test_list_and_plain_pytest_have_the_same_shards(cli, plain_pytest, sines):
    run = cli("run", *FEW, *REPORTS, "--shard=2/3")
    assert cli("list", *FEW, "--shard=2/3").out.splitlines() == list(run.records)
    options = [option.replace("--", "--opcheck-", 1) for option in (*FEW, "--report-json", "--shard=2/3")]
    options.insert(options.index("--opcheck-report-json") + 1, "report.json")
    plain = plain_pytest("specs", "-p", "no:cacheprovider", *options)
    assert plain.outcomes == run.outcomes
    assert next(line for line in run.out.splitlines() if line.startswith("shard 2/3")) in plain.out
    assert " deselected" in plain.out


def test_tests_other_than_cases_run_in_every_shard(plain_pytest, sines):
    sines.write("test_own.py", "def test_own(): pass\n")
    for number in (1, 2):
        plain = plain_pytest(
            "test_own.py", "specs/good.toml", "--opcheck-check=backward", f"--opcheck-shard={number}/2"
        )
        assert plain.code == 0
        assert "2 passed, 1 deselected" in plain.out


class TestChoosingWithinAShard:
    """-k, -m and --lf do not change which shard has a case."""

    @pytest.mark.parametrize("options", [("-k", "sin and backward"), ("-m", "complex128")])
    def test_expressions_choose_within(self, cli, sines, options):
        expected = cli("run", *FEW, *REPORTS, *options).outcomes
        runs = shards(cli, 3, *options)
        for run, whole in zip(runs, shards(cli, 3), strict=True):
            assert run.code in (0, 1)
            assert set(run.records) <= set(whole.records)
        assert {id: outcome for run in runs for id, outcome in run.outcomes.items()} == expected

    def test_what_failed_last_time_stays_in_its_shard(self, cli, sines):
        first = shards(cli, 3)
        (home,) = [number for number, run in enumerate(first) if run.code == 1]
        again = shards(cli, 3, "--lf")
        assert again[home].outcomes == {"demo.wrong::backward[cpu-float64]": "failed"}
        for number in {0, 1, 2} - {home}:
            assert again[number].code == 0
            assert again[number].records == {}
            assert "the other shards have 1\n" in again[number].out

    def test_ids_are_shared_out_too(self, cli, sines):
        ids = [f"specs/sines.toml::torch.{name}::backward[cpu-float64]" for name in ("sin", "exp")]
        first, second = shards(cli, 2, *ids)
        assert sorted([*first.records, *second.records]) == ["torch.exp::backward[cpu-float64]", ids[0][18:]]
        assert len(first.records) == len(second.records) == 1


class TestEmptyShards:
    def test_an_empty_one_is_no_mistake_if_others_have_cases(self, cli, sines):
        runs = shards(cli, 3, "--operator=demo.double", "-k", "not inplace")
        assert [bool(run.records) for run in runs].count(True) == 1
        for run in runs:
            assert run.code == 0
            assert run.records or ": no cases; the other shards have " in run.out

    @pytest.mark.nightly
    def test_so_it_is_with_processes_and_in_plain_pytest(self, cli, plain_pytest, sines):
        for number in (1, 2, 3):
            shard = f"{number}/3"
            run = cli("run", "--operator=torch.exp", "--check=vmap", "--dtype=float64", f"--shard={shard}", "-n", "1")
            assert run.code == 0
            assert ("no cases; the other shards have 1" in run.out) == (number > 1)
            asked = ("--opcheck-operator=torch.exp", "--opcheck-check=vmap", "--opcheck-dtype=float64")
            assert plain_pytest("specs", *asked, f"--opcheck-shard={shard}").code == 0

    def test_a_request_for_nothing_at_all_stays_a_mistake(self, cli, plain_pytest, sines):
        for options in (["-k", "nothing"], ["--check=vmap", "--dtype=int8"]):
            run = cli("run", "--shard=1/2", *options)
            assert (run.code, run.err) == (2, "opcheck: the request selects no case\n")
        assert plain_pytest("specs", "-k", "nothing", "--opcheck-shard=1/2").code == 5


class TestExpectations:
    """A known failure is asked for in the shard that has its case, and missed by no other."""

    EXPECT = """
  [[operator.expect]]
  when    = { check = "backward" }
  outcome = "fail"
  reason  = "known"
"""

    def test_one_that_is_met_fails_no_shard(self, cli, project):
        path = project.folder / "specs/bad.toml"
        path.write_text(path.read_text() + self.EXPECT)
        runs = shards(cli, 4, "--operator=demo.*")
        assert [run.code for run in runs] == [0, 0, 0, 0]
        assert [outcome for run in runs for outcome in run.outcomes.values()].count("xfailed") == 1

    def test_one_that_nothing_meets_fails_its_own_shard_only(self, cli, project):
        path = project.folder / "specs/good.toml"
        path.write_text(path.read_text() + self.EXPECT)
        runs = shards(cli, 4, "--operator=demo.double")
        assert sorted(run.code for run in runs) == [0, 0, 1, 1]  # one for the function, one for the method
        for run in runs:
            assert ("xpassed" in run.outcomes.values()) == bool(run.code)


class TestDurations:
    def test_they_change_which_shard_has_what(self, cli, sines):
        whole = cli("run", *FEW, *REPORTS)
        taken = sines.lines()
        for record in taken[1:-1]:
            record["seconds"] = 100.0 if record["operator"] == "torch.exp" else 0.01
        write_lines(sines.folder / "old.json", taken)
        runs = shards(cli, 2, "--durations=old.json")
        together = [id for run in runs for id in run.records]
        assert sorted(together) == sorted(whole.records)
        exp = [{id for id in run.records if id.startswith("torch.exp")} for run in runs]
        assert all(exp), "each shard has one of the two groups that take long"
        for number, run in enumerate(runs, 1):
            listed = cli("list", *FEW, f"--shard={number}/2", "--durations=old.json").out.splitlines()
            assert listed == list(run.records)

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (None, "old.json"),
            ("{", "old.json"),
            ("[1]", "old.json"),
            (NO_RECORDS, "has no duration of any selected operator; expected the report of an earlier run"),
        ],
    )
    @pytest.mark.parametrize("command", ["run", "list"])
    def test_those_of_no_use_are_a_mistake(self, cli, sines, content, told, command):
        if content is not None:
            sines.write("old.json", content)
        run = cli(command, "--shard=1/2", "--durations=old.json")
        assert run.code == 2
        assert told in run.err
        assert "Traceback" not in run.err + run.out

    def test_so_are_they_in_plain_pytest(self, plain_pytest, sines):
        sines.write("old.json", NO_RECORDS)
        for processes in ([], ["-n", "1"]):
            options = ("--opcheck-shard=1/2", "--opcheck-durations=old.json", "--opcheck-report-json=report.json")
            plain = plain_pytest("specs", *options, *processes)
            assert (plain.code, plain.header["complete"]) == (4, False)
            assert "ERROR: " in plain.out + plain.err
            assert "old.json has no duration of any selected operator" in plain.out + plain.err

    def test_they_are_for_shards_only(self, cli, plain_pytest, sines):
        sines.write("old.json", NO_RECORDS)
        for command in ("run", "list"):
            run = cli(command, "--durations=old.json")
            assert run.code == 2
            assert "durations are for shards; expected a shard, such as 1/8, as well" in run.err
        assert plain_pytest("specs", "--opcheck-durations=old.json").code == 4

    def test_a_report_does_not_overwrite_them(self, cli, sines):
        sines.write("old.json", NO_RECORDS)
        run = cli("run", "--shard=1/2", "--durations=old.json", "--report-json", "./old.json")
        assert run.code == 2
        assert "the report would overwrite the durations" in run.err
        assert (sines.folder / "old.json").read_text() == NO_RECORDS


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2", "1/x"])
def test_what_is_no_shard_is_told_so(cli, project, shard):
    for command in ("run", "list"):
        run = cli(command, f"--shard={shard}")
        assert run.code == 2
        assert f'"{shard}" is not a shard; expected NUMBER/COUNT, from 1/8 to 8/8 for example' in run.err
