"""Modules of torch.nn through the drop-in, with parameters that the function captures: verdicts are torch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import opcheck

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

CHANNELS = {"1": (2, 2, 3), "2": (2, 2, 2, 2), "3": (1, 2, 2, 2, 2)}


def on(*shapes, low=-1.0, high=1.0):
    """Return inputs of some shapes."""
    return lambda: tuple(torch.empty(shape, dtype=torch.float64).uniform_(low, high) for shape in shapes)


def with_target(shape, target, **bounds):
    return lambda: (*on(shape, **bounds)(), target)


def targets(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def built(make, *parts):
    """Return a module made of modules."""
    return lambda: make(*(part() for part in parts))


ODD = targets(1.0, -1.0, 1.0)
WITH_PARAMETERS = {
    "Linear": (lambda: nn.Linear(3, 2), on((2, 3))),
    "Bilinear": (lambda: nn.Bilinear(2, 3, 2), on((2, 2), (2, 3))),
    "Conv1d": (lambda: nn.Conv1d(2, 2, 2), on((1, 2, 3))),
    "Conv2d": (lambda: nn.Conv2d(2, 2, 2, padding=1), on((1, 2, 2, 2))),
    "Conv3d": (lambda: nn.Conv3d(1, 2, 2), on((1, 1, 2, 2, 2))),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(2, 2, 2), on((1, 2, 3))),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 1, 2), on((1, 2, 2, 2))),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(1, 1, 2), on((1, 1, 2, 1, 2))),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(2), on((3, 2))),
    "BatchNorm1d, evaluating": (lambda: nn.BatchNorm1d(2).eval(), on((3, 2))),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(2), on(CHANNELS["2"])),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(2), on(CHANNELS["3"])),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(2, affine=True), on(CHANNELS["1"])),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(2, affine=True), on(CHANNELS["2"])),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(2, affine=True), on(CHANNELS["3"])),
    "LayerNorm": (lambda: nn.LayerNorm(3), on((2, 3))),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), on((1, 4, 2))),
    "RMSNorm": (lambda: nn.RMSNorm(3), on((2, 3))),
    "RNN": (lambda: nn.RNN(2, 2), on((2, 1, 2))),
    "RNN, relu": (lambda: nn.RNN(2, 2, nonlinearity="relu", bidirectional=True), on((2, 1, 2))),
    "LSTM": (lambda: nn.LSTM(2, 2), on((2, 1, 2))),
    "LSTM, projected": (lambda: nn.LSTM(2, 2, proj_size=1), on((2, 1, 2))),
    "GRU": (lambda: nn.GRU(2, 2), on((2, 1, 2))),
    "GRU, two layers": (lambda: nn.GRU(1, 2, num_layers=2), on((2, 1, 1))),
    "RNNCell": (lambda: nn.RNNCell(2, 2), on((2, 2))),
    "LSTMCell": (lambda: nn.LSTMCell(2, 2), on((2, 2))),
    "GRUCell": (lambda: nn.GRUCell(2, 2), on((2, 2))),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(2, 1), on((2, 1, 2), (2, 1, 2), (2, 1, 2))),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(2, 1, 2, dropout=0), on((2, 1, 2))),
    "TransformerDecoderLayer": (lambda: nn.TransformerDecoderLayer(2, 1, 2, dropout=0), on((1, 1, 2), (2, 1, 2))),
    "PReLU": (lambda: nn.PReLU(2), on((2, 2))),
    "Embedding": (lambda: nn.Embedding(3, 2), lambda: (torch.tensor([0, 2, 2]),)),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(3, 2, mode="sum"), lambda: (torch.tensor([[0, 2], [1, 1]]),)),
    "AdaptiveLogSoftmaxWithLoss": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(2, 4, [2], div_value=1),
        with_target((3, 2), torch.tensor([0, 2, 3])),
    ),
    "Sequential": (
        built(nn.Sequential, lambda: nn.Linear(2, 2), nn.Tanh, lambda: nn.Linear(2, 1)), on((2, 2))),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), on((2, 2))),
}  # fmt: skip
WITHOUT_PARAMETERS = {
    **{
        name: (getattr(nn, name), on((2, 3)))
        for name in (
            "Identity",
            "ELU",
            "CELU",
            "SELU",
            "GELU",
            "SiLU",
            "Mish",
            "Softplus",
            "Softshrink",
            "Softsign",
            "Tanh",
            "Tanhshrink",
            "Sigmoid",
            "LogSigmoid",
            "Hardtanh",
            "Hardswish",
            "Hardshrink",
            "Hardsigmoid",
            "LeakyReLU",
            "ReLU",
            "ReLU6",
            "Flatten",
        )
    },
    "Softmax": (lambda: nn.Softmax(1), on((2, 3))),
    "Softmin": (lambda: nn.Softmin(1), on((2, 3))),
    "LogSoftmax": (lambda: nn.LogSoftmax(1), on((2, 3))),
    "Softmax2d": (nn.Softmax2d, on(CHANNELS["2"])),
    "GLU": (nn.GLU, on((2, 4))),
    "RReLU, evaluating": (lambda: nn.RReLU().eval(), on((2, 3))),
    "Threshold": (lambda: nn.Threshold(0.1, 0.1), on((2, 3))),
    "Dropout, evaluating": (lambda: nn.Dropout().eval(), on((2, 3))),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), on((1, 1, 2, 4))),
    "MaxPool1d": (lambda: nn.MaxPool1d(2), on((1, 1, 4))),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), on((1, 1, 2, 4))),
    "MaxPool3d": (lambda: nn.MaxPool3d(2), on((1, 1, 2, 2, 2))),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(2), on((1, 1, 3, 3))),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(2), on((1, 1, 4))),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), on((1, 1, 2, 4), low=0.2)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), on((1, 3, 2))),
    "ReflectionPad1d": (lambda: nn.ReflectionPad1d(1), on((1, 2, 3))),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d(1), on((1, 1, 2, 2))),
    "CircularPad1d": (lambda: nn.CircularPad1d(1), on((1, 2, 3))),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), on((1, 4, 1, 2))),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), on((1, 1, 2, 2))),
    "Unfold": (lambda: nn.Unfold(2), on((1, 1, 2, 3))),
    "Fold": (lambda: nn.Fold((2, 3), 2), on((1, 4, 2))),
    "MSELoss": (nn.MSELoss, with_target((3,), ODD)),
    "HuberLoss": (nn.HuberLoss, with_target((3,), ODD)),
    "KLDivLoss": (nn.KLDivLoss, with_target((3,), targets(0.2, 0.3, 0.5))),
    "BCELoss": (nn.BCELoss, with_target((3,), targets(1.0, 0.0, 1.0), low=0.1, high=0.9)),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, with_target((3,), targets(1.0, 0.0, 1.0))),
    "CrossEntropyLoss": (nn.CrossEntropyLoss, with_target((2, 3), torch.tensor([0, 2]))),
    "SoftMarginLoss": (nn.SoftMarginLoss, with_target((3,), ODD)),
    "PoissonNLLLoss": (nn.PoissonNLLLoss, with_target((3,), targets(1.0, 2.0, 0.0))),
    "CosineSimilarity": (nn.CosineSimilarity, on((2, 3), (2, 3))),
    "PairwiseDistance": (nn.PairwiseDistance, on((2, 3), (2, 3))),
}
MODULES = {**WITH_PARAMETERS, **WITHOUT_PARAMETERS}


@pytest.fixture(autouse=True)
def one_thread():
    """For tensors this small, more threads take many times longer."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def flat(result):
    """Return the tensors in what a module returned."""
    if isinstance(result, torch.Tensor):
        return (result,)
    return tuple(tensor for part in result if part is not None for tensor in flat(part))


def question(name):
    """Return a function that captures the parameters of a module, the inputs and the parameters."""
    torch.manual_seed(3)
    make, inputs = MODULES[name]
    module = make().double()
    given = tuple(x.requires_grad_() if x.is_floating_point() and k == 0 else x for k, x in enumerate(inputs()))
    parameters = tuple(module.parameters())
    for parameter in parameters:
        nn.init.uniform_(parameter, 0.2, 0.8)
    return lambda *arguments: flat(module(*arguments[: len(given)])), (*given, *parameters)


def verdict(check, function, inputs):
    with torch.random.fork_rng():
        return check(function, inputs, raise_exception=False)


BY_DAY = {
    "Linear",
    "Conv2d",
    "BatchNorm1d, evaluating",
    "LayerNorm",
    "LSTM, projected",
    "MultiheadAttention",
    "Embedding",
}
"""One module of each kind: the parameters of these get wrong gradients by day, too."""


def test_there_are_enough_of_them():
    assert len(MODULES) >= 70


@pytest.mark.parametrize("name", MODULES)
def test_a_module_passes_with_captured_parameters(name):
    function, inputs = question(name)
    before = [x.detach().clone() for x in inputs]
    assert verdict(opcheck.gradcheck, function, inputs) is verdict(torch.autograd.gradcheck, function, inputs) is True
    assert all(torch.equal(x, kept) for x, kept in zip(inputs, before, strict=True))


@pytest.mark.parametrize(
    "name", [name if name in BY_DAY else pytest.param(name, marks=pytest.mark.nightly) for name in MODULES]
)
def test_a_wrong_gradient_of_one_parameter_is_found(name):
    function, inputs = question(name)
    leaves = [x for x in inputs if x.requires_grad]
    leaves[-1].register_hook(lambda g: g if g is None else 1.5 * g)
    with pytest.raises(opcheck.GradcheckError, match=r"^Jacobian mismatch for output \d with respect to input"):
        opcheck.gradcheck(function, inputs)


@pytest.mark.parametrize("name", ["Linear", "Bilinear", "BatchNorm1d", "GroupNorm", "RNN", "GRUCell", "PReLU"])
def test_second_derivatives_pass_and_wrong_ones_are_found_with_captured_parameters(name):
    function, inputs = question(name)
    for check in (torch.autograd.gradgradcheck, opcheck.gradgradcheck):
        assert verdict(check, function, inputs) is True
    inputs[-1].register_hook(lambda g: g if g is None else g.detach() * 1.5 + 0 * g)
    for check in (torch.autograd.gradgradcheck, opcheck.gradgradcheck):
        assert verdict(check, function, inputs) is False
