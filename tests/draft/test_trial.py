"""An operator is guessed, tried and taken back within its time; what is wrong with opcheck is no fault of its."""

from __future__ import annotations

import pytest

from opcheck.draft import trial as trials
from opcheck.draft.trial import drafted, trial
from opcheck.draft.workplace import Trial, Workplace
from opcheck.settings import Settings

SAMPLE = {"args": [{"shape": [2], "low": 0.1, "high": 0.9}]}
OURS = Workplace(Settings(modules=("torch", "operators")), 60.0)
PLAIN = Workplace(Settings(modules=("torch",)), 60.0)


def sine(**keys):
    return Trial("torch.sin", [[SAMPLE]], **keys)


def test_without_time_no_case_is_tested(monkeypatch):
    monkeypatch.setattr(trials.Deadline, "is_over", False)
    cases = len(drafted_cases(monkeypatch, over_after=1))
    assert cases == 1


def drafted_cases(monkeypatch, over_after):
    calls = []

    def run(case, session):
        calls.append(case.id)
        monkeypatch.setattr(trials.Deadline, "is_over", len(calls) >= over_after)
        return original(case, session)

    original = trials.run
    monkeypatch.setattr(trials, "run", run)
    own = drafted(sine(), PLAIN)
    assert own.left > 10
    assert own.draft
    return own.records


def test_what_operators_most_often_refuse_is_asked_first(monkeypatch):
    checks = [name.partition("::")[2].partition("[")[0] for name in drafted_cases(monkeypatch, over_after=20)]
    assert list(dict.fromkeys(checks))[:4] == ["dtypes", "vmap", "forward_ad", "batched_grad"]


def test_what_is_wrong_with_opcheck_is_said_to_be(monkeypatch):
    def planned(draft, session, device):
        raise ValueError("a defect")

    monkeypatch.setattr(trials, "planned", planned)
    own = drafted(sine(), PLAIN)
    assert own.draft is None
    assert own.refusal.startswith("opcheck itself failed, at ")
    assert own.refusal.endswith("ValueError: a defect")


def test_when_the_time_of_all_is_over_nothing_begins():
    workplace = Workplace(PLAIN.settings, 60.0, until=0.0)
    assert trial(sine(), workplace) == sine()


def test_in_the_interpreter_of_triton_bfloat16_is_left_out(monkeypatch):
    monkeypatch.setattr(trials, "planned", lambda draft, session, device: [])
    plain = drafted(sine(), PLAIN).draft
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    interpreted = drafted(sine(), PLAIN).draft
    assert plain.dtypes() == {}
    assert interpreted.dtypes()["forward"] == ["float16", "float32", "float64", "complex"]
    assert "# No forward pass in bfloat16: Triton's interpreter" in interpreted.toml()


@pytest.mark.parametrize(
    ("name", "disclaimed", "wrong"),
    [
        ("registered.right_half", {"forward_ad"}, "torch.library registers no forward mode, and torch gives zeros"),
        ("written.add_signs_", {"backward", "forward_ad"}, "torch.library registers no derivative of an operator that"),
        ("inference.rounded", {"backward", "forward_ad"}, ""),
    ],
)
def test_what_torch_library_cannot_register_is_disclaimed(name, disclaimed, wrong):
    samples = [{"args": [{"shape": [2, 4]}] * (1 + name.endswith("_"))}]
    own = drafted(Trial(f"operators.{name}", [samples]), OURS)
    assert {key for key, (value, _) in own.draft.supports.items() if value is False} >= disclaimed
    assert own.draft.wrong[: len(wrong) or None] == wrong
    assert ("[[operator.expect]]" in own.draft.toml()) == bool(wrong)
    assert {one["outcome"] for one in own.records.values()} <= {"passed", "xfailed", "skipped"}


def test_a_wrong_gradient_of_an_operator_of_torch_library_is_no_refusal():
    own = drafted(Trial("operators.registered.half_of_twice_the_gradient", [[{"args": [{"shape": [4]}]}]]), OURS)
    assert own.records["operators.registered.half_of_twice_the_gradient::backward[cpu-float64]"]["outcome"] == "failed"
