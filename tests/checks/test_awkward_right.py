"""Right operators that are hard to specify pass with one line in the spec, which the message that accuses names."""

from __future__ import annotations

import pytest

from opcheck.planning import Selection, load, plan
from opcheck.running.runner import run
from opcheck.running.session import RunSession
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile

ONE = "samples = [{ args = [{ shape = [2, 3] }] }]"
OLD = "supports = { forward_ad = false, vmap = false }"
"""For an autograd.Function without setup_context."""
LIBRARY = f"""registered = true
{OLD}
expect = [{{ when = {{ check = "unsupported" }}, outcome = "fail", reason = "torch.func.jvp gives zeros" }}]"""
LIST = "samples = [{ args = [[{ shape = [2, 3] }, { shape = [4] }]] }]"


def meant(name):
    return f'surrogate = "{name if "." in name else f"operators.awkward_right.{name}"}"'


# What belongs to the kind of the operator comes last: without it, the operator is accused.
RIGHT = {
    # quantizing with a straight-through gradient
    "round_through": (ONE, OLD, meant("identity")),
    "binarize": (ONE, meant("torch.nn.functional.hardtanh")),
    "fake_quantize": (ONE, meant("fake_quantize")),
    "nearest_code": (
        "samples = [{ args = [{ shape = [4, 3] }, { shape = [2, 3], grad = false }] }]",
        meant("nearest_code"),
    ),
    "QuantizedLinear": (ONE, "module = { args = [3, 2] }", meant("QuantizedLinear")),
    "registered_round": (
        "samples = [{ args = [{ shape = [2, 3] }, 0.5] }]",
        LIBRARY.replace(", vmap = false", ""),
        meant("registered_identity"),
    ),
    # gradients that are clipped, reversed or scaled
    "reverse": (
        "samples = [{ args = [{ shape = [2, 3] }], grid = { weight = [1.0, 0.5] } }]",
        OLD,
        meant("reversed_truly"),
    ),
    "scale_gradient": (ONE, OLD, meant("half")),
    "clip_gradient": (
        "samples = [{ args = [{ shape = [2, 3] }], kwargs = { limit = 100.0 } }]",
        "supports.forward_ad = false\nsupports.vmap = false",
        "supports.linearity = false",
    ),
    "clip_by_norm": (
        "samples = [{ args = [{ shape = [2, 3] }], kwargs = { limit = 100.0 } }]",
        "supports.linearity = false",
    ),
    # stochastic rounding
    "stochastic_round": (ONE, OLD, "reseed = true", meant("identity")),
    "dithered": (ONE, "reseed = true", meant("dithered")),
    # caches by shape
    "windowed": (ONE,),
    "Rotary": (ONE.replace("[2, 3]", "[3, 2]"), "module = {}"),
    # what returns its input
    "maybe_scaled": ("samples = [{ args = [{ shape = [2, 3] }], grid = { scale = [1.0, 2.0] } }]",),
    "dropout_or_not": (ONE,),
    "flattened": ("samples = [{ args = [{ shape = [2, 3] }] }, { args = [{ shape = [2, 3, 2] }] }]",),
    "mark": (ONE, OLD),
    # custom layouts
    "transposed_out": (ONE, "supports = { forward_ad = false, vmap = false, batched_grad = false }"),
    "channels_last_only": (
        ONE.replace("[2, 3]", "[2, 3, 2, 2]"),
        "supports.batched_forward_grad = false",
        "supports.vmap = false",
    ),
    "padded_rows": (ONE,),
    # ragged lists
    "total_norm": (LIST,),
    "scaled_each": (LIST,),
    "padded": (LIST.replace("[2, 3]", "[3]"), "supports.vmap = false"),
    "fused_sum": (LIST, OLD),
    # optional tensors
    "affine": (
        "samples = [{ args = [{ shape = [2, 3] }] }, "
        "{ args = [{ shape = [2, 3] }, { shape = [3] }, { shape = [3] }] }, "
        "{ args = [{ shape = [2, 3] }, { none = true }, { shape = [3] }] }]",
        OLD,
    ),
    "attention": (
        "samples = [{ args = [{ shape = [2, 3] }, { shape = [4, 3] }, { shape = [4, 2] }] }, "
        "{ args = [{ shape = [2, 3] }, { shape = [4, 3] }, { shape = [4, 2] }, { shape = [2, 4] }] }]",
        "supports.rev_over_fwd = false",
    ),
    "masked_mean": (
        "samples = [{ args = [{ shape = [2, 3] }] }, "
        "{ args = [{ shape = [2, 3] }, { shape = [2, 3], dtype = 'bool' }] }]",
    ),
    "optional_bias": (
        "samples = [{ args = [{ shape = [2, 3] }] }, { args = [{ shape = [2, 3] }, { shape = [3] }] }]",
        LIBRARY,
    ),
    # state held in a module
    "RunningMean": (ONE, "module = { args = [3] }\nsupports.vmap = false", meant("RunningMean")),
    "SpectralLinear": (ONE, "module = { args = [3, 2] }\nsupports.vmap = false", meant("SpectralLinear")),
    "WarmedUp": (ONE, "module = { args = [3] }"),
    # integer outputs beside floating ones
    "best": (ONE, OLD),
    "quantized_with_scale": (ONE,),
    "routed": (
        "samples = [{ args = [{ shape = [4, 3] }, { shape = [3, 2] }], grid = { k = [1, 2] } }]",
        "supports.rev_over_fwd = false",
        meant("routed"),
    ),
    "argmax_with_values": (ONE, LIBRARY),
    # gradients for a part of an input
    "frozen_prefix": (ONE, meant("frozen_prefix")),
    "padding_has_no_gradient": (
        "samples = [{ args = [{ values = [1, 0, 2], dtype = 'int64' }, { shape = [3, 2] }] }]",
        meant("padding_has_no_gradient"),
    ),
    "triangle": (ONE.replace("[2, 3]", "[3, 3]"), OLD),
    "stopped_target": ("samples = [{ args = [{ shape = [2, 3] }, { shape = [2, 3], grad = false }] }]",),
    "normalized_by_constant": (ONE, meant("normalized_by_constant")),
    # a dtype that a keyword chooses
    "cast": (
        "samples = [{ args = [{ shape = [2, 3] }], "
        "grid = { dtype = [{ none = true }, { dtype = 'float64' }, { dtype = 'float32' }, { dtype = 'bfloat16' }] } }]",
    ),
    "softmax_as": (ONE, "supports.rev_over_fwd = false"),
    "summed_as": (
        "samples = [{ args = [{ shape = [2, 3] }], grid = { dtype = [{ none = true }, { dtype = 'float64' }] } }]",
    ),
    "mean_in_single": (ONE,),
    # writing to arguments on purpose
    "cross_entropy_in_place": (
        "samples = [{ args = [{ shape = [2, 3] }, { values = [2, 0], dtype = 'int64' }] }]",
        "supports = { forward_ad = false, vmap = false, second_order = false, purity = false }",
    ),
}
NAMED = [name for name, lines in RIGHT.items() if lines[-1].startswith(("surrogate", "supports.", "reseed"))]
MODULES = ("torch", "operators")


def run_all(tmp_path, name, lines, derive="none", **selection):
    path = tmp_path / "spec.toml"
    listed = "\n".join(("dtypes = 'floating'", *lines[1:], lines[0]))
    path.write_text(f'[[operator]]\nname = "operators.awkward_right.{name}"\n{listed}\n')
    settings = Settings(modules=MODULES, derive=derive)
    cases = plan(load([path], settings), [DeviceProfile(name="cpu")], Selection(derive=derive, **selection))
    session = RunSession(settings)
    return {case.id: run(case, session) for case in cases}


def bad(found):
    return {case: one.message for case, one in found.items() if one.outcome not in ("passed", "skipped", "xfailed")}


@pytest.mark.parametrize("name", RIGHT)
def test_it_passes_all_checks(tmp_path, name):
    found = run_all(tmp_path, name, RIGHT[name], "standard")
    assert bad(found) == {}
    assert len(found) > 20


@pytest.mark.nightly
@pytest.mark.parametrize("name", RIGHT)
def test_it_passes_at_many_derived_samples(tmp_path, name):
    assert bad(run_all(tmp_path, name, RIGHT[name], "thorough", checks=("derived",))) == {}


@pytest.mark.parametrize("name", NAMED)
def test_without_its_line_the_message_names_it(tmp_path, name):
    line = RIGHT[name][-1]
    found = run_all(tmp_path, name, RIGHT[name][:-1], checks=("backward", "linearity", "rev_over_fwd", "vmap"))
    accused = "\n".join(bad(found).values())
    verb = "set" if line.startswith("supports.") else "write"
    assert f"{verb} {line}".partition('"')[0] in accused, accused


def test_who_writes_to_arguments_is_told_what_to_write(tmp_path):
    samples, keys = RIGHT["cross_entropy_in_place"]
    lines = (samples, keys.replace(", purity = false", ""))
    (accused,) = bad(run_all(tmp_path, "cross_entropy_in_place", lines, checks=("purity",))).values()
    assert "if what is written does not matter, set supports.purity = false" in accused


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("name", "outcome"), [("cast_by_hand", "passed"), ("wrong_cast", "failed")])
def test_outputs_of_a_coarser_dtype_are_compared_with_its_digits(outcomes, name, outcome, dtype):
    single = "complex64" if dtype.startswith("complex") else "float32"
    text = f"""
[[operator]]
name = "operators.awkward_right.{name}"
dtypes = ["{dtype}"]
{OLD}
samples = [{{ args = [{{ shape = [2, 3] }}, {{ dtype = "{single}" }}] }}]
"""
    found = outcomes(text)
    backward = next(one for one in found.values() if one.check == "backward")
    assert backward.outcome == outcome
    if outcome == "passed":
        assert bad(found) == {}
    else:
        assert "allowed: 0.01 + 0.02 |numerical|, step 0.005" in backward.message


def test_outputs_in_half_precision_alone_test_nothing(outcomes):
    text = f"""
[[operator]]
name = "operators.awkward_right.cast_by_hand"
dtypes = ["float64"]
{OLD}
samples = [{{ args = [{{ shape = [2, 3] }}, {{ dtype = "float16" }}] }}]
"""
    (outcome,) = outcomes(text, checks=("backward",)).values()
    assert outcome.outcome == "error"
    assert "an input or output has dtype float16, whose values are too coarse" in outcome.message


def test_a_gradient_that_is_linear_is_not_disclaimed(outcomes):
    text = f'[[operator]]\nname = "operators.awkward_right.windowed"\nsupports.linearity = false\n{ONE}\n'
    (outcome,) = outcomes(text, checks=("unsupported",), dtypes=("float64",)).values()
    assert "linearity is disclaimed, but works on all samples" in outcome.message
