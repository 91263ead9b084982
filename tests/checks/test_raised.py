"""An operator that raises in one of several calls: the failure says in which."""

from pathlib import Path

import pytest

WHERE = {
    "inference": ("context", "context: computing the values under torch.inference_mode() raised"),
    "deterministic": ("context", "context: computing the results under deterministic mode raised"),
    "backward_under_autocast": ("context", "context: computing the results under torch.autocast raised"),
    "transposed_cotangents": ("linearity", "linearity: computing the gradients for cotangents in permuted memory"),
    "small_cotangents": ("linearity", "linearity: computing the gradients for cotangents scaled by 2**-10"),
    "cotangents_with_gaps": ("backward", "backward: backward for a non-contiguous cotangent raised"),
    "without_grad": ("needs_input_grad", "needs_input_grad: computing the gradients where only x requires grad"),
    "not_nested": ("vmap", "vmap: computing the values by vmap of vmap raised"),
    "the_same_twice": ("aliasing", "aliasing: computing the results for one tensor as both x and y raised"),
}
TWO = ("without_grad", "the_same_twice")
KEYS = "supports = { forward_ad = false }"


def samples(name: str) -> str:
    tensors = ", ".join(["{ shape = [3, 5], low = 0.5 }"] * (2 if name in TWO else 1))
    return f"samples = [{{ args = [{tensors}] }}]"


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", WHERE)
def test_the_failure_says_in_which_call(verdict_of, name, dtype):
    check, words = WHERE[name]
    outcome = verdict_of(f"operators.raising.{name}", check, dtype, KEYS, samples(name))
    assert outcome.outcome == "failed"
    assert outcome.reason.startswith(words)
    assert ("ValueError: not" in outcome.reason) is (check != "vmap")


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("check", ["context", "linearity", "backward", "needs_input_grad"])
def test_the_same_operator_that_raises_nowhere_passes(verdict_of, check, dtype):
    assert verdict_of("operators.raising.sine", check, dtype, KEYS, samples("sine")).outcome == "passed"


def test_the_failure_says_on_which_line_the_operator_raises(verdict_of):
    outcome = verdict_of(
        "operators.raising.small_cotangents", "linearity", "float64", KEYS, samples("small_cotangents")
    )
    line = next(line for line in outcome.message.splitlines() if "raised at" in line)
    file, number = line.removeprefix("  raised at ").removesuffix(", in backward").rsplit(":", 1)
    assert Path(file).read_text().splitlines()[int(number) - 1].strip().startswith("raise ValueError")


def test_where_torch_itself_raises_there_is_no_line(verdict_of):
    outcome = verdict_of("torch.trace", "backward", "float64", "", "samples = [{ args = [{ shape = [3] }] }]")
    assert "the operator refuses the sample: RuntimeError: trace: expected a matrix" in outcome.message
    assert "raised at" not in outcome.message
