"""`opcheck report` and `opcheck schema report`, from reports made by hand."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import pytest
from report_files import lines, record, report, run

from opcheck.report.store import read, write


@pytest.fixture
def files(project):
    """Return a function that writes reports under some names."""

    def write_reports(**reports):
        for name, one in reports.items():
            write(one, Path(f"{name}.json"))

    return write_reports


class TestSchema:
    def test_each_line_of_a_report_keeps_to_it(self, cli, files):
        files(a=report(record("a", "failed", fields={"x": 1}), record("b")))
        schema = json.loads(cli("schema", "report").out)
        jsonschema.Draft202012Validator.check_schema(schema)
        for line in lines(Path("a.json")):
            jsonschema.validate(line, schema)

    def test_it_is_written_but_not_installed(self, cli):
        assert cli("schema", "report", "--output=s.json").code == 0
        assert "Outcome" in json.loads(Path("s.json").read_text())["$defs"]
        done = cli("schema", "report", "--install")
        assert (done.code, done.err.partition(";")[0]) == (
            2, "opcheck: --install is for the schema of specs, which editors use"
        )  # fmt: skip


class TestMerge:
    def test_it_says_what_it_wrote(self, cli, files):
        files(a=report(record("a"), record("b")), b=report(record("a"), runs=[run(torch="2.14.1")]))
        done = cli("report", "merge", "a.json", "b.json", "-o", "more/all.json")
        assert (done.code, done.out, done.err) == (0, "wrote more/all.json: 3 cases of 2 runs\n", "")
        assert [one.torch for one in read(Path("more/all.json")).runs] == ["2.13.0", "2.14.1"]

    def test_an_input_may_be_the_output(self, cli, files):
        files(a=report(record("a")), b=report(record("b")))
        assert cli("report", "merge", "a.json", "b.json", "-o", "a.json").code == 0
        assert len(read(Path("a.json")).records) == 2

    def test_a_case_that_is_there_twice_is_refused_and_nothing_is_written(self, cli, files):
        files(a=report(record("a")))
        done = cli("report", "merge", "a.json", "a.json", "-o", "all.json")
        assert done.err.splitlines()[0] == "opcheck: a: in both a.json and a.json"
        assert (done.code, Path("all.json").exists()) == (2, False)

    def test_an_output_that_cannot_be_written_is_told(self, cli, files):
        files(a=report(record("a")))
        done = cli("report", "merge", "a.json", "-o", "demo.py/all.json")
        assert done.code == 2
        assert done.err.startswith("opcheck: [Errno ")

    def test_missing_shards_are_told_and_the_rest_is_written(self, cli, files):
        files(a=report(record("a"), runs=[run(shard="1/3")]), c=report(record("c"), runs=[run(shard="3/3")]))
        done = cli("report", "merge", "a.json", "c.json", "-o", "all.json")
        assert done.code == 1
        assert done.err.endswith(", shard 2/3 is missing\n")
        files(b=report(record("b"), runs=[run(shard="2/3")]))
        done = cli("report", "merge", "all.json", "b.json", "-o", "all.json")
        assert (done.code, done.out, done.err) == (0, "wrote all.json: 3 cases of 1 run\n", "")

    @pytest.mark.parametrize("content", ["", "{", "[]", "no JSON"])
    def test_a_file_without_sense_costs_its_own_cases_only(self, cli, files, content):
        parts = {f"s{n}": report(record(f"case{n}"), runs=[run(shard=f"{n}/3", cases=3)]) for n in (1, 2, 3)}
        files(**parts)
        Path("s2.json").write_text(content)
        done = cli("report", "merge", "s1.json", "s2.json", "s3.json", "-o", "all.json")
        assert done.code == 1
        unread, shard = done.err.splitlines()
        assert unread.startswith("incomplete: could not be read: s2.json: ")
        assert shard.endswith(", shard 2/3 is missing, with 1 of 3 cases")
        assert [one.id for one in read(Path("all.json")).records] == ["case1", "case3"]
        assert "s2.json" in cli("report", "markdown", "all.json").out
        assert cli("report", "diff", "all.json", "all.json").code == 1
        again = cli("report", "merge", "all.json", "-o", "again.json")
        assert (again.code, again.err) == (1, done.err)

    def test_where_none_can_be_read_nothing_is_written(self, cli):
        Path("a.json").write_text("")
        done = cli("report", "merge", "a.json", "-o", "all.json")
        assert (done.code, done.err, Path("all.json").exists()) == (2, "a.json: is empty\n", False)


class TestStreams:
    """What is no file is written to. Replaced, a device would be lost to all of the machine."""

    @pytest.mark.parametrize("link", [False, True], ids=["pipe", "link"])
    @pytest.mark.parametrize("action", ["merge", "junit", "html"])
    def test_a_pipe_remains_one_and_gets_it_all(self, cli, files, action, link):
        files(a=report(record("a"), record("b", "failed")))
        os.mkfifo("pipe")
        if link:
            Path("link").symlink_to("pipe")
        name = "link" if link else "pipe"
        with ThreadPoolExecutor() as pool:
            reader = pool.submit(Path("pipe").read_bytes)
            code = cli("report", action, "a.json", "-o", name).code
            if not stat.S_ISFIFO(Path("pipe").stat().st_mode) or Path(name).is_symlink() != link:
                os.close(os.open("pipe", os.O_RDWR))  # so that the reader ends
            received = reader.result(timeout=60)
        assert code == 0
        assert stat.S_ISFIFO(Path("pipe").stat().st_mode)
        assert Path(name).is_symlink() == link
        assert cli("report", action, "a.json", "-o", "whole").code == 0
        assert received == Path("whole").read_bytes()
        assert received

    @pytest.mark.parametrize("output", ["-", "/dev/stdout"])
    def test_standard_output_goes_on_where_it_is(self, files, project, output):
        files(a=report(record("a")))
        with open("kept", "w") as kept:
            kept.write("before\n")
            kept.flush()
            command = [sys.executable, "-m", "opcheck", "report", "merge", "a.json", "-o", output]
            done = subprocess.run(command, stdout=kept, stderr=subprocess.PIPE, text=True, check=False)
            kept.write("after\n")
        assert done.returncode == 0
        assert "1 case of 1 run" in done.stderr
        first, *lines, last = Path("kept").read_text().splitlines(keepends=True)
        assert (first, last) == ("before\n", "after\n")
        assert "".join(lines) == Path("a.json").read_text()
        assert not Path("-").exists()


class TestDiff:
    def test_exit_codes(self, cli, files):
        files(a=report(record("a"), record("b", "failed")), b=report(record("a", "failed"), record("b")))
        assert cli("report", "diff", "a.json", "a.json").code == 0
        assert cli("report", "diff", "a.json", "b.json").code == 1
        assert cli("report", "diff", "a.json", "c.json").code == 2

    def test_slower_cases_are_told_and_no_regression(self, cli, files):
        files(a=report(record("a", seconds=1)), b=report(record("a", seconds=3)))
        done = cli("report", "diff", "a.json", "b.json", "--slower", "2")
        assert "slower (by more than the factor): 1 case\n  a: 1.00 s, now 3.00 s\n" in done.out
        assert done.code == 0
        assert "slower" not in cli("report", "diff", "a.json", "b.json").out

    @pytest.mark.parametrize("factor", ["0.5", "two", "inf", "nan", "-1"])
    def test_a_factor_is_a_number_of_at_least_one(self, cli, factor):
        done = cli("report", "diff", "a.json", "b.json", f"--slower={factor}")
        assert done.code == 2
        assert f'"{factor}" is not a factor; expected a number of at least 1' in done.err

    def test_reports_without_a_case_in_common_show_nothing(self, cli, files):
        files(a=report(record("a")), b=report(record("b")))
        assert cli("report", "diff", "a.json", "b.json", "--allow=gone").code == 1

    def test_the_help_says_why_what_is_gone_is_a_regression(self, cli):
        told = " ".join(cli("report", "diff", "--help").out.split())
        assert "Missing and skipped cases count because they could hide a regression" in told


@pytest.mark.parametrize("action", [["github-annotations"], ["markdown"], ["junit", "-oa.xml"], ["html", "-oa.html"]])
def test_every_action_tells_an_incomplete_report(cli, files, action):
    files(a=report(record("a"), runs=[run(complete=False, seconds=None)]), whole=report(record("a")))
    done = cli("report", *action, "a.json")
    assert done.code == 1
    assert done.err.startswith("incomplete: the run with torch 2.13.0, begun ")
    assert done.err.endswith(", did not come to its end: it has 1 case\n")
    done = cli("report", *action, "whole.json")
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("action", ["merge", "junit", "html"])
def test_a_folder_is_no_output(cli, files, action):
    files(a=report(record("a")))
    done = cli("report", action, "a.json", "-o", "specs")
    assert (done.code, done.out, done.err) == (2, "", "opcheck: specs is a folder; expected a file\n")


def test_most_annotations_can_be_given(cli, files):
    files(a=report(*(record(str(number), "failed") for number in range(5))))
    lines = cli("report", "github-annotations", "a.json", "--most=2").out.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::error", "::warning"]
    done = cli("report", "github-annotations", "a.json", "--most=-1")
    assert (done.code, done.out) == (2, "")
    assert '"-1" is not a number of annotations; expected a whole number of at least 0' in done.err


def test_what_is_no_report_is_told(cli, project):
    project.write("a.json", "[1")
    project.write("old.json", '{"schema": "1.1",\n"runs": [\n]}')
    project.write("empty.json", "")
    for action in (["markdown"], ["github-annotations"], ["merge", "-oall.json"], ["diff", "a.json"]):
        for name in ("a.json", "old.json", "empty.json", "specs", "no.json"):
            done = cli("report", *action, name)
            assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
            assert done.err.startswith(("a.json: is not a report of opcheck: ", f"{name}: "))


def test_an_unknown_option_of_an_action_names_the_nearest(cli):
    done = cli("report", "diff", "a.json", "b.json", "--slowr", "2")
    assert 'unknown argument "--slowr"; expected one of --slower FACTOR' not in done.err
    assert done.err.endswith('; did you mean "--slower"?\n')
    assert done.code == 2


def test_an_action_is_needed(cli):
    done = cli("report")
    assert done.code == 2
    assert "ACTION" in done.err


class TestFinding:
    def test_one_is_printed_with_what_the_installed_torch_does(self, cli):
        done = cli("report", "finding", "logical-inplace-gradient")
        assert (done.code, done.err) == (0, "")
        assert "\nactual = tensor([1., 1.])\nexpected = tensor([0., 0.])\n" in done.out
        assert "opcheck" not in done.out

    def test_all_are_listed(self, cli):
        lines = cli("report", "finding").out.splitlines()
        assert lines[0].startswith("logical-inplace-gradient: logical_and_, ")
        assert len(lines) > 50

    def test_what_this_torch_refuses_is_no_traceback(self, cli, monkeypatch):
        def refuse(finding):
            raise NotImplementedError("there is no formula")

        monkeypatch.setattr("opcheck.cli.report.observed", refuse)
        done = cli("report", "finding", "pdist-third-derivative")
        assert (done.code, done.out) == (1, "")
        assert done.err.endswith(", it raises NotImplementedError: there is no formula\n")

    def test_what_this_torch_does_not_have_exits_with_1(self, cli, monkeypatch):
        monkeypatch.setattr("opcheck.cli.report.observed", lambda finding: "")
        done = cli("report", "finding", "pdist-third-derivative")
        assert (done.code, "not seen in torch" in done.out) == (1, True)

    def test_an_unknown_one_is_an_error(self, cli):
        done = cli("report", "finding", "logical-inplace-gradients")
        assert (done.code, done.out) == (2, "")
        assert done.err == (
            'opcheck: unknown finding "logical-inplace-gradients"; did you mean "logical-inplace-gradient"?\n'
        )
