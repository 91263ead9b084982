"""Merging reports, and why one is not the whole picture."""

from __future__ import annotations

import pytest
from report_files import record, report, run

from opcheck.report.content import LeftOut
from opcheck.report.merge import gaps, merge
from opcheck.spec.problems import RequestError

THE_RUN = "of the run with torch 2.13.0, python 3.11.7 on Linux x86_64,"


def merged(*reports):
    return merge((f"{number}.json", one) for number, one in enumerate(reports))


def shards(*numbers, of=3, **keys):
    """Return the reports of some shards, each with two cases."""
    return [
        report(
            record(f"a{number}"), record(f"b{number}", "failed"),
            runs=[run(shard=f"{number}/{of}", command=["opcheck", "run", "--shard", f"{number}/{of}", "-n2"], **keys)],
        )
        for number in numbers
    ]  # fmt: skip


def test_runs_and_their_records_stay_together():
    found = merged(
        report(record("a"), record("b", run=1), runs=[run(seed=1), run(seed=2)]),
        report(record("c"), runs=[run(seed=3)]),
    )
    assert [(one.id, run.seed) for run in found.runs for one in run.records] == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize(
    "keys",
    [
        {"torch": "2.14.1"}, {"python": "3.12.0"}, {"platform": "Linux aarch64"}, {"opcheck": "0.2"}, {"seed": 1},
        {"engine": "torch"}, {"overrides": {"eps": 0.1}}, {"details": {"cpu": "other"}},
    ],
    ids=lambda keys: next(iter(keys)),
)  # fmt: skip
def test_a_case_may_be_there_twice_if_its_runs_differ(keys):
    found = merged(report(record("a")), report(record("a", "failed"), runs=[run(**keys)]))
    assert [one.outcome for one in found.records] == ["passed", "failed"]


@pytest.mark.parametrize("keys", [{}, {"started": "later"}, {"seconds": 9.0}, {"selection": {"k": ["a"]}}])
def test_else_both_files_are_named(keys):
    with pytest.raises(RequestError) as caught:
        merged(report(record("a"), record("x")), report(record("c"), record("a"), runs=[run(**keys)]))
    assert str(caught.value).splitlines() == [
        "opcheck: a: in both 0.json and 1.json",
        "opcheck: cannot merge reports of the same configuration: the versions, platform, device, engine, seed and "
        "overrides are equal; pass only one of them",
    ]


def test_the_details_of_another_device_do_not_tell_runs_apart():
    with pytest.raises(RequestError):
        merged(report(record("a")), report(record("a"), runs=[run(devices=["cpu", "cuda"], details={"cuda": "A100"})]))


def test_many_cases_that_are_there_twice_are_counted():
    many = report(*(record(str(number)) for number in range(20)))
    with pytest.raises(RequestError, match="and 15 more duplicate cases"):
        merged(many, many)


class TestShards:
    def test_all_of_them_are_one_run(self):
        found = merged(*shards(2, 3, 1))
        assert [one.id for one in found.records] == ["a1", "b1", "a2", "b2", "a3", "b3"]
        (whole,) = found.runs
        assert (whole.shard, whole.seconds, whole.complete) == ("", 4.5, True)
        assert whole.command == ["opcheck", "run", "-n2"]
        assert gaps(found) == []

    @pytest.mark.parametrize("words", [["--shard=1/1"], ["--opcheck-shard", "1/1"], ["--opcheck-shard=1/1"]])
    def test_the_command_is_that_of_the_whole(self, words):
        found = merged(report(record("a"), runs=[run(shard="1/1", command=["pytest", *words, "specs"])]))
        assert found.runs[0].command == ["pytest", "specs"]

    def test_what_is_missing_is_told_and_the_others_stay_apart(self):
        found = merged(*shards(1, 4, of=4))
        assert [one.shard for one in found.runs] == ["1/4", "4/4"]
        assert gaps(found) == [f"{THE_RUN} shards 2/4, 3/4 are missing"]

    def test_they_can_be_merged_in_several_steps(self):
        found = merged(merged(*shards(1, 2)), *shards(3))
        assert (len(found.runs), gaps(found)) == (1, [])

    def test_one_that_did_not_end_makes_the_run_incomplete_and_is_named(self):
        found = merged(*shards(1, 3), *shards(2, complete=False, seconds=None))
        assert len(found.records) == 6
        begin = "shard 2/3 of the run with torch 2.13.0, begun 2026-01-01T00:00:00+00:00,"
        assert gaps(found) == [f"{begin} did not come to its end: it has 2 cases"]

    @pytest.mark.parametrize(
        "keys", [{"torch": "2.14.1"}, {"seed": 1}, {"selection": {"check": ["vmap"]}}, {"engine": "torch"}]
    )
    def test_those_of_another_run_are_no_help(self, keys):
        found = merged(*shards(1, 2), *shards(3, **keys))
        assert len(found.runs) == 3
        assert len(gaps(found)) == 2

    def test_one_of_another_count_is_no_help(self):
        assert len(gaps(merged(*shards(1, 2), *shards(3, of=4)))) == 2

    def test_what_was_left_out_of_the_whole_counts_once(self):
        rows = [LeftOut(device="npu", reason="deny", cases=5)]
        assert merged(*shards(1, 2, 3, left_out=rows)).runs[0].left_out == rows

    def test_a_shard_without_cases_on_a_device_does_not_know_its_details(self):
        known = {"cuda": "A100"}
        found = merged(*shards(1, devices=["cuda"]), *shards(2, 3, devices=["cuda"], details=known))
        assert [(one.devices, one.details) for one in found.runs] == [(["cuda"], known)]

    def test_those_on_different_devices_stay_apart(self):
        first, second = ({"cpu": name} for name in ("one", "two"))
        found = merged(*shards(1, 2, details=first), *shards(3, details=second))
        assert (len(found.runs), gaps(found)) == (3, [])

    def test_a_shard_of_one_device_does_not_stand_for_that_of_another(self):
        first, second = ({"cpu": name} for name in ("one", "two"))
        found = merged(*shards(1, 2, 3, details=first), *shards(1, 3, details=second))
        assert [one.shard for one in found.runs] == ["", "1/3", "3/3"]
        assert gaps(found) == [f"{THE_RUN} shard 2/3 is missing"]

    def test_a_case_that_fell_between_them_is_missed(self):
        found = merged(*shards(1, 2, 3, cases=7))
        assert len(found.runs) == 3
        assert gaps(found) == [
            f"{THE_RUN} the shards contain 6 of 7 cases in total: they were split with different --durations; "
            "rerun all shards with the same file"
        ]
        whole = merged(*shards(1, 2, 3, cases=6))
        assert (len(whole.runs), whole.runs[0].cases, gaps(whole)) == (1, 6, [])

    @pytest.mark.parametrize(
        ("ours", "theirs", "what"),
        [
            (
                {"cases": 6, "planned": "a"},
                {"cases": 8, "planned": "b"},
                "selected different cases (1/3, 2/3 and 3/3); rerun them with the same options",
            ),
            (
                {"cases": 6, "planned": "a"},
                {"cases": 6, "planned": "b"},
                "selected different cases (1/3, 2/3 and 3/3); rerun them with the same options",
            ),
            (
                {"planned": "a", "specs": "a"},
                {"planned": "b", "specs": "b"},
                "were planned from different specs (1/3, 2/3 and 3/3); rerun them from one commit",
            ),
        ],
        ids=["count", "cases", "specs"],
    )
    def test_shards_of_other_specs_are_no_run(self, ours, theirs, what):
        found = merged(*shards(1, 2, **ours), *shards(3, **theirs))
        assert gaps(found) == [f"{THE_RUN} the shards {what}"]

    def test_the_format_before_digests_is_no_difference(self):
        found = merged(*shards(1, 2, planned="a", specs="b"), *shards(3))
        assert (len(found.runs), gaps(found)) == (1, [])

    def test_what_a_missing_shard_has_is_counted(self):
        found = merged(*shards(1, 2, cases=11))
        assert gaps(found) == [f"{THE_RUN} shard 3/3 is missing, with 7 of 11 cases"]

    @pytest.mark.parametrize(
        ("keys", "what"),
        [
            ({"seed": 1}, "seed"),
            ({"overrides": {"eps": 0.1}}, "overrides"),
            ({"torch": "2.14.1", "selection": {"k": ["a"]}}, "torch and selection"),
        ],
    )
    def test_what_tells_a_shard_from_the_others_is_named(self, keys, what):
        first, _ = gaps(merged(*shards(1, 2), *shards(3, **keys)))
        assert first == (
            f"{THE_RUN} shard 3/3 is missing; shard 3/3 cannot fill the gap: it comes from a run with a "
            f"different {what}; rerun it with the same settings"
        )


def test_a_whole_report_has_none():
    assert gaps(report(record("a"))) == []


def test_one_without_records():
    assert gaps(report()) == ["it has no record of any case"]
    assert gaps(report(runs=[])) == ["it has no record of any case"]


def test_runs_that_were_interrupted_or_killed():
    runs = [run(complete=False), run(complete=False, seconds=None), run(complete=False, shard="1/1")]
    begin = "the run with torch 2.13.0, begun 2026-01-01T00:00:00+00:00,"
    assert gaps(report(*(record("a", run=index) for index in range(3)), runs=runs)) == [
        f"{begin} has no record of some of its cases",
        f"{begin} did not come to its end: it has 1 case",
        f"shard 1/1 of {begin} has no record of some of its cases",
    ]


def test_a_run_without_a_record_names_its_devices():
    early = run(complete=False, devices=["cpu", "npu"])
    empty = run(cases=0, devices=["npu"])  # as an opcheck wrote it that took nothing for all
    tail = "with torch 2.13.0, begun 2026-01-01T00:00:00+00:00,"
    assert gaps(report(record("a"), runs=[run(), early, empty])) == [
        f"the run on cpu, npu {tail} ended before its cases were known",
        f"the run on npu {tail} has no record of any case",
    ]


def test_files_that_could_not_be_read():
    found = report(record("a"), unread=["b.json: is empty"])
    assert gaps(found) == ["could not be read: b.json: is empty"]


def test_missing_shards():
    (found,) = gaps(report(record("a"), runs=[run(shard="5/5")]))
    assert found == (
        "of the run with torch 2.13.0, python 3.11.7 on Linux x86_64, shards 1/5, 2/5, 3/5, 4/5 are missing"
    )


def test_records_that_are_not_there():
    (found,) = gaps(report(record("a"), runs=[run(cases=2)]))
    assert found.endswith(", has records of 1 of 2 cases")
    assert gaps(report(record("a"), runs=[run(cases=1)])) == []
