"""No verdict depends on the order of cases, on -n, --shard, -k, or on the seed of hashing."""

import re

import pytest

FEW = ("--device=cpu", "--dtype=float64", "--report-json=report.json")
AGAIN = re.compile(r"cases ran in random order; repeat it with --(?:opcheck-)?order[= ](\d+)")


@pytest.fixture(scope="module")
def known():
    """What a run in the usual order says of each case."""
    return {}


@pytest.fixture
def usual(cli, known):
    if not known:
        known.update(told(cli("run", *FEW)))
    return known


def told(run):
    return {name: (record["outcome"], record["reason"]) for name, record in run.records.items()}


def test_a_random_order_is_said_and_given_again_and_changes_no_verdict(cli, usual):
    run = cli("run", *FEW, "--order", "random")
    (number,) = AGAIN.findall(run.out)
    assert told(run) == usual
    assert list(run.records) != list(usual)
    again = cli("run", *FEW, "--order", number)
    assert list(again.records) == list(run.records)
    assert list(cli("run", *FEW, "--order", str(int(number) + 1)).records) != list(run.records)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", ["1", "2"])
def test_neither_processes_nor_the_seed_of_hashing_change_a_verdict(project, usual, monkeypatch, seed):
    monkeypatch.setenv("PYTHONHASHSEED", seed)
    run = project.run("opcheck", "run", *FEW, "--order", "random", "-n", "2")
    assert run.code == 1, run.err
    assert told(run) == usual


def test_shards_stay_what_they_are(cli, usual):
    plain, moved = ([cli("run", *FEW, f"--shard={k}/3", *more) for k in (1, 2, 3)] for more in ((), ("--order=7",)))
    assert [set(run.records) for run in moved] == [set(run.records) for run in plain]
    assert {name: case for run in moved for name, case in told(run).items()} == usual


def test_an_expression_chooses_and_changes_no_verdict(cli, usual):
    run = cli("run", *FEW, "--order=3", "-k", "backward or context")
    assert told(run) == {name: usual[name] for name in run.records}
    assert 1 < len(run.records) < len(usual)


@pytest.mark.parametrize(
    "processes", [(), pytest.param(("-n2",), marks=pytest.mark.nightly)], ids=["one process", "workers"]
)
def test_plain_pytest_has_it_too(plain_pytest, project, usual, processes):
    asked = ("specs", "--opcheck-device=cpu", "--opcheck-dtype=float64", "--opcheck-report-json=report.json")
    project.write("test_own.py", "def test_first():\n    pass\n\ndef test_second():\n    pass\n")
    run = plain_pytest(*asked, "test_own.py", "--opcheck-order=random", *processes)
    assert len(AGAIN.findall(run.out)) == 1
    assert told(run) == usual
    assert "Different tests were collected" not in run.out


@pytest.mark.parametrize("text", ["reverse", "-1", "1.5"])
def test_another_order_is_a_mistake(cli, text):
    run = cli("run", f"--order={text}")
    assert run.code == 2
    assert f'"{text}" is not an order; expected random, or a whole number of at least 0' in run.err


def test_tasks_of_ray_have_no_order(cli):
    run = cli("run", "--order=1", "--ray", "-n", "1")
    assert run.code == 2
    assert "--order cannot be used with --ray" in run.err
