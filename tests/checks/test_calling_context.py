"""What surrounds a call changes neither its values nor its gradients, real and complex."""

import pytest

SURROUNDINGS = {
    "threads_in_backward": "the gradients under another number of threads",
    "autocast_in_backward": "the gradients under torch.autocast",
    "deterministic_in_backward": "the gradients under deterministic mode",
    "deterministic_in_forward": "the values under deterministic mode",
    "grad_mode_in_backward": "the gradients under create_graph=True",
}


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
class TestSurroundings:
    @pytest.mark.parametrize("name", SURROUNDINGS)
    def test_a_dependence_fails_and_is_named(self, verdict_of, name, dtype):
        outcome = verdict_of(f"operators.spoiling.{name}", "context", dtype, "supports = { forward_ad = false }")
        assert outcome.outcome == "failed"
        assert outcome.reason.startswith(f"context: {SURROUNDINGS[name]} differ")

    def test_a_right_operator_passes(self, verdict_of, dtype):
        keys = "supports = { forward_ad = false }"
        assert verdict_of("operators.spoiling.steady_in_backward", "context", dtype, keys).outcome == "passed"


def test_the_process_is_as_before(verdict_of):
    import torch

    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.is_autocast_enabled("cpu")
    verdict_of("operators.spoiling.deterministic_in_backward", "context", keys="supports = { forward_ad = false }")
    assert before == (
        torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.is_autocast_enabled("cpu")
    )  # fmt: skip


def test_other_numbers_that_are_refused_are_no_matter_of_the_context(verdict_of):
    outcome = verdict_of("operators.objects.takes_numbers_near_the_first", "context")
    assert outcome.outcome == "passed"
    assert "by the recipes of the sample are refused: ValueError: too far away" in outcome.fields["notes"]["0"][0]


def test_outputs_that_change_their_shape_near_another_point_say_nothing(verdict_of):
    samples = "samples = [{ args = [{ values = [0.0, 1.0, -1.0] }] }]"
    outcome = verdict_of("operators.objects.square_of_positive_numbers", "context", samples=samples)
    assert outcome.outcome == "passed", outcome.message
    assert "no differences at another point" in outcome.fields["notes"]["0"][0]
