"""`opcheck coverage` in a project of somebody."""

from __future__ import annotations

import json

MODULE = """
import torch

__all__ = ["double", "index", "square", "told"]

def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x

def double_(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(2)

def square(x: torch.Tensor) -> torch.Tensor:
    return x * x

def index(x: torch.Tensor) -> torch.Tensor:
    return x.detach().argmax()

def told(made_by_hand):
    raise TypeError("expected a Recipe")
"""
SPEC = """
[[operator]]
name    = "covered.double"
samples = [{ args = [{ shape = [2] }] }]
"""


def asked(cli, project, *words):
    project.write("pyproject.toml", '[tool.opcheck]\nmodules = ["torch", "covered"]\nspecs = ["specs/covered.toml"]\n')
    project.write("covered.py", MODULE)
    project.write("specs/covered.toml", SPEC)
    return cli("coverage", *words)


def test_it_says_which_functions_have_no_spec_and_where_one_would_go(cli, project):
    done = asked(cli, project, "covered", "--formulas")
    assert done.code == 0
    unknown = done.out.splitlines()[3]
    assert done.out.splitlines() == [
        "module   functions  with a spec  without  not known  share",
        "covered          3            1        1          1  0.333",
        "no spec: covered.square (nearest: specs/covered.toml)",
        unknown,
        "without a spec, and not differentiable: 1 (--json lists them)",
        "share 0.333: 1 of 3 differentiable functions have a spec (1 not known to be differentiable)",
        "autograd formulas that the samples reach: 1 (MulBackward)",
    ]
    assert unknown.startswith("not known: covered.told (nearest: specs/covered.toml): ")
    assert "expected a Recipe" in unknown


def test_a_share_may_be_wanted(cli, project):
    low = asked(cli, project, "covered", "specs/covered.toml", "--json", "--fail-under", "0.5")
    assert low.code == 1
    assert "the share 0.333 is below 0.5" in low.err
    result = json.loads(low.out)
    assert result["share"] == 1 / 3
    (module,) = result["modules"]
    assert (module["module"], module["functions"], module["with_spec"]) == ("covered", 3, ["covered.double"])
    assert module["without"] == [{"function": "covered.square", "nearest": "specs/covered.toml"}]
    assert [one["function"] for one in module["not_known"]] == ["covered.told"]
    assert module["not_differentiable"] == [{"function": "covered.index", "why": "no output requires grad"}]
    enough = asked(cli, project, "covered", "specs/covered.toml", "--fail-under", "0.3")
    assert enough.code == 0


def test_mistakes_are_answered_by_what_was_meant(cli, project):
    unknown = asked(cli, project, "covered.doubel", "specs/covered.toml")
    assert (unknown.code, unknown.out) == (2, "")
    assert 'did you mean "covered.double"?' in unknown.err
    missing = asked(cli, project, "nowhere", "specs/covered.toml")
    assert (missing.code, missing.out) == (2, "")
    assert "nowhere" in missing.err
    share = asked(cli, project, "covered", "--fail-under", "95")
    assert share.code == 2
    assert '"95" is not a share; expected a number from 0 to 1' in share.err


def test_only_the_module_is_required(cli):
    assert cli("coverage").err.endswith("error: the following arguments are required: MODULE\n")


def test_no_time_limit_leaves_the_time_for_a_guess(cli, project):
    limited, unlimited = (asked(cli, project, "covered", *words) for words in ([], ["--timeout=0"]))
    assert unlimited.out == limited.out
