"""Loading specs: all mistakes that can be found without torch come at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.plan.loading import examine, load
from opcheck.settings import Settings
from opcheck.spec import SpecError

SIN = '[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [2] }] }]\n'
EXPECT = 'expect = [{ when = { check = "%s" }, outcome = "fail", reason = "known" }]\n'
BROKEN = SIN.replace("sin", "cos") + "reseed = 1\n"


@pytest.fixture(autouse=True)
def _specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.toml").write_text(SIN + EXPECT % "vmap")
    Path("unknown.toml").write_text(SIN.replace("sin", "tan") + EXPECT % "bakward")
    Path("broken.toml").write_text(BROKEN)


def lines_of(paths: list[str], settings: Settings | None = None) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(paths, settings)
    return [line.split(";")[0] for line in str(caught.value).splitlines()]


def test_good_specs_give_their_library() -> None:
    assert [operator.id for operator in load(["good.toml"])] == ["torch.sin"]


def test_mistakes_of_loading_and_of_planning_come_at_once() -> None:
    assert lines_of(["unknown.toml", "broken.toml"]) == [
        "broken.toml:4:10: wrong type for reseed: an integer (1)",
        f'unknown.toml:4:{len("expect = [{ when = { check = ") + 1}: unknown check "bakward"',
    ]


def test_mistakes_in_device_profiles_come_with_those_of_the_specs() -> None:
    Path("devices").mkdir()
    Path("devices/npu.toml").write_text('[device]\nname = "npu"\nlack = ["float64"]\n')
    settings = Settings.model_validate({"devices": ["devices", "nowhere"]})
    assert lines_of(["broken.toml"], settings) == [
        "broken.toml:4:10: wrong type for reseed: an integer (1)",
        'devices/npu.toml:3:1: unknown key "lack"',
        "nowhere:1:1: no such folder",
    ]


def test_the_limits_of_the_project_hold() -> None:
    (line,) = lines_of(["good.toml"], Settings.model_validate({"modules": ["numpy"]}))
    assert line.startswith('good.toml:2:8: "torch.sin"')


def test_operators_without_mistakes_are_returned_beside_the_mistakes_of_others() -> None:
    library, problems = examine(["good.toml", "broken.toml"], Settings())
    assert [operator.id for operator in library] == ["torch.sin"]
    assert {problem.file for problem in problems} == {"broken.toml"}
