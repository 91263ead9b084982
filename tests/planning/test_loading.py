"""Loading specs: all mistakes that can be found without torch come at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from opcheck.planning.loading import examine, load
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


def test_what_only_other_versions_of_torch_would_match_is_no_mistake_while_they_have_one() -> None:
    Path("versions.toml").write_text(
        """[defaults]
dtypes    = 1979-05-27
per_torch = { ">=2" = { dtypes = { forward = ["floating"] } } }

[[operator]]
name    = "torch.sin"
samples = [{ args = [{ shape = [2] }] }]
expect  = [{ when = { check = "vmap", dtype = "complex128" }, outcome = "fail", reason = "known" }]
"""
    )
    assert lines_of(["versions.toml"]) == ["versions.toml:2:13: wrong type for dtypes: a date (1979-05-27)"]


def test_mistakes_in_device_profiles_come_with_those_of_the_specs() -> None:
    Path("devices").mkdir()
    Path("devices/npu.toml").write_text('[device]\nname = "npu"\nlack = ["float64"]\n')
    Path("pyproject.toml").write_text('[tool.opcheck]\ndevices = ["devices", "nowhere"]\n')
    settings = Settings.find()
    assert lines_of(["broken.toml"], settings) == [
        "broken.toml:4:10: wrong type for reseed: an integer (1)",
        'devices/npu.toml:3:1: unknown key "lack"',
        'pyproject.toml:2:23: no such folder: "nowhere"',
    ]


def test_the_limits_of_the_project_hold() -> None:
    (line,) = lines_of(["good.toml"], Settings.model_validate({"modules": ["numpy"]}))
    assert line.startswith('good.toml:2:8: "torch.sin"')


def test_operators_without_mistakes_are_returned_beside_the_mistakes_of_others() -> None:
    library, problems = examine(["good.toml", "broken.toml"], Settings())
    assert [operator.id for operator in library] == ["torch.sin"]
    assert {problem.file for problem in problems} == {"broken.toml"}


class TestExpectationsOfProfiles:
    """They have to match a case of the project, or of the shipped library, once all specs of the project are loaded."""

    SETTINGS: ClassVar = {"devices": ["devices"], "specs": ["good.toml", "other.toml"]}
    EXPECT = '[[device.expect]]\nwhen = {{ {} }}\noutcome = "fail"\nreason = "known"\n'

    def lines(self, *whens: str, paths: Sequence[str] = ("good.toml", "other.toml"), more: str = "") -> list[str]:
        Path("other.toml").write_text(SIN.replace("sin", "mine.op").replace("torch.", ""))
        Path("devices").mkdir(exist_ok=True)
        text = "".join(self.EXPECT.format(when) for when in whens)
        Path("devices/npu.toml").write_text(f'[device]\nname = "npu"\n{more}{text}')
        settings = Settings.model_validate({**self.SETTINGS, "modules": ["torch", "mine"]})
        try:
            load(paths, settings)
        except SpecError as error:
            return str(error).splitlines()
        return []

    def test_those_that_match_are_right(self) -> None:
        assert self.lines('check = "vmap"', 'operator = "mine.*"', 'operator = ["no.such", "torch.sin"]') == []

    def test_those_that_match_nothing_are_told_with_their_place(self) -> None:
        told = "this expectation matches no case on the device; expected one of `opcheck list --device npu`"
        assert self.lines(
            'operator = "mine.op"', 'operator = "mine.opp"', 'operator = "mine.op", check = "masked"'
        ) == [
            f'devices/npu.toml:8:8: {told}; did you mean "mine.op"?',
            f"devices/npu.toml:12:8: {told}",
        ]

    def test_operators_of_the_shipped_library_need_not_be_loaded(self) -> None:
        assert self.lines('operator = "torch.linalg.svd", check = "backward"') == []
        (line,) = self.lines('operator = "torch.linalg.svd", check = "errors", sample = "no such"')
        assert line.startswith("devices/npu.toml:4:8: this expectation matches no case")

    def test_a_part_of_the_project_says_nothing_about_them(self) -> None:
        assert self.lines('operator = "no.such"', paths=["good.toml"]) == []
        for name in ("unknown.toml", "broken.toml"):
            Path(name).unlink()
        Path("specs").mkdir()
        for name in ("good.toml", "other.toml"):
            Path(name).rename(f"specs/{name}")
        settings = Settings.model_validate(self.SETTINGS | {"specs": ["specs"], "modules": ["torch", "mine"]})
        assert len(load(["specs/good.toml", "specs/other.toml"], settings)) == 2
        with pytest.raises(SpecError, match="this expectation matches no case"):
            load(["specs"], settings)

    def test_rules_of_the_profile_count(self) -> None:
        assert self.lines('operator = "mine.op", dtype = "float64"', more='lacks = ["half"]\n') == []
        assert len(self.lines('operator = "mine.op", dtype = "float64"', more='lacks = ["double"]\n')) == 1
        assert len(self.lines('operator = "mine.op"', more='deny = ["mine.*"]\n')) == 1

    def test_what_is_inherited_is_judged_where_it_stands(self) -> None:
        Path("devices").mkdir()
        Path("devices/child.toml").write_text('[device]\nname = "child"\ninherits = "npu"\ndeny = ["mine.*"]\n')
        assert self.lines('operator = "mine.op"') == []


def test_dtypes_that_a_profile_declares_may_be_claimed() -> None:
    Path("devices").mkdir()
    Path("devices/npu.toml").write_text('[device]\nname = "npu"\ndtypes = ["float8_e8m0fnu"]\n')
    claim = 'dtypes = ["float32", "float8_e8m0fnu"]\n' + EXPECT.replace('check = "%s"', 'dtype = "float8_e8m0fnu"')
    Path("claims.toml").write_text(SIN + claim)
    (line,) = lines_of(["claims.toml"])
    assert line == 'claims.toml:4:22: unknown dtype "float8_e8m0fnu"'
    (operator,) = load(["claims.toml"], Settings.model_validate({"devices": ["devices"]}))
    assert operator.spec.dtypes.forward_names() == ("float32", "float8_e8m0fnu")
    (line,) = lines_of(["claims.toml"])
    assert line == 'claims.toml:4:22: unknown dtype "float8_e8m0fnu"'
