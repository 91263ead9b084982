"""`opcheck validate --resolve` has an answer for every name in torch.ops.aten."""

from __future__ import annotations

import random
import runpy
from pathlib import Path

import pytest

tool = runpy.run_path(str(Path(__file__).resolve().parent.parent.parent / "tools" / "validate_aten.py"))
REFUSED = ("dict", "record_stream", "to_here", "owner", "owner_name", "is_owner", "local_value", "confirmed_by_owner")


def test_names_drawn_from_all_are_valid_or_refused_with_a_place(tmp_path):
    names = tool["names_in_aten"]()
    assert len(names) > 1000
    assert tool["troubles"](random.Random(22).sample(names, 60), tmp_path) == {}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_no_spec_has_values_for_are_refused(name, cli, project):
    project.write("aten.toml", tool["SPEC"].format(name=name))
    run = cli("validate", "--resolve", "aten.toml")
    assert run.code == 2
    assert run.err.startswith(f'aten.toml:2:8: "torch.ops.aten.{name}" may not be named in a spec: ')


def test_parameters_that_python_would_give_the_same_name_are_no_obstacle(cli, project):
    project.write("aten.toml", tool["SPEC"].format(name="conv_tbc_backward"))
    run = cli("validate", "--resolve", "aten.toml")
    assert (run.code, run.out) == (0, "1 operator, 1 sample: no mistakes found\n")


def test_a_traceback_is_told(tmp_path, monkeypatch):
    def fails(words):
        raise KeyError(words[-1])

    monkeypatch.setitem(tool["trouble"].__globals__, "opcheck", fails)
    assert "KeyError" in tool["trouble"](tmp_path / "one.toml")
