"""Arguments are called as the operator's signature calls them."""

import pytest
import torch
from operators import diagnosed, faulty

from opcheck.samples.arguments import argument_label, signature_of, takes_out


class OldStyle(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        return x * weight


@pytest.mark.parametrize(
    ("operator", "names"),
    [
        (diagnosed.cuts_weight, ("x", "weight")),
        (diagnosed.Product.apply, ("x", "weight")),
        (OldStyle.apply, ("x", "weight")),
        (torch.sin, ("input",)),
        (torch.nn.functional.linear, ("input", "weight", "bias")),
        (lambda *tensors, scale=1: tensors, ()),
        (faulty.wrong_sign, ("x",)),
    ],
)
def test_names_of_positional_parameters(operator, names):
    assert signature_of(operator, getattr(operator, "__name__", "")).positional == names


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("args", 0), "x"),
        (("args", 1), "argument 1"),
        (("args", 0, 2), "x[2]"),
        (("kwargs", "weight"), "weight"),
        (("kwargs", "weights", 0, "bias"), "weights[0]['bias']"),
    ],
)
def test_what_an_argument_is_called(path, name):
    assert argument_label(path, ("x",)) == name


def test_names_of_custom_operators():
    @torch.library.custom_op("opcheck_names::scaled", mutates_args=())
    def scaled(value: torch.Tensor, factor: float) -> torch.Tensor:
        return value * factor

    assert signature_of(scaled, "scaled").positional == ("value", "factor")
    assert signature_of(torch.ops.opcheck_names.scaled.default, "scaled").positional == ("value", "factor")


def doubled(value: torch.Tensor, times: int = 2) -> torch.Tensor:
    return times * value


def test_a_function_in_torchscript_has_the_names_and_defaults_of_its_schema():
    scripted = torch.jit.script(doubled)
    assert signature_of(scripted, "doubled").positional == ("value", "times")
    assert signature_of(scripted, "doubled").defaults == {"times": 2}
    assert takes_out(scripted) is False


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        pytest.param(torch.ops.aten.sin, True, id="overloads"),
        pytest.param(torch.ops.aten.sin.default, False, id="overload"),
        pytest.param(torch.ops.aten.var_mean, False, id="out0 and out1"),
        pytest.param(torch.nn.functional.relu, False, id="Python"),
        pytest.param(faulty.ignores_out, True, id="Python with out"),
        pytest.param(torch.sin, None, id="C"),
    ],
)
def test_whether_an_operator_takes_out(operator, expected):
    assert takes_out(operator) is expected
