"""`@opcheck.register_check`: from a function to a check like any other."""

from __future__ import annotations

import numpy
import pytest
import torch
from operators import right

import opcheck
from opcheck.checks.verdict import untested
from opcheck.planning import Selection, check_kinds, load, plan
from opcheck.report.remarks import note_lines, wide_lines
from opcheck.running.runner import run
from opcheck.running.session import RunSession
from opcheck.settings import Settings
from opcheck.spec.device_profile import profiles

X = torch.tensor([0.5, 1.5], dtype=torch.float64)

SPEC = """
[[operator]]
name     = "operators.right.square"
variants = [{ kind = "inplace", target = "operators.right.square_" }]
samples  = [{ args = [{ shape = [2] }] }, { args = [{ shape = [0] }] }]
  [[operator.expect]]
  when    = { check = "own", dtype = "complex128" }
  outcome = "fail"
  reason  = "it is complex"
"""


@pytest.fixture
def ran(registry, tmp_path):
    """Return a function that runs the check `own` on a spec, and gives outcomes by id."""
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)

    def run_own(text=SPEC):
        path.write_text(text)
        settings = Settings(modules=("operators",))
        cases = plan(load([path], settings), [profiles()["cpu"]], Selection(checks=("own",)))
        session = RunSession(settings)
        return {case.id: run(case, session) for case in cases}

    return run_own


def own_of(function, x=X):
    """Return the only outcome of the check `own`."""
    (outcome,) = opcheck.check(function, x, checks="own", raise_exception=False)
    return outcome


NO_ANSWER = "the check returned None, which means that its claim does not apply"


class TestAnswers:
    @pytest.mark.parametrize(
        ("answer", "outcome", "reason"),
        [
            (True, "passed", ""),
            (False, "failed", "own: this does not hold: all is well"),
            (opcheck.Verdict(False, "own: the second one is too large"), "failed", "own: the second one is too large"),
            (opcheck.Verdict(True), "passed", ""),
            (None, "error", f"own: no sample tests the claim: {NO_ANSWER}"),
            (torch.tensor(True), "error", "own: the check returned Tensor"),
            (1, "error", "own: the check returned int"),
            (numpy.bool_(True), "passed", ""),
            (numpy.bool_(False), "failed", "own: this does not hold: all is well"),
            (iter([True]), "passed", ""),
            (iter([True, False]), "failed", "own: this does not hold: all is well"),
            (iter([True, 5]), "error", "own: the check returned int"),
        ],
    )
    def test_an_answer_is_a_verdict(self, registry, answer, outcome, reason):
        opcheck.register_check(name="own", claim="all is well")(lambda subject: answer)
        found = own_of(right.square)
        assert (found.outcome, found.reason) == (outcome, reason)

    def test_names_of_fields_that_reports_add_up_do_no_harm(self, registry):
        fields = {"notes": ["small"], "derived": 3, "tolerance": 1e-3, "size": 4}
        opcheck.register_check(name="own", claim="all is well")(lambda s: opcheck.Verdict(False, "no", fields=fields))
        found = own_of(right.square)
        assert (found.outcome, found.fields["size"]) == ("failed", 4)
        assert (note_lines([found]), wide_lines([found])) == ([], [])

    @pytest.mark.parametrize(
        ("verdicts", "outcome"),
        [
            ([], "error"),
            ([untested("nothing moves")], "error"),
            ([untested("nothing moves"), opcheck.Verdict(True)], "passed"),
            ([opcheck.Verdict(True), opcheck.Verdict(False, "own: wrong")], "failed"),
        ],
    )
    def test_of_several_verdicts_one_must_come_from_a_comparison(self, registry, verdicts, outcome):
        opcheck.register_check(name="own", claim="all is well")(lambda subject: iter(verdicts))
        assert own_of(right.square).outcome == outcome

    def test_a_check_that_forgets_to_answer_is_told_so(self, registry):
        opcheck.register_check(name="own", claim="all is well")(lambda subject: None)
        assert "the check returned None, which means that its claim does not apply" in own_of(right.square).message

    def test_an_exception_means_that_the_claim_does_not_hold(self, registry):
        @opcheck.register_check
        def own(subject):
            """Outputs are inputs."""
            torch.testing.assert_close(subject.outputs[0], subject.leaves[0])
            return True

        assert own_of(lambda x: 1 * x).outcome == "passed"
        found = own_of(right.square)
        assert (found.outcome, found.reason.split(":")[:2]) == (
            "failed",
            ["own raised AssertionError", " Tensor-likes are not close! Mismatched elements"],
        )

    def test_an_operator_that_refuses_its_sample_is_an_error_as_in_every_check(self, registry):
        opcheck.register_check(name="own", claim="all is well")(lambda subject: True)
        found = own_of(lambda x: x.no_such_method())
        assert found.outcome == "error"
        assert "the operator refuses the sample" in found.reason


class TestPlanning:
    def test_it_runs_for_specs_with_expectations_and_for_each_variant(self, ran):
        @opcheck.register_check
        def own(subject):
            """Values are real."""
            return not subject.outputs[0].is_complex()

        assert check_kinds()["own"].claim == "values are real"
        assert {name: outcome.outcome for name, outcome in ran().items()} == {
            "operators.right.square::own[cpu-float64]": "passed",
            "operators.right.square::own[cpu-complex128]": "xfailed",
            "operators.right.square[inplace]::own[cpu-float64]": "passed",
            "operators.right.square[inplace]::own[cpu-complex128]": "xfailed",
        }

    def test_leaves_require_grad_where_it_is_about_derivatives(self, registry):
        seen = []

        @opcheck.register_check(name="own", dtypes="derivative", needs="backward")
        def differentiates(subject):
            """There is a gradient."""
            seen.append(subject.outputs[0].requires_grad)
            return True

        assert opcheck.check(right.square, X, checks="own").passed
        assert seen == [True]
        with pytest.raises(ValueError, match='"own" has nothing to test: supports sets backward to False'):
            opcheck.check(torch.sign, X, checks="own", supports={"backward": False})

    def test_it_says_for_which_operators_and_variants_it_is(self, ran):
        asked = []

        @opcheck.register_check(
            dtypes="one", every_variant=False, applies=lambda operator: asked.append(operator.id) or True
        )
        def own(subject):
            """All is well."""
            return True

        assert list(ran(SPEC.split("  [[operator.expect]]")[0])) == ["operators.right.square::own[cpu-float64]"]
        assert set(asked) == {"operators.right.square"}

    def test_an_unregistered_check_is_unknown(self, registry):
        with pytest.raises(ValueError, match='unknown check "own"'):
            opcheck.check(right.square, X, checks="own")


class TestMistakes:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"name": "vmap"}, 'the check "vmap" is one of opcheck itself'),
            ({"name": "not good"}, 'the name of a check: "not good" cannot be part of a test id; expected letters'),
            ({"name": "skip"}, 'the name of a check: "skip" cannot be a marker'),
            ({"needs": ["backwards"]}, 'the check "own": unknown key of supports "backwards".*did you mean "backward"'),
            ({"dtypes": "value"}, 'the check "own": unknown rule for dtypes "value".*did you mean "values"'),
            ({"claim": None}, 'the check "own" does not say what it claims: give it a docstring'),
        ],
    )
    def test_what_cannot_be_registered_is_refused(self, registry, options, message):
        before = dict(registry)
        with pytest.raises(ValueError, match=message):
            opcheck.register_check(**{"name": "own", "claim": "all is well", **options})(lambda subject: True)
        assert registry == before

    def test_what_is_no_function_is_refused(self, registry):
        with pytest.raises(TypeError, match=r"^register_check expects a function, not str: 'finite'"):
            opcheck.register_check("finite")

    @pytest.mark.parametrize("options", [{"name": 3}, {"applies": "torch.*"}])
    def test_types_are_checked(self, registry, options):
        before = dict(registry)
        with pytest.raises(TypeError, match=r"^register_check expects a string as name, and a function as applies: "):
            opcheck.register_check(**{"name": "own", "claim": "all is well", **options})(lambda subject: True)
        assert registry == before

    def test_two_checks_of_one_name_are_refused(self, registry):
        def first(subject):
            """All is well."""

        def second(subject):
            """All is well."""

        opcheck.register_check(name="own")(first)
        with pytest.raises(
            ValueError, match=r'"own" is registered twice: first at .*test_register.py:\d+, then at .*:\d+'
        ):
            opcheck.register_check(name="own")(second)
        assert registry["own"].judge is first

    def test_a_module_that_is_loaded_again_registers_its_check_anew(self, registry):
        def load_again():
            @opcheck.register_check
            def own(subject):
                """All is well."""

            return own

        first, second = load_again(), load_again()
        assert first is not second
        assert registry["own"].judge is second
