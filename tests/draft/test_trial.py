"""An operator is guessed, tried and taken back within its time; what is wrong with opcheck is no fault of its."""

from __future__ import annotations

from opcheck.draft import trial as trials
from opcheck.draft.trial import drafted, trial
from opcheck.draft.workplace import Trial, Workplace
from opcheck.settings import Settings

SAMPLE = {"args": [{"shape": [2], "low": 0.1, "high": 0.9}]}
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
