"""Operators of different families whose gradients are off by a few percent in coarse dtypes, beside the right ones.

`OFF[dtype]` is how far they are off: what no rounding explains where the operator is well conditioned.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

OFF = {torch.float32: 0.01, torch.bfloat16: 0.04, torch.float16: 0.01, torch.complex64: 0.01}

MATRICES = "{ shape = [2, 3] }, { shape = [3, 2] }"
POSITIVE = "{ shape = [2, 3], low = 0.5 }"
UNARY = (
    "sin", "cos", "exp", "tanh", "sigmoid", "sqrt", "log", "rsqrt", "reciprocal", "square", "erf", "atan", "relu",
    "gelu", "silu", "softplus", "sum", "mean", "prod", "norm", "var", "amax",
)  # fmt: skip
ALONG = ("logsumexp", "cumsum", "softmax", "log_softmax")
BINARY = ("add", "sub", "mul", "div", "hypot", "maximum")
ARGS = {
    **dict.fromkeys(UNARY, POSITIVE),
    **dict.fromkeys(ALONG, f"{POSITIVE}, 1"),
    **dict.fromkeys(BINARY, f"{POSITIVE}, {POSITIVE}"),
    "matmul": MATRICES,
    "mm": MATRICES,
    "linear": "{ shape = [2, 3] }, { shape = [4, 3] }, { shape = [4] }",
    "outer": "{ shape = [3] }, { shape = [2] }",
    "conv1d": "{ shape = [1, 2, 5] }, { shape = [2, 2, 3] }",
    "transpose": "{ shape = [2, 3] }, 0, 1",
    "flip": "{ shape = [2, 3] }, [0]",
    "roll": "{ shape = [2, 3] }, 1",
    "gather": "{ shape = [2, 3] }, 1, { values = [[0, 2], [1, 0]], dtype = 'int64' }",
    "layer_norm": "{ shape = [2, 3] }, [3]",
    "mse_loss": "{ shape = [2, 3] }, { shape = [2, 3] }",
    "avg_pool1d": "{ shape = [1, 2, 4] }, 2",
}
"""The arguments of each operator, as in a spec."""


class Scaled(torch.autograd.Function):
    """The identity, whose backward pass is off in coarse dtypes."""

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, v):
        return v * (1 + OFF.get(v.dtype, 0.0))

    @staticmethod
    def jvp(ctx, t):
        return t.clone()


def _scaled(operator: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def called(*args: object) -> Tensor:
        return Scaled.apply(operator(*args))

    return called


__all__ = []
for _name in ARGS:
    _operator = getattr(torch, _name, None) or getattr(F, _name)
    globals()[f"right_{_name}"] = (lambda operator: lambda *args: operator(*args))(_operator)
    globals()[f"off_{_name}"] = _scaled(_operator)
    __all__ += [f"right_{_name}", f"off_{_name}"]


def spec_of(kind: str) -> str:
    """Return the TOML of all operators, right or off."""
    entries = []
    for name, args in ARGS.items():
        entries.append(
            f'[[operator]]\nname = "operators.scaled.{kind}_{name}"\n'
            f'dtypes = ["float64", "float32", "float16", "bfloat16"]\nsamples = [{{ args = [{args}] }}]\n'
        )
    return "\n".join(entries)
