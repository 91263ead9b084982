"""What evidence says arrives in the outcome of a case: as its kind, its message, its warnings and its fields."""

import json

import pytest

from opcheck.derivatives import check_claim as module

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
NO_FORWARD = "supports = { forward_ad = false }"


def values(*numbers):
    return f"samples = [{{ args = [{{ values = {list(numbers)} }}] }}]"


@pytest.mark.parametrize("check", ["backward", "forward_ad", "rev_over_rev"])
def test_a_sample_on_a_kink_is_inconclusive_and_says_what_to_move(verdict_of, check):
    outcome = verdict_of("torch.relu", check, samples=values(1.0, 0.0, -1.0))
    assert outcome.outcome == "inconclusive"
    assert outcome.is_bad
    assert "kink" in outcome.reason
    assert "move the sample away from input[1] = 0" in outcome.message


@pytest.mark.parametrize("check", ["backward", "forward_ad"])
@pytest.mark.parametrize("name", ["torch.sqrt", "torch.acos", "torch.log"])
def test_a_sample_on_a_branch_cut_is_inconclusive(verdict_of, name, check):
    samples = "samples = [{ args = [{ values = [-2.0] }] }]"  # the values jump in one part, and bend in the other
    outcome = verdict_of(name, check, samples=samples, dtype="complex128")
    assert outcome.outcome == "inconclusive", outcome.message
    assert "move the sample away from" in outcome.message


@BOTH
@pytest.mark.parametrize("check", ["backward", "forward_ad"])
@pytest.mark.parametrize(("rows", "expected"), [(1, "inconclusive"), (5, "passed")])
def test_a_function_that_jumps_from_point_to_point_is_inconclusive(verdict_of, rows, expected, check, dtype):
    samples = f"samples = [{{ args = [{{ shape = [{rows}, 3] }}, {{ shape = [{rows}, 3] }}] }}]"
    keys = 'outputs = { apply = "real" }' if dtype == "complex128" else ""
    outcome = verdict_of("operators.awkward.aligned", check, dtype, samples=samples, keys=keys)
    assert outcome.outcome == expected, outcome.message
    if expected == "inconclusive":
        assert "no derivative here: its values jump from point to point, however near" in outcome.reason


@BOTH
def test_a_wrong_gradient_of_a_function_with_many_waves_fails(verdict_of, dtype):
    name, keys = "operators.awkward.ripples_of_wrong_sign", NO_FORWARD
    outcome = verdict_of(name, "backward", dtype, keys=keys, samples=values(0.25, 1.5))
    assert outcome.outcome == "failed", outcome.message


def test_a_failure_beside_an_inconclusive_one_in_the_same_leaf_is_one(verdict_of):
    samples = "samples = [{ args = [{ values = [-2.0, 1.0] }] }]"
    name, keys = "operators.awkward.sqrt_of_wrong_sign", NO_FORWARD
    assert verdict_of(name, "backward", samples=samples, dtype="complex128", keys=keys).outcome == "failed"


def test_beside_the_kink_it_passes(verdict_of):
    assert verdict_of("torch.relu", "backward", samples=values(1.0, 0.5, -1.0)).outcome == "passed"


def test_a_failure_beside_an_inconclusive_sample_is_a_failure(verdict_of):
    samples = "samples = [{ args = [{ values = [0.0, 0.0] }] }, { args = [{ values = [1.0, 2.0] }] }]"
    outcome = verdict_of("operators.awkward.wrong_abs", "backward", keys=NO_FORWARD, samples=samples)
    assert outcome.outcome == "failed"
    assert "2 of 2 samples" in outcome.message


@BOTH
@pytest.mark.parametrize(("operator", "check"), [("coarse_gradient", "backward"), ("coarse_tangent", "forward_ad")])
def test_lost_digits_are_a_failure_of_accuracy_alone(verdict_of, operator, check, dtype):
    assert verdict_of(f"operators.awkward.{operator}", check, dtype).record()["fields"] == {}
    outcome = verdict_of(f"operators.awkward.{operator}", "accuracy", dtype)
    assert outcome.outcome == "failed"
    assert outcome.reason.startswith(f"accuracy: {check} lost digits")
    assert "tolerance.accuracy" in outcome.message


@BOTH
@pytest.mark.parametrize(
    ("operator", "check", "kind"),
    [
        ("wrong_sign", "backward", "sign"),
        ("wrong_jvp", "forward_ad", "factor"),
        ("forgets_tangent", "forward_ad", "zero"),
        ("second_order_lost", "rev_over_rev", "second_order_lost"),
    ],
)
def test_the_diagnosis_and_the_worst_entries_are_fields_for_reports(verdict_of, operator, check, kind, dtype):
    outcome = verdict_of(f"operators.faulty.{operator}", check, dtype)
    assert outcome.outcome == "failed"
    record = json.loads(json.dumps(outcome.record(), allow_nan=False))
    diagnosis, worst = record["fields"]["diagnosis"], record["fields"]["worst"]
    assert [finding["kind"] for finding in diagnosis] == [kind]
    assert diagnosis[0]["text"] in outcome.message
    assert 1 <= len(worst) <= 5
    assert {"output", "leaf", "output_index", "leaf_index", "numerical", "analytical"} <= set(worst[0])
    off = [abs(entry["numerical"] - entry["analytical"]) for entry in worst]
    assert off[0] > 0


FURTHER = ["rev_over_fwd", "fwd_over_fwd", "rev_over_rev_over_rev"]


@BOTH
@pytest.mark.parametrize("order", FURTHER)
def test_further_orders_are_compared_along_one_direction(verdict_of, monkeypatch, order, dtype):
    asked, own = [], module.compare
    monkeypatch.setattr(module, "compare", lambda *args: asked.append(args) or own(*args))
    assert verdict_of("torch.sin", order, dtype).outcome == "passed"
    assert asked == []


@BOTH
def test_where_one_direction_objects_the_whole_jacobian_is_shown(verdict_of, dtype):
    outcome = verdict_of("operators.awkward.cube_wrong_at_third_order", "rev_over_rev_over_rev", dtype, NO_FORWARD)
    assert outcome.outcome == "failed"
    assert "worst entry: d gradient of" in outcome.message


@BOTH
def test_forward_over_forward_of_an_autograd_function_is_out_of_reach(verdict_of, dtype):
    outcome = verdict_of("operators.right.square", "fwd_over_fwd", dtype)
    assert outcome.outcome == "skipped"
    assert outcome.reason.startswith("torch cannot take the jvp of the jvp of an autograd.Function")
    disclaimed = verdict_of("operators.right.square", "unsupported", dtype, "supports.fwd_over_fwd = false")
    assert disclaimed.outcome == "passed"


@BOTH
@pytest.mark.parametrize("order", [*FURTHER, "scalarized_second_order"])
def test_further_orders_are_checked(verdict_of, order, dtype):
    assert verdict_of("torch.sin", order, dtype, f'orders = ["{order}"]').outcome == "passed"


@BOTH
def test_a_fault_of_the_third_derivative_is_found_where_the_spec_asks_for_it(verdict_of, dtype):
    keys = f'orders = ["rev_over_rev_over_rev"]\n{NO_FORWARD}'
    operator = "operators.awkward.cube_wrong_at_third_order"
    assert verdict_of(operator, "rev_over_rev", dtype, keys).outcome == "passed"
    assert verdict_of(operator, "rev_over_rev_over_rev", dtype, keys).outcome == "failed"


@BOTH
@pytest.mark.parametrize(
    ("operator", "order", "outcome"),
    [
        ("second_order_wrong", "scalarized_second_order", "blocked"),
        # A jvp that is wrong is a function like others, whose own derivative may be right.
        ("wrong_jvp", "rev_over_fwd", "passed"),
        # torch.func gives zeros for forward over forward of any autograd function with a jvp.
        ("wrong_jvp", "fwd_over_fwd", "skipped"),
    ],
)
def test_faults_of_further_orders_are_told_apart(verdict_of, operator, order, outcome, dtype):
    assert verdict_of(f"operators.faulty.{operator}", order, dtype, f'orders = ["{order}"]').outcome == outcome


@pytest.mark.parametrize(("jacobian", "used"), [("full", False), ("projected", True), ("auto", False)])
def test_projections_are_asked_for_by_the_spec(verdict_of, jacobian, used):
    keys = f'jacobian = "{jacobian}"\n{NO_FORWARD}'
    found = verdict_of("operators.faulty.wrong_sign", "backward", keys=keys)
    assert found.outcome == "failed"
    assert ("v J u is" in found.message) == used
