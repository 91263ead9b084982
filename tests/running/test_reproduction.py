"""A failure becomes a script of plain torch: it fails as long as the operator is wrong, and holds once it is right."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest
from operators import reproduced as wrong

from opcheck.planning import Selection, load, plan
from opcheck.running import reproduction
from opcheck.running.reproduction import executed
from opcheck.running.runner import run
from opcheck.running.session import RunSession
from opcheck.samples import source
from opcheck.settings import Settings
from opcheck.spec.device_profile import profiles

WITHOUT_OPCHECK = 'import sys; sys.modules["opcheck"] = None  '
"""Goes before the comment that a script begins with."""
QUICK = ("tail", "derived", "float64")
"""The one that does not wait for the night."""


def cases():
    for name, check in wrong.WRONG_IN:
        for dtype in ("float64", "complex128"):
            if name not in (wrong.REAL if dtype == "complex128" else wrong.COMPLEX):
                marks = [] if (name, check, dtype) == QUICK else [pytest.mark.nightly]
                yield pytest.param(name, check, dtype, marks=marks, id=f"{name}-{check}-{dtype}")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Return two folders with a library of the same name: one is wrong, and imported; the other one is right."""
    text = Path(wrong.__file__).read_text()
    folders = tmp_path_factory.mktemp("wrong"), tmp_path_factory.mktemp("right")
    for folder, line in zip(folders, ("WRONG = True", "WRONG = False"), strict=True):
        (folder / "mine.py").write_text(text.replace("WRONG = True", line))
    sys.path.insert(0, str(folders[0]))
    yield folders
    sys.path.remove(str(folders[0]))


@pytest.fixture
def outcome_of(library):
    """Return a function that runs one case of an operator of the library, and shows its failure in plain torch."""

    def outcome(name, check, dtype, reproduces=True, **supports):
        claims = {"forward_ad": "forward" in check or "fwd" in check, "vmap": check == "vmap"}
        listed = ", ".join(f"{key} = {str(value).lower()}" for key, value in {**claims, **supports}.items())
        args = wrong.INPUTS.get(name, "{ shape = [2, 3] }")
        spec = library[0] / "spec.toml"
        spec.write_text(
            f'[[operator]]\nname = "mine.{name}"\nsamples = [{{ args = [{args}] }}]\n'
            f"{wrong.KEYS.get(name, '')}\nsupports = {{ {listed} }}\n"
        )
        settings = Settings(modules=("torch", "mine"))
        settings._root = library[0]
        planned = plan(load([spec], settings), [profiles()["cpu"]], Selection(checks=(check,), dtypes=(dtype,)))
        return run(planned[0], RunSession(settings, reproduces=reproduces))

    return outcome


@pytest.mark.parametrize(("name", "check", "dtype"), list(cases()))
def test_a_script_fails_as_long_as_the_operator_is_wrong(name, check, dtype, outcome_of, library, monkeypatch):
    runs = []

    def without_opcheck(script, folder):
        runs.append(executed(WITHOUT_OPCHECK + script, folder))
        return runs[-1]

    monkeypatch.setattr(reproduction, "executed", without_opcheck)
    outcome = outcome_of(name, check, dtype)
    script = outcome.fields["reproduction"]
    assert f"```python\n{script}```" in outcome.message
    wanted = wrong.RAISED.get(name, "AssertionError: ")
    ((status, said),) = runs
    assert (status, [line.startswith(wanted) for line in said.splitlines()].count(True)) == (1, 1), said
    assert executed(WITHOUT_OPCHECK + script, library[1]) == (0, ""), script


@pytest.fixture
def at_once(monkeypatch):
    """Run scripts in this process, which has imported torch, where what they say is the question, not that they run."""

    def said(script, folder):
        try:
            exec(compile(script, "<string>", "exec"), {})
        except Exception:
            return 1, traceback.format_exc()
        return 0, ""

    monkeypatch.setattr(reproduction, "executed", said)


@pytest.mark.usefixtures("at_once")
def test_a_derived_sample_is_shown_as_small_as_it_stays_wrong(outcome_of):
    script = outcome_of("tail", "derived", "float64").fields["reproduction"]
    assert "torch.tensor([[" in script
    assert script.count("\n") < 35


@pytest.mark.usefixtures("at_once")
def test_an_exception_is_raised_by_the_same_call(outcome_of):
    script = outcome_of("raises_in_inference", "context", "float64").fields["reproduction"]
    assert "with torch.inference_mode():\n    actual = function(*inputs)\n" in script


@pytest.mark.usefixtures("at_once")
def test_numbers_that_are_drawn_are_the_same_each_time(outcome_of, monkeypatch):
    monkeypatch.setattr(source, "WRITTEN_OUT", 2)
    script = outcome_of("twice", "backward", "float64").fields["reproduction"]
    assert 0 < script.index("torch.manual_seed(0)") < script.index(".uniform_(")


def test_what_has_no_plain_form_says_so(outcome_of):
    outcome = outcome_of("twice", "unsupported", "float64", backward=False)
    assert (outcome.outcome, "reproduction" in outcome.fields) == ("failed", False)
    assert "not shown in plain torch: what unsupported compares here cannot be written as a script" in outcome.message
    assert "run just this: opcheck run " in outcome.message


def test_a_script_that_does_not_fail_is_not_shown(outcome_of, monkeypatch):
    monkeypatch.setattr(reproduction, "script_of", lambda context, verdict: "import math\nassert math.pi > 3")
    outcome = outcome_of("twice", "backward", "float64")
    assert "reproduction" not in outcome.fields
    assert "do not fail in this way: the process exited, with status 0" in outcome.message


def test_an_exception_that_is_not_that_of_the_failure_is_no_reproduction(outcome_of, monkeypatch):
    monkeypatch.setattr(reproduction, "script_of", lambda context, verdict: "import no_such_module")
    assert "No module named 'no_such_module'" in outcome_of("twice", "backward", "float64").message


def test_a_script_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(reproduction, "PATIENCE", 0.2)
    with pytest.raises(TimeoutError, match=r"^it takes longer than 0\.2 s$"):
        executed("while True: pass")


def test_a_script_that_hangs_is_no_reproduction(outcome_of, monkeypatch):
    monkeypatch.setattr(reproduction, "PATIENCE", 0.2)
    monkeypatch.setattr(reproduction, "script_of", lambda context, verdict: "while True: pass")
    outcome = outcome_of("twice", "backward", "float64")
    assert "reproduction" not in outcome.fields
    assert "not shown in plain torch: " in outcome.message
    assert "it takes longer than 0.2 s" in outcome.message


def test_without_the_request_nothing_is_written(outcome_of):
    assert "plain torch" not in outcome_of("twice", "backward", "float64", reproduces=False).message
