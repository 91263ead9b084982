"""`opcheck mutate` in a project of somebody."""

from __future__ import annotations

import json

import pytest

SPEC = """
# What the project is for.
[defaults]
dtypes   = { forward = ["float64"] }
supports = { out = false }

[[operator]]
name    = "demo.double"
samples = [
  { args = [{ shape = [2] }] },  # small
]
"""


def test_survivors_are_said_written_and_gone(cli, project):
    project.write("specs/good.toml", SPEC)
    done = cli("mutate", "specs/good.toml", "--derive", "none", "--prove", "2")
    assert done.code == 0
    assert "a gradient wrong for more than 256 elements would pass: add { args = [{ shape = [257] }] }" in done.out
    assert "2 of 2 mutants agree with the measurement" in done.out
    before = json.loads(cli("mutate", "specs/good.toml", "--derive", "none", "--json").out)
    assert before["score"] < 0.7
    assert before["derive"] == "none"
    (operator,) = before["operators"]
    states = {condition["state"] for condition in operator["conditions"]}
    assert states == {"met", "survived", "unreachable"}
    assert {c["condition"]: c for c in operator["conditions"]}["rank above 3"]["add"].startswith("{ args = [{ shape")

    wrote = cli("mutate", "specs/good.toml", "--derive", "none", "--write")
    assert "specs/good.toml: " in wrote.out
    text = (project.folder / "specs/good.toml").read_text()
    assert "# What the project is for.\n" in text
    assert "{ args = [{ shape = [2] }] },  # small\n" in text
    after = cli("mutate", "specs/good.toml", "--derive", "none", "--json", "--fail-under", "1")
    assert after.code == 0
    assert json.loads(after.out)["score"] == 1
    assert cli("run", "specs/good.toml").code == 0


@pytest.mark.nightly
def test_a_score_may_be_wanted(cli, project):
    project.write("specs/good.toml", SPEC)
    low = cli("mutate", "specs/good.toml", "--derive", "none", "--fail-under", "0.99", "--json")
    assert low.code == 1
    assert "is below 0.99" in low.err
    standard = cli("mutate", "specs/good.toml", "--json")
    assert json.loads(standard.out)["score"] > json.loads(low.out)["score"]


@pytest.mark.nightly
def test_a_proof_needs_an_operator_that_passes(cli):
    done = cli("mutate", "specs/bad.toml", "--prove", "3")
    assert done.code == 2
    assert "--prove found no operator to mutate" in done.err


def test_an_operator_that_is_wrong_as_it_stands_is_not_measured(cli, project):
    before = (project.folder / "specs/bad.toml").read_text()
    done = cli("mutate", "specs/bad.toml", "--derive", "none", "--write")
    assert done.code == 1
    assert "NOT MEASURED: backward fails without a mutation, at the sample 0: mend this first" in done.out
    assert (project.folder / "specs/bad.toml").read_text() == before


def test_mistakes_are_answered_by_what_was_meant(cli, project):
    wrong = cli("mutate", "specs/good.toml", "--operator", "demo.doubel")
    assert (wrong.code, wrong.out) == (2, "")
    assert 'no operator matches "demo.doubel"; did you mean "demo.double"?' in wrong.err
    share = cli("mutate", "--fail-under", "95")
    assert share.code == 2
    assert '"95" is not a share; expected a number from 0 to 1' in share.err
    none = cli("mutate", "-n", "0")
    assert none.code == 2
    assert '"0" is not a number of processes; expected a whole number of at least 1' in none.err
    project.write("specs/bad.toml", SPEC.replace("demo.double", "demo.doubel"))
    missing = cli("mutate", "specs/bad.toml")
    assert missing.code == 2
    assert 'did you mean "demo.double"' in missing.err


def test_a_device_that_is_named_is_the_only_one(cli):
    done = cli("mutate", "specs/good.toml", "--device", "cuda")
    assert (done.code, "the device cuda is not present: " in done.err) == (2, True), done.err
