"""Reports of runs: what their header says, and what `opcheck report` and `opcheck run --against` make of them."""

from __future__ import annotations

import platform
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
from demo_project import Project
from report_files import lines, write_lines

RUN = ("run", "--check=backward,variants", "--report-json=report.json")
WRONG, DOUBLE, INPLACE = (
    f"demo.{name}::backward[cpu-float64]" for name in ("wrong", "double", "double[inplace]")
)  # fmt: skip

MENDED = ("return 3 * v", "return 2 * v")
BROKEN = ("def double(x):\n    return 2 * x", "def double(x):\n    return x * x.detach() * 2 / x")
LOST = '\nvariants = [{ kind = "inplace", target = "demo.double_" }]'

NPU = """
[device]
name     = "npu"
torch    = "cpu"
inherits = "cpu"
hint     = { always = true }
"""


def change(file, old, new=""):
    text = Path(file).read_text()
    assert old in text
    Path(file).write_text(text.replace(old, new))


@pytest.fixture
def kept(cli):
    """Return a function that runs cases and keeps the report under a name."""

    def run(name, *options):
        done = cli(*RUN, *options)
        shutil.copy("report.json", name)
        return done

    return run


class TestHeader:
    def test_it_says_what_ran_and_with_what(self, cli):
        done = cli("run", "specs/good.toml", "--check=backward", "-k", "double", "--seed=3", "--rtol=0.1", *RUN[2:])
        known = {name: value for name, value in done.header.items() if name not in ("started", "seconds", "command")}
        digests = {known.pop("planned"), known.pop("specs")}
        assert len(digests) == 2
        assert all(len(digest) == 16 for digest in digests)
        assert known == {
            "opcheck": version("opcheck"), "torch": version("torch"), "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.machine()}", "devices": ["cpu"], "details": {}, "schema": "2.0",
            "selection": {"check": ["backward"], "k": ["double"], "paths": ["specs/good.toml"]},
            "overrides": {"rtol": 0.1}, "engine": "batched", "seed": 3, "shard": "", "cases": 2,
            "complete": True, "left_out": [],
        }  # fmt: skip
        assert done.header["command"][:3] == ["opcheck", "run", "specs/good.toml"]
        assert done.header["seconds"] > 0
        assert done.header["started"].endswith("+00:00")

    @pytest.mark.nightly
    @pytest.mark.parametrize("options", [(), ("-n2",)], ids=["alone", "xdist"])
    def test_plain_pytest_says_the_same(self, project, options):
        done = project.run("pytest", "specs", "--opcheck-check=vmap", "--opcheck-report-json=report.json", *options)
        assert done.header["command"][:2] == ["pytest", "specs"]
        assert done.header["selection"] == {"check": ["vmap"], "paths": ["specs"]}
        assert (done.header["engine"], done.header["complete"]) == ("batched", True)
        assert done.header["cases"] == len(done.records)
        assert done.header["planned"]
        assert done.header["specs"]
        assert done.header["devices"] == ["cpu"]

    def test_a_run_that_stops_early_is_not_complete(self, cli, plain_pytest):
        done = cli(*RUN, "-x")
        assert (done.header["complete"], done.header["cases"]) == (False, 5)
        done = plain_pytest("specs", "-x", "--opcheck-check=backward", "--opcheck-report-json=report.json")
        assert (len(done.records), done.header["complete"]) == (1, False)

    def test_nor_is_one_that_could_not_collect_a_file(self, project, plain_pytest):
        project.write("specs/mistake.toml", "[[operator]]\nname = 3\n")
        options = ("--continue-on-collection-errors", "--opcheck-check=backward", "--opcheck-report-json=report.json")
        done = plain_pytest("specs", *options)
        assert (len(done.records), done.header["complete"], done.header["cases"]) == (3, False, None)

    def test_cases_by_id_are_the_selection(self, cli):
        done = cli("run", f"specs/good.toml::{DOUBLE}", "--report-json=report.json")
        assert done.header["selection"] == {"paths": [f"specs/good.toml::{DOUBLE}"]}


class TestRecords:
    def test_a_failure_is_at_its_sample_and_a_success_at_its_operator(self, cli, project):
        project.write("specs/bad.toml", (project.folder / "specs/bad.toml").read_text() + SAMPLES)
        done = cli(*RUN, "specs")
        places = {name: (one["file"], one["line"], one["column"], one["toml"]) for name, one in done.records.items()}
        assert places[DOUBLE] == ("specs/good.toml", 8, 12, "")
        assert places[WRONG] == ("specs/bad.toml", 11, 3, "{ args = [{ shape = [3] }] }")

    def test_files_are_relative_to_the_root_of_the_project(self, cli, project, monkeypatch):
        monkeypatch.chdir(project.folder / "specs")
        done = cli("run", "good.toml", "--check=backward", "--report-json=../report.json")
        assert {one["file"] for one in done.records.values()} == {"specs/good.toml"}
        assert done.header["selection"]["paths"] == ["specs/good.toml"]

    def test_each_can_be_run_again(self, cli):
        record = cli(*RUN).records[WRONG]
        assert record["rerun"] == f"opcheck run 'specs/bad.toml::{WRONG}'"


SAMPLES = """
samples = [
  { args = [{ shape = [3] }] },
]
"""


@pytest.fixture
def changed(kept):
    """Two reports: one operator becomes wrong, one is mended, and one case is lost."""
    kept("old.json")
    change("demo.py", *MENDED)
    change("demo.py", *BROKEN)
    change("specs/good.toml", LOST)
    kept("new.json")


class TestDiff:
    def test_a_regression_a_mended_failure_and_a_lost_case_are_found(self, changed, cli):
        done = cli("report", "diff", "old.json", "new.json")
        told = done.out.splitlines()
        assert told[0] == "newly failing (did not fail before, or is new): 1 case"
        assert told[1].startswith(f"  {DOUBLE}: passed -> failed: backward: ")
        assert f"  {INPLACE}: passed" in told
        mended = told.index("mended (failed before, expected or not): 1 case")
        assert told[mended + 1] == f"  {WRONG}: failed -> passed"
        assert done.code == 1

    def test_nothing_changed_is_success(self, kept, cli):
        kept("old.json")
        done = cli("report", "diff", "old.json", "old.json")
        assert done.out == "5 cases in both reports, 1 of them still failing: nothing has changed\n"
        assert done.code == 0

    def test_a_failure_that_is_mended_is_success(self, changed, kept, cli):
        assert cli("report", "diff", "new.json", "old.json").code == 1
        change("demo.py", *BROKEN[::-1])
        kept("mended.json")
        done = cli("report", "diff", "new.json", "mended.json")
        assert done.code == 0, done.out

    def test_a_loss_may_be_meant(self, kept, cli):
        kept("old.json")
        change("specs/good.toml", LOST)
        kept("new.json")
        assert cli("report", "diff", "old.json", "new.json").code == 1
        assert cli("report", "diff", "old.json", "new.json", "--allow=gone").code == 0
        assert cli("report", "diff", "old.json", "new.json", "--allow=newly-skipped").code == 1

    def test_new_failures_can_be_annotated(self, changed, cli):
        done = cli("report", "diff", "old.json", "new.json", "--github-annotations")
        (line,) = [line for line in done.out.splitlines() if line.startswith("::error ")]
        assert line.startswith("::error file=specs/good.toml,line=5,col=13,title=failed%3A demo.double%3A%3Abackward")
        assert WRONG not in line


class TestReportsThatAreNotWhole:
    def test_one_that_is_cut_off_is_read_and_never_shows_that_all_is_well(self, kept, cli):
        kept("old.json")
        Path("cut.json").write_text(Path("old.json").read_text().rpartition('"outcome"')[0])
        for order in (("old.json", "cut.json"), ("cut.json", "old.json")):
            done = cli("report", "diff", *order, "--allow=gone")
            assert "could not be read: cut.json: line 6 is cut off" in done.out
            assert "did not come to its end: it has 4 cases" in done.out
            assert "4 cases in both reports" in done.out
            assert done.code == 1
        assert "This report is incomplete" in cli("report", "markdown", "cut.json").out
        done = cli("report", "merge", "cut.json", "-o", "again.json")
        assert (done.code, done.err[:12]) == (1, "incomplete: ")
        assert sum("id" in line for line in lines(Path("again.json"))) == 4
        again = cli("report", "merge", "again.json", "-o", "more.json")
        assert (again.code, again.err) == (1, done.err)

    def test_reports_may_be_put_one_after_another(self, kept, cli):
        for number in (1, 2):
            kept(f"{number}.json", f"--shard={number}/2")
        Path("all.json").write_text(Path("1.json").read_text() + Path("2.json").read_text())
        kept("whole.json")
        done = cli("report", "diff", "whole.json", "all.json")
        assert (done.code, done.out[:24]) == (0, "5 cases in both reports,")

    def test_a_newer_minor_version_is_read_and_a_newer_major_one_is_not(self, kept, cli):
        kept("old.json")
        newer = lines(Path("old.json"))
        newer[0] |= {"schema": "2.7", "weather": "fine"}
        newer[1]["weather"] = "fine"
        write_lines(Path("new.json"), newer)
        assert cli("report", "diff", "old.json", "new.json").code == 0
        newer[0]["schema"] = "3.0"
        write_lines(Path("new.json"), newer)
        done = cli("report", "diff", "old.json", "new.json")
        assert done.err == "new.json: is of version 3.0 of the format; expected 2.x: update opcheck to read it\n"
        assert (done.code, done.out) == (2, "")

    def test_a_shard_that_is_missing_is_told(self, kept, cli):
        kept("old.json")
        part = lines(Path("old.json"))
        part[0]["shard"] = "1/2"
        write_lines(Path("part.json"), part)
        done = cli("report", "merge", "part.json", "-o", "all.json")
        assert done.err.startswith("incomplete: of the run with torch ")
        assert done.err.endswith(", shard 2/2 is missing\n")
        assert done.code == 1
        assert cli("report", "diff", "old.json", "all.json").code == 1


class TestDevices:
    @pytest.fixture
    def merged(self, project, kept, cli):
        """The reports of two devices, in one."""
        project.write("npu.toml", NPU)
        profile = ("--device-profile=npu.toml",)
        kept("cpu.json", "--device=cpu", *profile)
        kept("npu.json", "--device=npu", *profile)
        done = cli("report", "merge", "cpu.json", "npu.json", "-o", "all.json")
        assert done.out == "wrote all.json: 10 cases of 2 runs\n"
        assert done.code == 0
        return lines(Path("all.json"))

    def test_both_are_there(self, merged):
        assert [line["devices"] for line in merged if "schema" in line] == [["cpu"], ["npu"]]
        assert [line["device"] for line in merged if "id" in line] == ["cpu"] * 5 + ["npu"] * 5

    def test_they_equal_a_run_on_both(self, merged, kept, cli):
        both = kept("both.json", "--device=cpu,npu", "--device-profile=npu.toml")
        assert {one["id"]: one["outcome"] for one in merged if "id" in one} == both.outcomes
        assert cli("report", "diff", "both.json", "all.json").code == 0

    def test_a_device_that_is_lost_is_a_regression(self, merged, cli):
        done = cli("report", "diff", "all.json", "cpu.json")
        assert "gone (not there any more): 5 cases" in done.out
        assert done.code == 1

    def test_the_same_twice_is_refused_and_names_both_files(self, merged, cli):
        done = cli("report", "merge", "all.json", "npu.json", "-o", "more.json")
        assert done.err.splitlines()[0].endswith("in both all.json and npu.json")
        assert done.code == 2
        assert not Path("more.json").exists()


class TestAgainst:
    def test_known_failures_alone_are_success_and_are_not_told(self, kept, cli):
        assert kept("old.json").code == 1
        done = cli(*RUN[:2], "--against=old.json")
        assert WRONG not in done.out
        assert "5 cases in both reports, 1 of them still failing: nothing has changed" in done.out.splitlines()
        assert done.code == 0

    def test_a_new_failure_is_told_with_its_message_and_a_mended_one_too(self, kept, cli):
        kept("old.json")
        change("demo.py", *BROKEN)
        change("demo.py", *MENDED)
        done = cli("run", "--check=backward", "--against=old.json")
        assert f"newly failing (did not fail before, or is new): 1 case\n  {DOUBLE}: passed -> failed" in done.out
        assert f"run just this: opcheck run 'specs/good.toml::{DOUBLE}'" in done.out
        assert f"mended (failed before, expected or not): 1 case\n  {WRONG}: failed -> passed\n" in done.out
        assert done.code == 1

    @pytest.mark.parametrize("options", [("-k", "wrong"), ("specs/bad.toml",), ("--operator=demo.wrong",)])
    def test_what_is_not_selected_is_not_missed(self, kept, cli, options):
        kept("old.json")
        done = cli("run", "--check=backward", *options, "--against=old.json")
        assert "gone" not in done.out
        assert "not compared: 4 cases on cpu that this run did not select" in done.out
        assert done.code == 0, done.out

    def test_what_the_specs_have_no_longer_is_missed_whatever_is_selected(self, kept, cli):
        kept("old.json")
        change("specs/good.toml", LOST)
        for options in ((), ("-k", "double"), ("specs/good.toml",)):
            done = cli("run", "--check=backward", *options, "--against=old.json")
            assert f"  {INPLACE}: passed" in done.out.splitlines()
            assert done.code == 1
        assert cli("run", "specs/bad.toml", "--check=backward", "--against=old.json").code == 0

    def test_a_file_that_is_gone_takes_its_cases_along(self, kept, cli):
        kept("old.json")
        Path("specs/good.toml").unlink()
        done = cli("run", "--check=backward,variants", "--against=old.json")
        assert "gone (not there any more): 3 cases" in done.out
        assert done.code == 1

    @pytest.mark.nightly
    def test_workers_do_the_same_and_write_the_report(self, kept, project):
        kept("old.json")
        done = project.run("opcheck", *RUN, "-n2", "--against=old.json")
        assert (done.code, len(done.records)) == (0, 5)
        assert "nothing has changed" in done.out

    def test_a_run_that_is_interrupted_is_no_success(self, kept, cli):
        kept("old.json")
        change("demo.py", "def double(x):", "def double(x):\n    os.kill(os.getpid(), 2)  # an interrupt")
        done = cli(*RUN[:2], "--against=old.json")
        assert done.code == 2
        assert "the new report: the run with torch" in done.out

    def test_requests_that_make_no_sense_are_refused(self, kept, cli):
        assert cli("run", "--against=none.json").err == "none.json: cannot be read: No such file or directory\n"
        kept("old.json")
        done = cli("run", "-x", "--against=old.json")
        assert (done.code, done.err) == (
            2, "opcheck: -x cannot be used with --against: it would stop at failures that the old report already has\n"
        )  # fmt: skip


class TestOtherForms:
    def test_annotations_of_a_run_are_those_of_its_report(self, kept, cli):
        done = kept("old.json", "--github-annotations")
        (line,) = [line for line in done.out.splitlines() if line.startswith("::")]
        assert cli("report", "github-annotations", "old.json").out.splitlines() == [line]
        assert line.startswith("::error file=specs/bad.toml,line=5,col=13,title=failed%3A demo.wrong")
        assert cli("report", "github-annotations", "old.json", "--folder=sub").out.startswith("::error file=sub/specs/")

    def test_junit_has_the_names_of_pytest(self, kept, cli):
        own = kept("old.json", "--junitxml=report.xml").junit
        done = cli("report", "junit", "old.json", "-o", "again.xml")
        assert done.code == 0, done.err
        Path("again.xml").rename("report.xml")
        assert names(Project(Path.cwd()).junit()) == names(own)
        assert len(own) == 5

    def test_markdown_has_the_counts(self, kept, cli):
        kept("old.json")
        done = cli("report", "markdown", "old.json")
        assert done.out.startswith("# opcheck: 1 of 5 cases failed\n")
        assert done.code == 0

    def test_a_page_is_made_by_the_module_for_it(self, kept, cli, monkeypatch):
        import sys
        from types import SimpleNamespace

        kept("old.json")
        page = SimpleNamespace(rendered=lambda report: f"{len(report.records)} cases")
        monkeypatch.setitem(sys.modules, "opcheck.report.html", page)
        assert cli("report", "html", "old.json", "-o", "page.html").code == 0
        assert Path("page.html").read_text() == "5 cases"


def names(junit):
    return sorted((case["classname"], case["name"]) for case in junit)
