"""What a spec may name as an operator: functions, and no classes."""

from __future__ import annotations

import pytest
import torch

from opcheck.samples.resolve import Unresolved, resolve_operator

MODULES = ("torch", "operators")


@pytest.mark.parametrize("path", ["torch.sin", "torch.Tensor.add_", "torch.ops.aten.sin", "operators.right.square"])
def test_a_callable_is_an_operator(path: str) -> None:
    assert callable(resolve_operator(path, MODULES))


def test_the_apply_of_a_function_of_autograd_is_an_operator() -> None:
    assert resolve_operator("operators.results.Cube.apply", MODULES)(torch.ones(1)).item() == 1


@pytest.mark.parametrize(
    ("path", "what", "hint"),
    [
        (
            "operators.results.Scale",
            "is a class, and a module has to be constructed first (in a spec, say how: module = { args = [...] })",
            "",
        ),
        ("operators.results.Result", "is a class, and calling it creates an object; name a function", ""),
        (
            "operators.results.Cube",
            "is a torch.autograd.Function; name its apply",
            "operators.results.Cube.apply",
        ),
        ("torch.pi", "is not a function but float", ""),
    ],
)
def test_what_is_no_function_is_refused_with_the_reason(path: str, what: str, hint: str) -> None:
    with pytest.raises(Unresolved) as caught:
        resolve_operator(path, MODULES)
    assert (str(caught.value), caught.value.hint) == (f'"{path}" {what}', hint)
