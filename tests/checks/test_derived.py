"""Samples that opcheck derives from the written ones show what these do not, and accuse no right operator."""

from __future__ import annotations

import time

import pytest
import torch
from operators import varied

from opcheck.checks import attempts
from opcheck.planning import Selection, load, plan
from opcheck.running.runner import run
from opcheck.running.session import RunSession
from opcheck.samples.arguments import signature_of
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile
from opcheck.strides import MEMORIES

ONE = "samples = [{ args = [{ shape = [2, 3] }] }]"
TWO = "samples = [{ args = [{ shape = [2, 3] }, { shape = [2, 3] }] }]"
BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
REAL_BY_DAY = pytest.mark.parametrize("dtype", ["float64", pytest.param("complex128", marks=pytest.mark.nightly)])
DERIVE = pytest.mark.parametrize("derive", ["standard", pytest.param("thorough", marks=pytest.mark.nightly)])
SEEDS = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 5))])

WRONG = {
    "wrong_beyond_16": ("sizes 2 -> 17, 3 -> 18", "{ shape = [17, 1] }", "with size 16, fails with size 17"),
    "wrong_beyond_100_elements": ("sizes 2 -> 17, 3 -> 18", "{ shape = [", ", fails with"),
    "wrong_if_square": ("sizes 2 -> 64, 3 -> 64", "{ shape = [1, 1] }", ""),
    "wrong_for_size_one": ("size 2 -> 1", "{ shape = [1, 1] }", ""),
    "wrong_for_odd_multiples": ("sizes 2 -> 17, 3 -> 18", "{ shape = [1, 5] }", "with size 4, fails with size 5"),
    "wrong_for_rank_3": ("leading dims of 2, 1", "{ shape = [1, 1, 1] }", ""),
    "wrong_for_gaps": ("memory noncontiguous", "{ shape = [", ""),
    "wrong_for_multiples_of_8": ("sizes 2 -> 64, 3 -> 64", "{ shape = [1, 8] }", ""),
    "wrong_for_multiples_of_32": ("sizes 2 -> 64, 3 -> 64", "{ shape = [1, 32] }", "with size 31, fails with size 32"),
    "wrong_for_multiples_of_128": ("size 3 -> 256", "{ shape = [1, 128] }", "with size 127, fails with size 128"),
    "wrong_beyond_1024": ("size 3 -> 1031", "{ shape = [1, 1025] }", "with size 1024, fails with size 1025"),
    "wrong_without_momentum": ("momentum = { none = true }", "momentum = { none = true }", ""),
    "wrong_flipped": ("flip = true", "flip = true", ""),
    "wrong_scaled": ("factor = 3.0", "factor = 3.0", ""),
}


INDEXED = "samples = [{ args = [{ shape = [5] }, { values = [0, 3], dtype = 'int64' }] }]"
SEGMENTS = "samples = [{ args = [{ shape = [5] }, { values = [0, 2, 5], dtype = 'int64' }] }]"
MASK = "{ values = [[true, false, true], [true, true, false]], dtype = 'bool' }"
MASKED = f"samples = [{{ args = [{{ shape = [2, 3] }}, {MASK}] }}]"
ADDED = "samples = [{ args = [{ shape = [2, 3] }, { shape = [2, 3], grad = false }] }]"
LARGE = "samples = [{ args = [{ shape = [2, 1002] }], large = true }]"
SQUARE = "samples = [{ args = [{ shape = [3, 2] }, { shape = [3, 2] }] }]"
ARGS = "args = [{ shape = [2, 3] }]"
PAIR = f"samples = [{{ {ARGS}, kwargs = {{ how = 'mean' }} }}, {{ {ARGS}, kwargs = {{ keep = true }} }}]"
JOINED = "samples = [{ args = [{ shape = [3, 2] }, { shape = [4, 2] }] }]"
QUERIES = "samples = [{ args = [{ shape = [3, 2] }, { shape = [3, 2] }], vary = ['size', 'broadcast'] }]"
PAIRS_OF_LISTS = (
    "samples = [{ args = [[{ shape = [3] }, { shape = [2] }], [{ shape = [3] }, { shape = [2] }]], vary = ['size'] }]"
)
EQUAL = "samples = [{ args = [{ shape = [3, 3] }] }]"
BOTH_SIGNS = "tensor 0 = 1000, but for an element of -1000"
POWERS = "samples = [{ args = [{ shape = [3] }, 2] }, { args = [{ shape = [3], low = 0.5 }, 0] }]"
FURTHER = {
    "wrong_for_several_whole_chunks": (
        "size 3 -> 256",
        "{ args = [{ shape = [1, 64, 1] }] }",
        "samples = [{ args = [{ shape = [2, 3, 4] }] }]",
    ),
    "wrong_if_empty": ("size 3 -> 0", "{ args = [{ shape = [0, 1] }, { shape = [1, 1] }] }", JOINED),
    "wrong_at_zero": ("tensor 0 = 0", "{ args = [{ shape = [1, 1], mean = 0.0, std = 0.0 }] }", ONE),
    "wrong_above_a_scaled_threshold": (
        "beta = 3.0, elements 0, 12, -13",
        "{ args = [{ shape = [1, 1], contains = [10.0] }], kwargs = { beta = 3.0 } }",
        ONE,
    ),
    "wrong_at_one_zero": ("elements 0, 12, -13", "{ args = [{ shape = [2, 1], contains = [0.0] }] }", ONE),
    "wrong_for_one_large": ("elements 0, 12, -13", "{ args = [{ shape = [2, 1], contains = [11.0] }] }", ONE),
    "wrong_for_rank_4": ("leading dims of 2, 1", "{ args = [{ shape = [1, 1, 1, 1] }] }", ONE),
    "wrong_for_rank_4_beside_a_matrix": (
        "trailing dims of 2, 1",
        "{ args = [{ shape = [1, 1, 1, 1] }, { shape = [1, 1] }] }",
        TWO,
    ),
    "wrong_in_batches": (
        "leading dims of 2, 1 of tensor 0",
        "{ args = [{ shape = [1, 1, 1, 1] }, { shape = [1, 1] }] }",
        TWO,
    ),
    "wrong_for_unequal_padding": ("pad = { tuple = [1, 2] }", "kwargs = { pad = { tuple = [1, 2] } } }", ONE),
    "wrong_for_three": (
        "3 tensors in 0",
        "{ args = [[{ shape = [1] }, { shape = [1] }, { shape = [1] }]] }",
        "samples = [{ args = [[{ shape = [3] }, { shape = [2] }]], vary = ['size', 'keyword'] }]",
    ),
    "wrong_for_one_tensor": (
        "1 tensor in 0",
        "{ args = [[{ shape = [1] }]] }",
        "samples = [{ args = [[{ shape = [3] }, { shape = [2] }]], vary = ['size', 'keyword'] }]",
    ),
    "wrong_for_a_column_and_a_row": (
        "dim 0 of tensor 0 -> 1, dim 1 of tensor 1 -> 1",
        "{ args = [{ shape = [1, 2] }, { shape = [2, 1] }] }",
        TWO,
    ),
    "wrong_where_both_are_zero": ("elements 0, 12, -13", "contains = [0.0", TWO),
    "wrong_above_a_threshold": ("width = 8", "{ args = [{ shape = [1, 1] }], kwargs = { width = 8 } }", ONE),
    "wrong_for_oblong": ("size 3 -> 4 in dim -1", "{ args = [{ shape = [1, 2] }] }", EQUAL),
    "wrong_beside_square": (
        "size 3 -> 4 in dim -1 of tensor 0",
        "{ args = [{ shape = [1, 2] }, { shape = [1, 1] }] }",
        "samples = [{ args = [{ shape = [3, 3] }, { shape = [3, 3] }], vary = ['size'] }]",
    ),
    "wrong_for_pairs": (
        "flip = true, sizes 2 -> 33, 3 -> 34, memory transposed",
        "{ args = [{ shape = [17, 1] }], kwargs = { flip = true } }",
        ONE,
    ),
    "wrong_if_flipped_and_transposed": (
        "flip = true, sizes 2 -> 33, 3 -> 34, memory transposed",
        '{ args = [{ shape = [2, 2], memory = "transposed" }], kwargs = { flip = true } }',
        ONE,
    ),
    "wrong_for_one_negative": ("elements 0, 12, -13", "{ args = [{ shape = [1, 1], contains = [-11.0] }] }", ONE),
    "wrong_if_scaled_and_flipped": (
        "flip = true, factor = 3.0, sizes 2 -> 33, 3 -> 34, memory transposed",
        "{ args = [{ shape = [1, 1] }], kwargs = { flip = true, factor = 3.0 } }",
        ONE,
    ),
    "wrong_if_scaled_and_raised": (
        "factor = 3.0, shift = 0.75, power = 3, sizes 2 -> 33, 3 -> 34, memory transposed",
        "{ args = [{ shape = [1, 1] }], kwargs = { factor = 3.0, power = 3 } }",
        ONE,
    ),
    "wrong_for_infinity": ("p = inf", "{ args = [{ shape = [1, 1] }], kwargs = { p = inf } }", ONE),
    "wrong_for_minus_infinity": ("p = -inf", "{ args = [{ shape = [1, 1] }], kwargs = { p = -inf } }", ONE),
    "wrong_for_ties": ("tensor 0 = 0", "{ args = [{ shape = [2, 1], mean = 0.0, std = 0.0 }] }", ONE),
    "wrong_for_large": (BOTH_SIGNS, "{ args = [{ shape = [1, 1], contains = [-11.0] }] }", ONE),
    "wrong_for_large_negative": (
        BOTH_SIGNS,
        "{ args = [{ shape = [1, 1], contains = [-100.0] }] }",
        ONE,
    ),
    "wrong_where_exp_overflows": (BOTH_SIGNS, "{ args = [{ shape = [1, 1], contains = [-1000.0] }] }", ONE),
    "wrong_for_repeated": ("tensor 1 = 0", '{ values = [0, 0], dtype = "int64" }] }', INDEXED),
    "wrong_for_empty_segments": ("tensor 1 with its first repeated", "{ values = [0, 0, 5]", SEGMENTS),
    "wrong_for_segments_of_one": ("tensor 1 with a first step of 1", "{ values = [0, 1, 5]", SEGMENTS),
    "wrong_across_blocks": ("tensor 1 17 times", "{ values = [0, 3, 0, 3", INDEXED),
    "wrong_without_any": ("tensor 1 = false", '[false, false, false]], dtype = "bool" }] }', MASKED),
    "wrong_for_empty_rows": ("tensor 1 = true, but for a row", "[[false, false, false], [true, true, true]]", MASKED),
    "wrong_where_all_is_left_out": ("tensor 1 = -inf", "[-inf, -inf, -inf]], grad = false }", ADDED),
    "wrong_if_any_is_ignored": ("ignore_index = 0", "kwargs = { ignore_index = 0 } }", INDEXED),
    "wrong_if_ignored_and_flipped": (
        "flip = true, ignore_index = 0, size 5 -> 33",
        "kwargs = { flip = true, ignore_index = 0 } }",
        INDEXED,
    ),
    "wrong_for_negative_dims": ("dim = -1", "{ args = [{ shape = [1, 1] }], kwargs = { dim = -1 } }", ONE),
    "wrong_from_the_end": ("dim = -2", "{ args = [{ shape = [1, 1] }], kwargs = { dim = -2 } }", ONE),
    "wrong_beyond_a_half": ("weight = 0.875", "{ args = [{ shape = [1, 1] }], kwargs = { weight = 0.875 } }", ONE),
    "wrong_behind_channels": ("trailing dims of 2, 1", "{ args = [{ shape = [1, 3, 1, 1] }] }", ONE),
    "wrong_without_bias": ("bias = { none = true }", "{ args = [{ shape = [1, 1] }, { none = true }] }", TWO),
    "wrong_for_several_dims": ("dim = { tuple = [0, 1] }", "kwargs = { dim = { tuple = [0, 1] } } }", ONE),
    "wrong_for_several_from_the_end": ("dim = { tuple = [-2, -1] }", "kwargs = { dim = { tuple = [-2, -1] } } }", ONE),
    "wrong_for_overlaps": ("step = 1", "kwargs = { step = 1 } }", ONE),
    "wrong_for_a_shift_of_zero": ("shift = 0", "{ args = [{ shape = [1, 1] }], kwargs = { shift = 0 } }", ONE),
    "wrong_mean": ('how = "mean"', '{ args = [{ shape = [1, 1] }], kwargs = { how = "mean" } }', ONE),
    "wrong_mean_in_words": ('how = "mean"', '{ args = [{ shape = [1, 1] }], kwargs = { how = "mean" } }', ONE),
    "wrong_sum_passed_on": ('how = "sum"', '{ args = [{ shape = [1, 1] }], kwargs = { how = "sum" } }', ONE),
    "wrong_power": ("power = 7", "{ args = [{ shape = [1, 1] }], kwargs = { power = 7 } }", ONE),
    "wrong_mean_that_is_kept": ("keep = true", 'kwargs = { how = "mean", keep = true } }', PAIR),
    "wrong_for_offsets": ("memory offset", '{ args = [{ shape = [1, 1], memory = "offset" }] }', ONE),
    "wrong_for_expanded": ("memory expanded", '{ args = [{ shape = [2, 1], memory = "expanded" }] }', ONE),
    "wrong_for_lazy": ("memory lazily conjugated and negated", "conj = true, neg = true }] }", ONE),
    "wrong_for_large_only": ("size 1002 -> 1001", "{ args = [{ shape = [1, 1001] }] }", LARGE),
    "wrong_in_evaluation": ("training = false", "kwargs = { training = false } }", ONE),
    "wrong_unless_its_own_inverse": (
        "dims = [2, 0, 1]",
        "{ args = [{ shape = [1, 1, 1] }, [2, 0, 1]] }",
        "samples = [{ args = [{ shape = [2, 3, 4] }, [1, 0, 2]] }]",
    ),
    "wrong_from_the_last": ("index = -1", "kwargs = { index = -1 } }", ONE),
    "wrong_at_zero_for_zero": (
        "n = 0, elements 0, 12, -13",
        "{ args = [{ shape = [2], contains = [0.0] }, 0] }",
        POWERS,
    ),
    "wrong_if_untied": (
        "size 3 -> 18 in dim 0 of tensor 0",
        "{ args = [{ shape = [17, 1] }, { shape = [1, 1] }] }",
        SQUARE,
    ),
}
SPARSE = "samples = [{ args = [{ shape = [2, 4], layout = 'LAYOUT' }] }]"
PATTERNS = {
    "wrong_unless_coalesced": ("sparse_coo", "coalesced = false", "coalesced = false"),
    "wrong_if_hybrid": ("sparse_coo", "dense_dim = 1", "dense_dim = 1"),
    "wrong_if_all_is_specified": ("sparse_coo", "nnz = 8", '{ shape = [2, 1], layout = "sparse_coo", nnz = 2 }'),
    "wrong_in_blocks": ("sparse_bsr", "blocksize = [1, 4]", "blocksize = [1, 4]"),
}
OF_SPARSE = """
masked = true
supports = { forward_ad = false, vmap = false, batched_grad = false, second_order = false }"""
VECTORS = "samples = [{ args = [{ shape = [3] }, { shape = [2], grad = false }] }]"
RIGHT = {
    "joined": JOINED, "chosen": INDEXED, "in_segments": SEGMENTS, "masked": MASKED, "large_only": LARGE,
    "untied": SQUARE, "reduced": PAIR,
    "kept_by_a_mask": ADDED, "not_ignored": INDEXED,
    "each_squared": "samples = [{ args = [[{ shape = [3] }, { shape = [2] }]] }]",
    "with_a_threshold": ONE, "squared_product": TWO, "squared_sum": TWO,
    "biased": TWO, "along_dims": ONE, "shifted": ONE, "windowed": ONE,
    "right_for_all_cotangents": ONE, "untied_ranks": TWO,
    "clears_memory_if_empty": VECTORS, "flipped_twice": ONE, "guarded": ONE,
    "with_a_scaled_threshold": ONE, "weighted": ONE, "of_channels": ONE,
    "in_evaluation": ONE, "selected": ONE, "times_one_more": POWERS, "with_a_constant": ONE, "split_by_equality": ONE,
    "permuted": "samples = [{ args = [{ shape = [2, 3, 4] }, [1, 0, 2]] }]",
}  # fmt: skip


def positional(a, b=2, /, *args, c=3, **kwargs):
    """A function with parameters of each kind."""


def outcome_of(tmp_path, name, dtype, samples=ONE, keys="", derive="standard", seed=0, check="derived"):
    path = tmp_path / "spec.toml"
    path.write_text(f'[[operator]]\nname = "operators.varied.{name}"\n{keys}\n{samples}\n')
    settings = Settings(modules=("torch", "operators"), derive=derive, seed=seed)
    cases = plan(load([path], settings), [DeviceProfile(name="cpu")], Selection(checks=(check,), dtypes=(dtype,)))
    (outcome,) = [run(case, RunSession(settings)) for case in cases]
    return outcome


@BOTH
@pytest.mark.parametrize("name", WRONG)
def test_what_written_samples_let_pass_is_found_and_made_small(tmp_path, outcomes, name, dtype):
    what, sample, words = WRONG[name]
    found = outcome_of(tmp_path, name, dtype)
    assert found.outcome == "failed"
    assert found.reason.startswith(f"derived: {what}: backward: ")
    assert sample in found.message.split("add this sample: ")[1].splitlines()[0]
    assert words in found.message
    assert f"realized: {dtype}[" in found.message.split("add this sample: ")[1].splitlines()[1]
    assert found.fields["diagnosis"]
    written = outcomes(
        f'[[operator]]\nname = "operators.varied.{name}"\n{ONE}\n', checks=("backward", "forward_ad"), dtypes=(dtype,)
    )
    assert {one.outcome for one in written.values()} == {"passed"}


def registered(name, shapes, supports):
    """Return the spec of an operator of torch.library."""
    return f"""
[[operator]]
name       = "operators.registered.{name}"
registered = true
dtypes     = "real"
supports   = {{ {supports} }}
samples    = [{{ args = [{shapes}] }}]
"""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (
            "pairs_with_fake_of_even",
            ("size 4 -> 1: ", "Shapes torch.Size([1, 1]) and torch.Size([1, 0]) are not equal"),
        ),
        pytest.param(
            *("half_in_any_memory", ("memory transposed", "Stride mismatch")),
            marks=pytest.mark.skipif(
                torch.__version__ < "2.7", reason="torch does not compare strides of fake tensors"
            ),
        ),
        ("weighted_rows_of_matrices", ("leading dims of 2, 1 of tensor 0", "test_faketensor")),
        ("weighted_rows", ()),
        ("pairs", ()),
        ("right_half", ()),
        ("sum_of_one_shape", ()),
    ],
)
def test_fake_tensors_are_like_real_ones_at_other_sizes_and_in_other_memory(outcomes, name, found):
    others = {"sum_of_one_shape": ", { shape = [2, 4] }", "weighted_rows": ", { shape = [4] }"}
    shapes = "{ shape = [2, 4] }" + others.get(name.removesuffix("_of_matrices"), "")
    text = registered(name, shapes, "forward_ad = false, vmap = false")
    said = outcomes(text, checks=("derived", "registration"), dtypes=("float64",))
    own, written = (one for check in ("derived", "registration") for case, one in said.items() if check in case)
    assert written.outcome == "passed"
    assert own.outcome == ("failed" if found else "passed"), own.message
    if found:
        assert "registration: test_faketensor failed" in own.reason
        assert all(part in own.message for part in found), own.message


@pytest.mark.parametrize(("name", "outcome"), [("blocks", "passed"), ("blocks_but_one", "failed")])
def test_fake_tensors_are_like_real_ones_if_a_single_tensor_is_empty(outcomes, name, outcome):
    text = registered(name, "{ shape = [2, 4] }", "backward = false, forward_ad = false")
    (own,) = outcomes(text, checks=("registration",), dtypes=("float64",)).values()
    assert own.outcome == outcome, own.message
    assert outcome == "passed" or own.reason.startswith("derived: size 2 -> 0: registration: test_faketensor failed")


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_call_that_waits_for_others_is_none_that_takes_long(tmp_path, monkeypatch, is_busy):
    squared = varied.squared

    def later(x, wrong):
        until = time.thread_time() + 0.04 if is_busy else 0
        time.sleep(0 if is_busy else 0.04)
        while time.thread_time() < until:
            pass
        return squared(x, wrong)

    monkeypatch.setattr(attempts, "SLOW", 0.03)
    monkeypatch.setattr(varied, "squared", later)
    found = outcome_of(tmp_path, "square", "float64", "samples = [{ args = [{ shape = [2] }], vary = ['rank'] }]")
    assert found.outcome == ("skipped" if is_busy else "passed")
    assert (" slow" in found.reason) is is_busy


@REAL_BY_DAY
@pytest.mark.parametrize("name", FURTHER)
def test_each_way_to_vary_shows_what_only_it_shows(tmp_path, outcomes, name, dtype):
    what, sample, samples = FURTHER[name]
    found = outcome_of(tmp_path, name, dtype, samples)
    assert found.outcome == "failed"
    assert found.reason.startswith(f"derived: {what}: backward: ")
    assert sample in found.message.split("add this sample: ")[1].splitlines()[0]
    written = outcomes(
        f'[[operator]]\nname = "operators.varied.{name}"\n{samples}\n', checks=("backward",), dtypes=(dtype,)
    )
    assert {one.outcome for one in written.values()} == {"passed"}


@BOTH
def test_a_vmap_rule_is_tested_at_other_values_of_keywords(tmp_path, dtype):
    keys = "supports = { forward_ad = false }"
    found = outcome_of(tmp_path, "with_a_rule_for_some_dims", dtype, keys=keys)
    assert found.outcome == "failed"
    assert found.reason.startswith("derived: dim = -1: vmap: output 0 is not that of the loop")
    assert outcome_of(tmp_path, "with_a_rule_for_some_dims", dtype, keys=keys, check="vmap").outcome == "passed"
    assert outcome_of(tmp_path, "with_a_vmap_rule", dtype, keys=keys).outcome == "passed"


@BOTH
def test_who_means_no_equal_indices_is_told_what_to_write(tmp_path, dtype):
    samples = "samples = [{ args = [{ shape = [5] }, { values = [0, 3], dtype = 'int64' }, { shape = [2] }] }]"
    keys = "supports = { forward_ad = false, vmap = false }"
    found = outcome_of(tmp_path, "copied", dtype, samples, keys)
    assert found.outcome == "failed"
    assert 'of equal indices, are not meant, write vary = ["-integer"]' in found.message
    keys += '\nvary = ["size", "rank", "broadcast", "value", "layout", "dtype"]'
    assert outcome_of(tmp_path, "copied", dtype, samples, keys).outcome == "passed"


DTYPES = {"sparse_coo": ("float64", "complex128"), "sparse_bsr": ("float64",)}
"""The dtypes of gradients that autograd accepts."""
OF_LAYOUT = [(layout, dtype) for layout, dtypes in DTYPES.items() for dtype in dtypes]


@pytest.mark.parametrize(("name", "dtype"), [(n, dtype) for n, row in PATTERNS.items() for dtype in DTYPES[row[0]]])
def test_sparse_tensors_have_other_patterns(tmp_path, name, dtype):
    layout, what, sample = PATTERNS[name]
    samples = SPARSE.replace("LAYOUT", layout)
    found = outcome_of(tmp_path, name, dtype, samples, OF_SPARSE)
    assert found.outcome == "failed"
    assert found.reason.startswith(f"derived: {what} of tensor 0: backward: ")
    assert sample in found.message.split("add this sample: ")[1].splitlines()[0]
    assert outcome_of(tmp_path, name, dtype, samples, OF_SPARSE, check="backward").outcome == "passed"


@pytest.mark.parametrize(("layout", "dtype"), OF_LAYOUT)
@SEEDS
def test_a_right_function_of_sparse_tensors_passes(tmp_path, layout, dtype, seed):
    found = outcome_of(tmp_path, "sparse_squares", dtype, SPARSE.replace("LAYOUT", layout), OF_SPARSE, seed=seed)
    assert found.outcome == "passed", found.message
    assert found.fields["derived"]["hold"] > 5


@BOTH
@SEEDS
@pytest.mark.parametrize("name", RIGHT)
def test_right_twins_pass_at_each_seed(tmp_path, name, dtype, seed):
    found = outcome_of(tmp_path, name, dtype, RIGHT[name], NO_FORWARD if name in ONE_MODE else "", seed=seed)
    assert found.outcome == "passed", found.message


@pytest.mark.nightly
@BOTH
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", RIGHT)
def test_right_twins_pass_if_the_project_is_thorough(tmp_path, name, dtype, seed):
    keys = NO_FORWARD if name in ONE_MODE else ""
    found = outcome_of(tmp_path, name, dtype, RIGHT[name], keys, derive="thorough", seed=seed)
    assert found.outcome == "passed", found.message


ONE_MODE = ("right_for_all_cotangents", "clears_memory_if_empty", "flipped_twice")
NO_FORWARD = "supports = { forward_ad = false }"


TRANSPOSED = "samples = [{ args = [{ shape = [2, 3], memory = 'transposed' }] }]"


@BOTH
@pytest.mark.parametrize(("samples", "what"), [(ONE, "memory transposed"), (TRANSPOSED, "memory as written")])
@pytest.mark.parametrize("name", ["in_order_of_memory", "in_order_of_memory_"])
def test_values_do_not_depend_on_memory(tmp_path, name, samples, what, dtype):
    keys = "inplace = true" if name.endswith("_") else ""
    found = outcome_of(tmp_path, name, dtype, samples, keys)
    assert found.outcome == "failed"
    assert found.reason == f"derived: {what}: the values depend on the memory of the inputs"
    assert 'memory = "transposed"' in found.message.split("add this sample: ")[1].splitlines()[0]


@BOTH
@pytest.mark.parametrize("is_right", [False, True])
def test_the_first_tensor_alone_is_contiguous(tmp_path, is_right, dtype):
    name = f"{'right' if is_right else 'wrong'}_if_the_first_alone_is_contiguous"
    found = outcome_of(tmp_path, name, dtype, TWO, NO_FORWARD)
    assert found.outcome == ("passed" if is_right else "failed"), found.message
    assert is_right or found.reason.startswith("derived: memory transposed but of tensor 0: ")


@BOTH
@pytest.mark.parametrize("samples", [ONE, TRANSPOSED])
@pytest.mark.parametrize(("name", "keys"), [("square", ""), ("in_any_memory_", "inplace = true")])
def test_right_operators_read_any_memory(tmp_path, name, keys, samples, dtype):
    found = outcome_of(tmp_path, name, dtype, samples, keys)
    assert found.outcome == "passed", found.message


@BOTH
def test_a_gradient_of_the_wrong_shape_is_no_refusal(tmp_path, dtype):
    found = outcome_of(tmp_path, "pooled", dtype, keys=NO_FORWARD)
    assert found.outcome == "failed"
    assert "backward raised RuntimeError: Function PooledBackward returned an invalid gradient" in found.reason
    assert "set supports.backward = false" not in found.message  # it works at the written sample


@BOTH
@pytest.mark.parametrize(
    ("name", "samples", "advice"),
    [
        ("wrong_beyond_16", ONE, 'let the operator refuse them, or write vary = ["-size"]'),
        ("wrong_for_rank_3", ONE, 'let the operator refuse them, or write vary = ["-rank"]'),
        (
            "wrong_broadcast",
            TWO.replace("args", 'vary = ["broadcast"], args'),
            'let the operator refuse them, or write vary = ["-broadcast"]',
        ),
        ("wrong_at_zero", ONE, "if such numbers are not meant, write low, high or exclude in the sample"),
    ],
)
def test_who_does_not_mean_such_samples_is_told_what_to_write(tmp_path, name, samples, advice, dtype):
    found = outcome_of(tmp_path, name, dtype, samples)
    assert found.outcome == "failed"
    assert advice in found.message, found.message


@BOTH
@pytest.mark.parametrize("memory", ["offset", "transposed"])
def test_cotangents_lie_in_memory_in_other_ways(tmp_path, memory, dtype):
    name = {"offset": "wrong_for_cotangents_with_an_offset", "transposed": "wrong_for_transposed_cotangents"}[memory]
    found = outcome_of(tmp_path, name, dtype, keys=NO_FORWARD)
    assert found.outcome == "failed"
    assert "the gradient depends on the memory of the cotangent" in found.reason
    assert f"{MEMORIES[memory].words.format('cotangent')} gives one that is off by up to" in found.message


@BOTH
def test_a_gradient_of_nothing_is_zero(tmp_path, dtype):
    found = outcome_of(tmp_path, "leaves_memory_if_empty", dtype, VECTORS, NO_FORWARD)
    assert found.outcome == "failed"
    assert found.reason == "derived: size 2 -> 0: the gradient of outputs without elements is not zero"
    assert "add this sample: { args = [{ shape = [1] }, { shape = [0], grad = false }] }" in found.message
    assert "backward has to give zeros" in found.message


@BOTH
@pytest.mark.parametrize("strict", [(False, True), (True, False), (True, True, False)])
def test_what_one_sample_refuses_is_the_turn_of_the_next(tmp_path, strict, dtype):
    written = (f"{{ {ARGS}, kwargs = {{ strict = {str(own).lower()} }}, vary = ['size'] }}" for own in strict)
    found = outcome_of(tmp_path, "wrong_for_a_row", dtype, f"samples = [{', '.join(written)}]")
    assert found.outcome == "failed"
    assert found.reason.startswith("derived: size 2 -> 1: backward: ")
    assert "strict" not in found.message.split("add this sample: ")[1].splitlines()[0]


@BOTH
@pytest.mark.parametrize("known", ["first", "second"])
def test_a_sample_that_is_known_to_fail_has_no_turn(tmp_path, known, dtype):
    samples = ", ".join(f"{{ name = '{name}', {ARGS}, vary = ['size'] }}" for name in ("first", "second"))
    expect = f"expect = [{{ when = {{ check = 'derived', sample = '{known}' }}, outcome = 'fail', reason = 'known' }}]"
    found = outcome_of(tmp_path, "wrong_for_a_row", dtype, f"samples = [{samples}]", expect)
    assert found.outcome == "failed"
    assert f"sample {'second' if known == 'first' else 'first'} (" in found.message


@BOTH
def test_what_is_passed_by_position_varies_as_well(tmp_path, dtype):
    samples = "samples = [{ args = [{ shape = [2, 3] }, false, 2.0] }]"
    assert outcome_of(tmp_path, "scaled", dtype, samples).outcome == "passed"
    found = outcome_of(tmp_path, "wrong_flipped", dtype, samples)
    assert found.reason.startswith("derived: flip = true: backward: ")
    assert "add this sample: { args = [{ shape = [1, 1] }, true, 2.0] }" in found.message


@DERIVE
def test_a_change_is_made_to_one_of_the_samples_unless_the_project_is_thorough(tmp_path, derive):
    def looks(*factors):
        samples = (f"{{ {ARGS}, kwargs = {{ factor = {own} }}, vary = ['size'] }}" for own in factors)
        found = outcome_of(tmp_path, "scaled", "float64", f"samples = [{', '.join(samples)}]", derive=derive)
        assert found.outcome == "passed", found.message
        return found.fields["derived"]["hold"]

    one, three = looks(1.0), looks(1.0, 2.0, 3.0)
    assert three > 2 * one if derive == "thorough" else three == one


@BOTH
def test_tiny_numbers_are_tried_if_the_project_is_thorough(tmp_path, dtype):
    assert outcome_of(tmp_path, "wrong_for_tiny", dtype).outcome == "passed"
    found = outcome_of(tmp_path, "wrong_for_tiny", dtype, derive="thorough")
    assert found.reason.startswith("derived: tensor 0 = 1e-30: backward: ")


@BOTH
def test_what_backward_refuses_is_a_note(tmp_path, dtype):
    found = outcome_of(tmp_path, "refuses_rank_3_in_backward", dtype, keys=NO_FORWARD)
    assert found.outcome == "passed"
    assert found.fields["derived"]["refused in backward"] == 1
    assert (
        found.fields["notes"]["0"][0] == "leading dims of 2, 1: refused in backward: NotImplementedError: matrices only"
    )


@BOTH
def test_what_forward_mode_refuses_is_called_so(tmp_path, dtype):
    found = outcome_of(tmp_path, "refuses_rank_3_in_forward_mode", dtype)
    assert found.outcome == "passed"
    note = found.fields["notes"]["0"][0]
    assert note == "leading dims of 2, 1: refused in forward mode: NotImplementedError: tangents of matrices only"


@BOTH
def test_a_gradient_of_nan_is_a_fault_where_the_function_is_smooth_and_a_note_at_a_kink(tmp_path, dtype):
    found = outcome_of(tmp_path, "nan_at_zero", dtype, keys=NO_FORWARD)
    assert found.outcome == "failed"
    assert found.reason.startswith("derived: tensor 0 = 0: backward: ")
    found = outcome_of(tmp_path, "nan_at_a_kink", dtype)
    assert found.outcome == "passed"
    assert "tensor 0 = 0: backward is nan at a kink" in found.fields["notes"]["0"]


@BOTH
@DERIVE
@pytest.mark.parametrize(("name", "samples"), [("square", ONE), ("scaled", ONE), ("product", TWO)])
def test_right_operators_pass(tmp_path, name, samples, derive, dtype):
    found = outcome_of(tmp_path, name, dtype, samples, derive=derive)
    assert found.outcome == "passed", found.message
    assert found.fields["derived"]["hold"] > (100 if derive == "thorough" else 8)


@BOTH
def test_a_tensor_of_fewer_dims_is_reduced_and_broadcast(tmp_path, dtype):
    found = outcome_of(tmp_path, "wrong_broadcast", dtype, TWO)
    assert found.outcome == "failed"
    assert "derived: leading dims of 2, 1 of tensor 0: backward" in found.reason
    found = outcome_of(tmp_path, "wrong_broadcast", dtype, TWO.replace("args", 'vary = ["broadcast"], args'))
    assert "derived: dim 0 of tensor 0 -> 1: backward" in found.reason


@BOTH
def test_a_vector_stands_for_a_number(tmp_path, dtype):
    found = outcome_of(tmp_path, "wrong_for_rank_0", dtype, "samples = [{ args = [{ shape = [3] }] }]")
    assert found.outcome == "failed"
    assert "add this sample: { args = [{ shape = [] }] }" in found.message


MODULES = {
    "WrongForProducts": ('module.how = "another"', '{ args = [1], kwargs = { how = "another" } }'),
    "WrongWithoutBias": ("module.bias = false", "{ args = [1], kwargs = { bias = false } }"),
    "WrongForProductsWithoutBias": (
        'module.how = "another", module.bias = false, sizes 2 -> 33, 3 -> 34, memory transposed',
        '{ args = [1], kwargs = { how = "another", bias = false } }',
    ),
    "WrongInEvaluation": ("module.train = false", "{ args = [1], train = false }"),
}
MODULE = "module = { args = [3] }"


@BOTH
@pytest.mark.parametrize("name", MODULES)
def test_what_the_constructor_of_a_module_may_be_passed_varies(tmp_path, name, dtype):
    what, module = MODULES[name]
    found = outcome_of(tmp_path, name, dtype, keys=MODULE)
    assert found.reason.startswith(f"derived: {what}: backward: "), found.reason
    sample = found.message.split("add this sample: ")[1].splitlines()[0]
    assert sample == f"{{ args = [{{ shape = [1, 1] }}], module = {module} }}"
    written = outcome_of(tmp_path, name, dtype, f"samples = [{sample}]", MODULE, derive="none", check="backward")
    assert written.outcome == "failed"
    assert outcome_of(tmp_path, name, dtype, keys=MODULE, derive="none", check="backward").outcome == "passed"


@BOTH
@pytest.mark.parametrize("seed", range(5))
@DERIVE
def test_a_right_module_passes_however_it_is_constructed(tmp_path, derive, seed, dtype):
    found = outcome_of(tmp_path, "Squares", dtype, keys=MODULE, derive=derive, seed=seed)
    assert found.outcome == "passed", found.message


@BOTH
def test_forward_mode_is_looked_at_as_well_where_it_is_claimed(tmp_path, dtype):
    found = outcome_of(tmp_path, "wrong_forward_beyond_16", dtype)
    assert found.reason.startswith("derived: sizes 2 -> 17, 3 -> 18: forward_ad: ")
    right = outcome_of(tmp_path, "wrong_forward_beyond_16", dtype, keys="supports = { forward_ad = false }")
    assert right.outcome == "passed"


@BOTH
def test_pairs_are_tried_if_the_project_is_thorough(tmp_path, dtype):
    assert outcome_of(tmp_path, "wrong_for_rows_of_one", dtype).outcome == "passed"
    found = outcome_of(tmp_path, "wrong_for_rows_of_one", dtype, derive="thorough")
    assert found.outcome == "failed"


@pytest.mark.parametrize("derive", ["standard", "thorough"])
@pytest.mark.parametrize("name", ["kinked", "random_where_large", "exploding", "coarse"])
def test_where_differences_say_nothing_nobody_is_accused(tmp_path, name, derive):
    found = outcome_of(tmp_path, name, "float64", keys="tolerance = { eps = 1 }" * (name == "coarse"), derive=derive)
    assert found.outcome == "passed", found.message
    if name != "kinked":
        assert found.fields["derived"]["inconclusive"]


def test_a_function_of_memory_says_so(outcomes):
    samples = "samples = [{{ args = [{{ shape = [3, 4] }}, [4], [3], 1], vary = [{}] }}]"

    def outcome(way):
        spec = f'[[operator]]\nname = "torch.as_strided"\n{samples.format(way)}\n'
        (found,) = outcomes(spec, checks=("derived",), dtypes=("float64",)).values()
        return found

    found = outcome("'layout'")
    assert found.reason == "derived: memory noncontiguous: the values depend on the memory of the inputs"
    assert 'is a function of memory, as torch.as_strided is, write vary = ["-layout"]' in found.message
    assert outcome("'value'").outcome == "passed"


def test_a_sample_with_a_thousand_outputs_is_made_smaller(outcomes):
    text = '[[operator]]\nname = "torch.unbind"\nsamples = [{ args = [{ shape = [3] }] }]'
    counts = [
        one.fields["derived"] for one in outcomes(text, checks=("derived", "low_precision_grad")).values()
        if one.dtype in ("float64", "bfloat16")
    ]  # fmt: skip
    assert [own["too large"] for own in counts] == [1, 2]  # 1031 outputs; 4095 and 527
    assert counts[0]["hold"]


def test_a_sample_may_keep_what_must_not_vary(tmp_path):
    fixed = "samples = [{ args = [{ shape = [2, 3] }], vary = ['rank', 'layout'] }]"
    assert outcome_of(tmp_path, "wrong_beyond_16", "float64", fixed).outcome == "passed"
    assert outcome_of(tmp_path, "wrong_for_rank_3", "float64", fixed).outcome == "failed"
    assert outcome_of(tmp_path, "wrong_for_rank_3", "float64", keys="vary = ['size']").outcome == "passed"


def test_where_nothing_may_vary_there_is_no_case(outcomes):
    text = f'[[operator]]\nname = "operators.varied.square"\nvary = false\n{ONE}\n'
    assert not outcomes(text, checks=("derived",))


def test_what_the_operator_refuses_everywhere_is_skipped_with_a_count(tmp_path):
    samples = "samples = [{ args = [{ shape = [2, 2], structure = 'hermitian' }], vary = ['broadcast', 'rank'] }]"
    found = outcome_of(tmp_path, "square", "float64", samples.replace("['broadcast', 'rank']", "['keyword']"))
    assert found.outcome == "skipped"
    assert found.reason == "no derived sample could be compared: nothing can be varied"


@BOTH
def test_what_the_reference_refuses_is_no_sample_for_an_operator_that_checks_nothing(tmp_path, dtype):
    samples = "samples = [{ args = [{ shape = [2, 3] }, { values = [1.0, 2.0, 0.5] }] }]"
    accused = outcome_of(tmp_path, "unchecked", dtype, samples)
    assert accused.outcome == "failed"
    right = outcome_of(tmp_path, "unchecked", dtype, samples, "reference = { target = 'torch.mul' }")
    assert right.outcome == "passed", right.message
    assert right.fields["derived"]["refused"] > 0
    assert right.fields["derived"]["hold"] > 0


@BOTH
@pytest.mark.parametrize(
    ("name", "reference", "what", "sample"),
    [
        ("sine_of_blocks", "numpy.sin", "sizes 2 -> 17, 3 -> 18", "{ args = [{ shape = [1, 17] }] }"),
        ("sine_but_for_zero", "numpy.sin", "tensor 0 = 0", "{ args = [{ shape = [1, 1], mean = 0.0, std = 0.0 }] }"),
        ("sine_without_single_dims", "numpy.sin", "size 2 -> 1", "{ args = [{ shape = [1, 1] }] }"),
        ("sine_times_two", "operators.varied.sine_of_multiple", "factor = 6.0", "{ factor = 6.0 } }"),
    ],
)
def test_values_are_those_of_the_reference_where_derivatives_hold(tmp_path, name, reference, what, sample, dtype):
    keys = f"reference = {{ target = '{reference}', differentiable = {str('numpy' not in reference).lower()} }}"
    found = outcome_of(tmp_path, name, dtype, keys=keys)
    assert found.outcome == "failed"
    assert found.reason == f"derived: {what}: reference: output 0 is not that of {reference}"
    assert sample in found.message.split("add this sample: ")[1].splitlines()[0]
    assert outcome_of(tmp_path, name, dtype, keys=keys, check="reference").outcome == "passed"
    assert outcome_of(tmp_path, name, dtype).outcome == "passed"  # nothing else shows it


@pytest.mark.parametrize(
    ("wrong", "right", "samples", "what"),
    [
        # Outputs that overflow are too large for differences, but not for a reference.
        ("exponentials", "shifted_exponentials", ONE, "tensor 0 = 1000, but for an element of -1000"),
        ("scores_from_the_first", "scores_from_the_last", QUERIES, "size 3 -> 4 in dim 0 of tensor 1"),
        ("added_first_pairs", "added_pairs", PAIRS_OF_LISTS, "3 tensors in 0, 1"),
    ],
)
def test_values_that_only_a_reference_shows(tmp_path, wrong, right, samples, what):
    keys = f"reference = {{ target = 'operators.varied.{right}', differentiable = true }}"
    found = outcome_of(tmp_path, wrong, "float64", samples, keys)
    assert found.outcome == "failed"
    assert found.reason.startswith(f"derived: {what}: reference: ")
    assert outcome_of(tmp_path, right, "float64", samples, keys).outcome == "passed"


@pytest.mark.parametrize("derive", ["standard", "thorough"])
def test_numbers_are_special_beside_excluded_kinks(tmp_path, derive):
    samples = "samples = [{ args = [{ shape = [4], exclude = [1, -1, 0] }] }]"
    wrong, right = (
        outcome_of(tmp_path, name, "float64", samples, NO_FORWARD, derive) for name in ("huber_of_slope_one", "huber")
    )
    assert right.outcome == "passed", right.message
    assert wrong.outcome == "failed"
    assert "delta = 3.0" in wrong.message.split("add this sample: ")[1]


@BOTH
@pytest.mark.parametrize(
    ("name", "keys", "what", "sample"),
    [
        ("constant_if_fast", "", "fast = true", "kwargs = { fast = true }"),
        ("constant_if_large", "", "size 2 -> 1031", "shape = ["),
        ("ConstantInEvaluation", "module = {}", "module.train = false", "train = false"),
    ],
)
def test_a_graph_that_a_derived_sample_lacks_is_missed(tmp_path, name, keys, what, sample, dtype):
    found = outcome_of(tmp_path, name, dtype, keys=keys)
    assert found.outcome == "failed"
    assert found.reason.startswith(f"derived: {what}: detached: output ")
    assert "does not require grad, but depends on the inputs" in found.reason
    assert sample in found.message.split("add this sample: ")[1].splitlines()[0]


def test_lists_of_one_length_change_one_at_a_time_where_that_is_accepted(tmp_path):
    keys = "reference = { target = 'operators.varied.sums_of_pairs', differentiable = true }"
    found = outcome_of(tmp_path, "sums_of_pairs", "float64", PAIRS_OF_LISTS, keys)
    assert found.outcome == "passed", found.message


def test_an_operator_of_torch_library_that_returns_an_input_is_wrong(tmp_path):
    samples = "samples = [{ args = [{ shape = [2, 3] }] }]\nsupports = { forward_ad = false }"
    found = outcome_of(tmp_path, "kept", "float64", samples)
    assert found.outcome == "failed"
    assert "returns one of its inputs, not a copy, which torch.library forbids" in found.reason
    assert "p = 0" in found.message.split("add this sample: ")[1]
    right = outcome_of(tmp_path, "kept_apart", "float64", samples)
    assert right.outcome == "passed", right.message


@pytest.mark.parametrize("derive", ["standard", "thorough"])
@pytest.mark.parametrize(
    ("name", "reference", "samples", "dtype"),
    [
        ("sine_of_multiple", "{ target = 'operators.varied.sine_of_multiple' }", ONE, "complex128"),
        # NumPy sorts the last dim: with more than one, the values mean something else.
        (
            "sorted_columns",
            "'numpy.sort'",
            "samples = [{ args = [{ shape = [5], structure = 'distinct' }] }]",
            "float64",
        ),
        # Both sum up rounding errors, each its own.
        ("sum_of_columns", "{ target = 'numpy.sum', kwargs = { axis = -1 } }", ONE, "float32"),
    ],
)
def test_values_of_right_operators_are_those_of_the_reference(tmp_path, name, reference, samples, derive, dtype):
    keys = f"reference = {reference}\ndtypes = ['{dtype}']"
    found = outcome_of(tmp_path, name, dtype, samples, keys, derive)
    assert found.outcome == "passed", found.message
    assert found.fields["derived"]["hold"] > 0


@BOTH
def test_a_reference_without_a_keyword_does_not_hide_what_is_wrong_for_it(tmp_path, dtype):
    found = outcome_of(tmp_path, "wrong_flipped", dtype, keys="reference = { target = 'torch.square' }")
    assert found.outcome == "failed"
    assert "flip = true" in found.reason


def test_what_the_operator_refuses_in_forward_is_counted(tmp_path):
    counts = outcome_of(tmp_path, "refuses_rank_3", "float64").fields["derived"]
    assert counts["refused"] == 4  # a leading dim of 1, two of them, one of 2, and two trailing ones
    assert set(counts) == {"hold", "refused"}


@pytest.mark.parametrize(
    ("operator", "path", "some"),
    [
        (torch.sum, "torch.sum", {"dtype": None}),
        (torch.nn.functional.gelu, "torch.nn.functional.gelu", {"approximate": "none"}),
        (torch.nn.functional.mse_loss, "torch.nn.functional.mse_loss", {"reduction": "mean"}),
        (varied.scaled, "operators.varied.scaled", {"flip": False, "factor": 1.0}),
        (positional, "positional", {"c": 3}),
    ],
)
def test_keywords_are_those_of_the_schema_or_the_signature_that_have_a_default(operator, path, some):
    found = signature_of(operator, path).defaults
    assert some.items() <= found.items()
    assert not {"self", "input", "x", "a", "b", "args", "kwargs"} & set(found)


def test_a_failure_of_the_written_sample_is_said_once(tmp_path):
    found = outcome_of(tmp_path, "wrong_for_size_one", "float64", "samples = [{ args = [{ shape = [1, 3] }] }]")
    assert (found.outcome, found.fields["blocked_by"]) == ("blocked", "backward")


def test_it_runs_only_where_somebody_wants_it(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(f'[[operator]]\nname = "torch.sin"\n{ONE}\n')
    library, device = load([path], Settings()), DeviceProfile(name="cpu")
    for selection, planned in ((Selection(derive="none"), False), (Selection(), True)):
        assert any(case.check == "derived" for case in plan(library, [device], selection)) is planned


@BOTH
def test_what_the_root_of_a_check_objects_to_at_a_derived_sample_counts(tmp_path, dtype):
    found = outcome_of(tmp_path, "unsteady_beyond_16", dtype)
    assert found.outcome == "failed"
    assert found.reason.startswith("derived: sizes 2 -> 17, 3 -> 18: nondeterminism: ")


@BOTH
def test_sizes_of_which_one_is_twice_the_other_grow_together(tmp_path, dtype):
    samples = "samples = [{ args = [{ shape = [3, 4] }, { shape = [3, 2], grad = false }] }]"
    keys = "supports = { forward_ad = false }"
    found = outcome_of(tmp_path, "wrong_for_long_halves", dtype, samples, keys)
    assert found.reason.startswith("derived: sizes 2 -> 34, 3 -> 51, 4 -> 68: backward: ")
    assert outcome_of(tmp_path, "rotated", dtype, samples, keys).outcome == "passed"


@BOTH
def test_memory_that_is_never_written_is_found_whatever_it_holds(tmp_path, dtype):
    keys = "supports = { forward_ad = false, second_order = false }"
    found = outcome_of(tmp_path, "written_to_16", dtype, keys=keys)
    assert found.outcome == "failed"
    assert outcome_of(tmp_path, "written_to_the_end", dtype, keys=keys).outcome == "passed"


@BOTH
@pytest.mark.parametrize(("name", "expected"), [("Weighted", "passed"), ("WeightedWrongBeyond16", "failed")])
def test_sizes_of_a_module_change_with_those_of_its_inputs(tmp_path, name, expected, dtype):
    found = outcome_of(tmp_path, name, dtype, keys="module = { args = [3] }")
    assert found.outcome == expected, found.message
    if expected == "failed":
        assert found.reason.startswith("derived: size 3 -> 18, in the module too: backward: ")
        assert "args = [{ shape = [1, 17] }], module = { args = [17] }" in found.message


@SEEDS
@pytest.mark.parametrize("derive", ["standard", "thorough"])
def test_a_real_tensor_beside_a_complex_one_is_tried(tmp_path, derive, seed):
    found = outcome_of(tmp_path, "wrong_for_real_factors", "complex128", TWO, NO_FORWARD, derive, seed)
    assert found.reason.startswith("derived: tensor 1 real: backward: ")
    assert '{ args = [{ shape = [1, 1] }, { shape = [1, 1], dtype = "float64", grad = true }] }' in found.message
    right = outcome_of(tmp_path, "product_of_mixed", "complex128", TWO, NO_FORWARD, derive, seed)
    assert right.outcome == "passed", right.message


@pytest.mark.nightly
@BOTH
@pytest.mark.parametrize(("name", "expected"), [("Tracked", "passed"), ("TrackedInEvaluation", "failed")])
def test_other_keywords_of_a_constructor_have_other_checks_if_the_project_is_thorough(tmp_path, name, expected, dtype):
    found = outcome_of(tmp_path, name, dtype, keys="module = {}", derive="thorough")
    assert found.outcome == expected, found.message
    if expected == "failed":
        what = "module.momentum = { none = true }: buffers: forward changes buffers in evaluation mode"
        assert found.reason.startswith(f"derived: {what}")


@BOTH
def test_a_sample_in_other_memory_gets_cotangents_in_other_memory(tmp_path, dtype):
    samples = "samples = [{ args = [{ shape = [2, 3, 2, 2] }] }]"
    found = outcome_of(tmp_path, "wrong_for_mixed_memory", dtype, samples, NO_FORWARD)
    assert found.reason == "derived: memory channels_last: the gradient depends on the memory of the cotangent"
    assert 'memory = "channels_last"' in found.message


@BOTH
def test_values_may_not_depend_on_where_inputs_lie(tmp_path, dtype):
    found = outcome_of(tmp_path, "reads_aligned", dtype, keys=NO_FORWARD)
    assert found.reason == "derived: memory offset: the values depend on the memory of the inputs"
    assert 'memory = "offset"' in found.message
    assert outcome_of(tmp_path, "reads_anywhere", dtype, keys=NO_FORWARD).outcome == "passed"


@BOTH
def test_numbers_that_are_no_whole_ones_are_tried_if_the_project_is_thorough(tmp_path, dtype):
    found = outcome_of(tmp_path, "wrong_for_fractions", dtype, derive="thorough")
    assert found.reason.startswith("derived: scale = 1.5: backward: ")


@BOTH
def test_memory_is_shared_for_no_keyword_if_the_project_is_thorough(tmp_path, dtype):
    found = outcome_of(tmp_path, "shares_memory_without_a_width", dtype, keys=NO_FORWARD, derive="thorough")
    assert found.reason.startswith("derived: width = 0: aliasing: ")
    written = outcome_of(tmp_path, "shares_memory_without_a_width", dtype, keys=NO_FORWARD, check="aliasing")
    assert written.outcome == "passed"


@BOTH
@pytest.mark.parametrize(("name", "expected"), [("keeps_for_the_thread", "failed"), ("square", "passed")])
def test_backward_may_run_in_another_thread(tmp_path, name, expected, dtype):
    found = outcome_of(tmp_path, name, dtype, keys=NO_FORWARD, check="context")
    assert found.outcome == expected
    assert ("by backward in another thread than forward" in found.reason) is (expected == "failed")


@BOTH
def test_sizes_become_equal_where_backward_raises_for_different_ones(tmp_path, dtype):
    found = outcome_of(tmp_path, "takes_negative_dims_for_the_last", dtype, keys=NO_FORWARD)
    assert found.outcome == "failed"
    assert found.reason.startswith("derived: dim = -2, all sizes 3: backward: ")
    assert "add this sample: { args = [{ shape = [2, 2] }], kwargs = { dim = -2 } }" in found.message
    assert outcome_of(tmp_path, "sums_over_any_dim", dtype, keys=NO_FORWARD).outcome == "passed"


@BOTH
def test_second_derivatives_are_looked_at_for_other_keywords(tmp_path, dtype):
    found = outcome_of(tmp_path, "wrong_twice_if_flipped", dtype, keys=NO_FORWARD)
    assert found.outcome == "failed"
    assert found.reason.startswith("derived: flip = true: rev_over_rev: ")
    assert "add this sample: { args = [{ shape = [1, 1] }], kwargs = { flip = true } }" in found.message


@BOTH
@pytest.mark.parametrize(("derive", "expected"), [("standard", "passed"), ("thorough", "failed")])
def test_second_derivatives_are_looked_at_for_size_one_if_the_project_is_thorough(tmp_path, derive, expected, dtype):
    found = outcome_of(tmp_path, "wrong_twice_for_size_one", dtype, keys=NO_FORWARD, derive=derive)
    assert found.outcome == expected, found.message
    if expected == "failed":
        assert "2 -> 1: rev_over_rev: " in found.reason


@BOTH
def test_second_derivatives_are_looked_at_where_a_tensor_takes_several_blocks(tmp_path, dtype):
    found = outcome_of(tmp_path, "wrong_twice_beyond_512", dtype, keys=NO_FORWARD)
    assert found.outcome == "failed"
    assert ": rev_over_rev: " in found.reason
    assert ", fails with" in found.message


@BOTH
def test_what_is_wrong_as_written_is_left_to_its_own_check(tmp_path, dtype):
    assert outcome_of(tmp_path, "wrong_twice", dtype, keys=NO_FORWARD).outcome == "passed"
    assert outcome_of(tmp_path, "wrong_twice", dtype, keys=NO_FORWARD, check="rev_over_rev").outcome == "failed"


@BOTH
@pytest.mark.parametrize(
    ("name", "keys", "words"),
    [
        ("writes_beyond_16", "", "purity: forward changes what it is given"),
        (
            "sine",
            "variants = [{ kind = 'inplace', target = 'operators.varied.sine_of_blocks_in_place' }]",
            "variants: output 0 is not that of the function",
        ),
    ],
)
@pytest.mark.parametrize(("derive", "expected"), [("standard", "passed"), ("thorough", "failed")])
def test_other_checks_have_their_say_at_derived_samples_if_the_project_is_thorough(
    tmp_path, name, keys, words, derive, expected, dtype
):
    found = outcome_of(tmp_path, name, dtype, keys=keys, derive=derive)
    assert found.outcome == expected, found.message
    if expected == "failed":
        assert "3 -> " in found.reason
        assert words in found.reason
        assert "passes with size 16, fails with size 17" in found.message


@BOTH
@pytest.mark.parametrize("args", ["{ shape = [2, 3] }], kwargs = { index = 1 }", "{ shape = [2, 3] }, 1]"])
def test_an_index_from_the_end_is_tried_if_the_sample_passes_one(tmp_path, args, dtype):
    samples = f"samples = [{{ args = [{args} }}]"
    found = outcome_of(tmp_path, "wrong_for_an_index_from_the_end", dtype, samples, NO_FORWARD)
    assert found.reason.startswith("derived: index = -1: backward: ")
    right = outcome_of(tmp_path, "element_of_each_row", dtype, samples, NO_FORWARD)
    assert right.outcome == "passed", right.message


@BOTH
def test_second_derivatives_are_looked_at_in_evaluation_mode(tmp_path, dtype):
    keys = f"{MODULE}\n{NO_FORWARD}"
    found = outcome_of(tmp_path, "KeepsScaleInEvaluation", dtype, keys=keys)
    assert found.reason.startswith("derived: module.train = false: rev_over_rev: ")
    assert outcome_of(tmp_path, "RecomputesScale", dtype, keys=keys).outcome == "passed"


def test_a_sample_that_may_not_vary_its_sizes_keeps_them_as_it_is_made_small(tmp_path):
    samples = "samples = [{ args = [{ shape = [4] }], kwargs = { n = 4 }, vary = ['-size', '-rank', '-empty'] }]"
    found = outcome_of(tmp_path, "wrong_for_five", "float64", samples, NO_FORWARD)
    assert found.reason.startswith("derived: n = 5: backward: ")
    assert "add this sample: { args = [{ shape = [4] }], kwargs = { n = 5 }" in found.message
    assert "the gradient is 2 times what it should be" in found.message
    assert outcome_of(tmp_path, "for_four_numbers", "float64", samples, NO_FORWARD).outcome == "passed"
