"""Where kernels fail: each wrong operator fails under the right check, and its twin passes all of these checks."""

import pytest

from opcheck.planning import Selection, load, plan
from opcheck.settings import Settings
from opcheck.spec.device_profile import profiles

ALONE = "supports = { forward_ad = false, batched_grad = false, vmap = false }"
FUNCTION = "supports = { batched_forward_grad = false, vmap = false }"
RANDOM = f"{ALONE}\nreseed = true"
FIRST = "supports = { forward_ad = false, batched_grad = false, vmap = false, second_order = false }"
MATRICES = "samples = [{ args = [{ shape = [3, 4] }, { shape = [4, 2] }] }]"
LIST = "samples = [{ args = [[{ shape = [2, 3] }, { shape = [2, 3] }, { shape = [2, 3] }]] }]"
FOUR = """samples = [
  { args = [{ shape = [2, 3] }, { shape = [3, 4] }, { shape = [3, 2] }, { shape = [2, 4] }] },
]"""
TWO = "samples = [{ args = [{ shape = [2, 3] }, { shape = [2, 3] }] }]"

WRONG = [
    # operator, check, keys, samples, what is said
    ("cotangent_expanded_in_one_dim", "backward", FUNCTION, "", "depends on the memory of the cotangent"),
    ("cotangent_transposed", "linearity", FUNCTION, "", "in permuted memory"),
    ("cotangent_behind_others", "linearity", FUNCTION, "", "that lie behind others in memory"),
    ("out_by_address", "variants", "", "", "out= a slice of a larger buffer"),
    ("out_beside", "variants", "", "", "a slice of a larger buffer writes beside it"),
    ("out_of_its_shape", "variants", "", "", "out= an empty buffer"),
    ("out_exchanged", "variants", "", "", "called by out= a slice of a larger buffer"),
    ("drops_by_initial_seed", "context", RANDOM, "", "when the random generator is reseeded before backward"),
    ("expects_autocast_in_backward", "context", FUNCTION, "", "under torch.autocast in forward alone"),
    ("keeps_its_inputs", "saved", "", "", "leaf 0 of a call stays in memory"),
    ("keeps_in_a_cycle", "saved", "", "", "leaf 0 of a call stays in memory"),
    ("keeps_output_on_ctx", "saved", FUNCTION, "", "of a call stays in memory"),
    ("writes_grad", "purity", FUNCTION, "", "has another gradient in .grad"),
    ("adds_to_grad", "purity", FUNCTION, "", "has another gradient in .grad"),
    ("uses_up_its_graph", "context", ALONE, "", "of a second backward pass without retain_graph=True"),
    ("wrong_without_retain_graph", "context", ALONE, "", "without retain_graph"),
    ("returns_its_buffer", "context", ALONE, "", "overwrites a tensor returned by an earlier call: output 0"),
    ("returns_its_workspace", "context", ALONE, "", "overwrites a tensor returned by an earlier call: gradient 0"),
    ("batch_of_one", "vmap", "", "", "the loop, in a batch of one"),
    ("second_order_of_one_input", "needs_input_grad", ALONE, TWO, "the second derivatives where only x requires grad"),
    ("all_but_one_of_a_list", "needs_input_grad", ALONE, LIST, "all inputs but tensors[1] require grad"),
    ("wrong_where_frozen", "needs_input_grad", ALONE, FOUR, "the gradients where only a and b require grad"),
    (
        "cotangent_detached_beside_a_constant",
        "needs_input_grad",
        ALONE,
        TWO,
        "the second derivatives where only the cotangent and x require grad",
    ),
    ("wrong_for_one_tangent", "undefined_grad", FUNCTION, LIST, "tensors[1], tensors[2] have no tangent"),
    ("outputs_share_memory", "aliasing", ALONE, "", "output 0 shares memory with output 1 behind autograd's back"),
]
RIGHT = [
    ("right", FUNCTION, ""),
    ("written_in_backward", ALONE, ""),
    ("written_in_forward", ALONE, ""),
    ("written_integers", ALONE, ""),
    ("cotangent_contiguous", FUNCTION, ""),
    ("out_right", "", ""),
    ("drops_by_saved_state", RANDOM, ""),
    ("keeps_one_of_its_shape", "", ""),
    ("any_batch", "", ""),
    ("returns_a_copy", ALONE, ""),
    ("second_order_of_both_inputs", "", TWO),
    ("sum_of_a_list", "", LIST),
    ("adapted", ALONE, FOUR),
    ("tangents_of_some", FUNCTION, LIST),
    ("outputs_apart", ALONE, ""),
    ("outputs_are_views", "", ""),
    ("packs_each_time", FIRST, MATRICES),
]
CHECKS = (
    "backward",
    "context",
    "linearity",
    "variants",
    "saved",
    "purity",
    "vmap",
    "needs_input_grad",
    "undefined_grad",
    "aliasing",
    "nondeterminism",
)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
class TestKernels:
    @pytest.mark.parametrize(("name", "check", "keys", "samples", "words"), WRONG, ids=[row[0] for row in WRONG])
    def test_a_wrong_one_is_caught(self, verdict_of, name, check, keys, samples, words, dtype):
        outcome = verdict_of(f"operators.kernels.{name}", check, dtype, keys, samples)
        assert outcome.outcome == "failed"
        assert words in outcome.reason

    @pytest.mark.parametrize("name", ["unwritten_in_backward", "unwritten_in_forward", "unwritten_integers"])
    def test_memory_never_written_is_no_pass(self, verdict_of, name, dtype):
        """Memory is what it is: where two ordinary calls differ, that is what is said."""
        assert verdict_of(f"operators.kernels.{name}", "context", dtype, ALONE).outcome in ("failed", "blocked")

    def test_a_cache_by_address_is_no_pass(self, verdict_of, dtype):
        """Which check notices it depends on the addresses that the allocator hands out."""
        outcome = verdict_of("operators.kernels.packs_once_for_each_address", "context", dtype, FIRST, MATRICES)
        assert outcome.outcome in ("failed", "blocked")

    def test_memory_from_an_allocator_is_dirty(self, verdict_of, dtype):
        """Which blocks an allocator hands out is up to it: of many calls, some get one that is full of NaN."""
        name = "operators.kernels.allocated_in_backward"
        found = [verdict_of(name, "context", dtype, ALONE, "") for _ in range(20)]
        assert any(outcome.outcome in ("failed", "blocked") for outcome in found)

    @pytest.mark.parametrize(("name", "keys", "samples"), RIGHT, ids=[row[0] for row in RIGHT])
    def test_a_right_one_passes(self, outcomes, name, keys, samples, dtype):
        samples = samples or "samples = [{ args = [{ shape = [2, 3], low = 0.5 }] }]"
        text = f'[[operator]]\nname = "operators.kernels.{name}"\n{keys}\n{samples}\n'
        found = outcomes(text, checks=CHECKS, dtypes=(dtype,))
        assert len(found) >= len(CHECKS) - 1
        assert {case: outcome.reason for case, outcome in found.items() if outcome.outcome != "passed"} == {}


THOROUGH = [
    ("shares_memory_among_threads", "of several threads at once"),
    ("saves_more_every_other_time", "heckpoint"),
    ("reads_too_early_on_another_stream", "another stream"),
]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
class TestThorough:
    def verdict(self, outcomes, name, dtype, derive, check="context"):
        samples = "samples = [{ args = [{ shape = [2, 3], low = 0.5 }] }]"
        text = f'[[operator]]\nname = "operators.kernels.{name}"\n{samples}\n'
        (outcome,) = outcomes(text, checks=(check,), dtypes=(dtype,), overrides={"derive": derive}).values()
        return outcome

    @pytest.mark.parametrize(("name", "words"), THOROUGH)
    def test_what_is_dear_is_tested_where_much_is_wanted(self, outcomes, name, words, dtype):
        outcome = self.verdict(outcomes, name, dtype, "thorough")
        assert outcome.outcome == "failed"
        assert words in outcome.reason
        assert self.verdict(outcomes, name, dtype, "none").outcome == "passed"

    @pytest.mark.parametrize("name", ["right", "keeps_nothing_among_threads"])
    def test_a_right_one_passes(self, outcomes, name, dtype):
        assert self.verdict(outcomes, name, dtype, "thorough").outcome == "passed"

    @pytest.mark.filterwarnings("ignore")  # of torch about its own compiler
    def test_a_branch_for_compilers_alone_is_found(self, outcomes, dtype):
        wrong = self.verdict(outcomes, "while_compiling", dtype, "thorough", "compile")
        assert wrong.outcome == "failed"
        assert "the values under torch.compile differ from those of an ordinary call" in wrong.reason
        assert self.verdict(outcomes, "right", dtype, "thorough", "compile").outcome == "passed"

    @pytest.mark.filterwarnings("ignore")  # of torch about its own compiler
    def test_one_without_backward_compiles_where_inputs_would_require_grad(self, outcomes, dtype):
        text = '[[operator]]\nname = "torch.linalg.qr"\nsupports = { backward = false, out = false }\n'
        text += 'samples = [{ args = [{ shape = [3, 3] }, "r"] }]\noutputs = { select = [1] }\n'
        selection = {"checks": ("compile",), "dtypes": (dtype,)}
        (outcome,) = outcomes(text, overrides={"derive": "thorough"}, **selection).values()
        assert outcome.outcome == "passed"


def test_a_dear_check_runs_where_much_is_wanted_or_it_is_named(write):
    path = write('[[operator]]\nname = "operators.kernels.right"\nsamples = [{ args = [{ shape = [2] }] }]\n')
    library = load([path], Settings(modules=("operators",)))

    def checks(**selection):
        return {case.check for case in plan(library, [profiles()["cpu"]], Selection(**selection))}

    assert "compile" not in checks()
    assert "compile" not in checks(derive="standard")
    assert "compile" in checks(derive="thorough")
    assert checks(checks=("compile",)) == {"compile"}
