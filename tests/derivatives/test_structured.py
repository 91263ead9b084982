"""All entries of large Jacobians of independent slices: a single wrong one is found, wherever it is planted."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch
from operators.asking import Request, check_claim
from torch.nn import functional

from opcheck.derivatives.tolerances import DOUBLE

REAL, COMPLEX = torch.float64, torch.complex128


def numbers(*shape, dtype=REAL, low=None, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    found = torch.randn(*shape, generator=generator, dtype=dtype)
    return found if low is None else found.abs() + low


def attention(q, k, v):
    return functional.softmax(q @ k.mT, -1) @ v


def rms_norm(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * weight


@dataclass(frozen=True)
class Operator:
    function: object
    shapes: tuple[tuple[int, ...], ...]
    low: float | None = None
    dtypes: tuple[torch.dtype, ...] = (REAL,)

    def leaves(self, dtype):
        own = [numbers(*shape, dtype=dtype, low=self.low, seed=k) for k, shape in enumerate(self.shapes)]
        return tuple(leaf.requires_grad_() for leaf in own)


BOTH = (REAL, COMPLEX)
OPERATORS = {
    "sin": Operator(torch.sin, ((65536,),), dtypes=BOTH),
    "exp": Operator(torch.exp, ((64, 64),), dtypes=BOTH),
    "log": Operator(torch.log, ((4097,),), low=0.5),
    "gelu": Operator(functional.gelu, ((16, 512),)),
    "mul": Operator(torch.mul, ((64, 128), (64, 128)), dtypes=BOTH),
    "add, broadcast": Operator(torch.add, ((64, 128), (128,)), dtypes=BOTH),
    "lerp": Operator(torch.lerp, ((4096,), (4096,), (4096,))),
    "softmax": Operator(lambda x: functional.softmax(x, -1), ((4096, 8),)),
    "log_softmax": Operator(lambda x: functional.log_softmax(x, 1), ((64, 8, 8),)),
    "logsumexp": Operator(lambda x: torch.logsumexp(x, -1), ((1024, 8),)),
    "cumsum of rows": Operator(lambda x: x.cumsum(-1), ((512, 8),), dtypes=BOTH),
    "layer_norm": Operator(lambda x: functional.layer_norm(x, (16,)), ((1024, 16),)),
    "layer_norm, affine": Operator(lambda x, w, b: functional.layer_norm(x, (16,), w, b), ((256, 16), (16,), (16,))),
    "rms_norm": Operator(rms_norm, ((512, 8), (8,))),
    "group_norm": Operator(lambda x: functional.group_norm(x, 2), ((128, 4, 8),)),
    "bmm": Operator(torch.bmm, ((512, 3, 3), (512, 3, 3)), dtypes=BOTH),
    "linear": Operator(functional.linear, ((512, 8), (6, 8), (6,)), dtypes=BOTH),
    "solve": Operator(lambda a, b: torch.linalg.solve(a + 4 * torch.eye(3), b), ((512, 3, 3), (512, 3))),
    "conv1d": Operator(functional.conv1d, ((64, 2, 32), (3, 2, 3), (3,))),
    "conv2d": Operator(lambda x, w: functional.conv2d(x, w, padding=1), ((64, 2, 6, 6), (3, 2, 3, 3))),
    "avg_pool1d": Operator(lambda x: functional.avg_pool1d(x, 2), ((64, 4, 16),)),
    "attention": Operator(attention, ((16, 4, 8, 8), (16, 4, 8, 8), (16, 4, 8, 8))),
}
CASES = [(name, dtype) for name, operator in OPERATORS.items() for dtype in operator.dtypes]
IDS = [f"{name}-{str(dtype)[6:]}" for name, dtype in CASES]
EACH = pytest.mark.parametrize(("name", "dtype"), CASES, ids=IDS)
EACH_BY_NIGHT = pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=[pytest.mark.nightly] * (dtype != OPERATORS[name].dtypes[-1]))
        for name, dtype in CASES
    ],
    ids=IDS,
)
"""By day in the last dtype alone."""


def planted(function, leaf, index, change):
    """Return a function whose gradient by one leaf has one entry changed; the rest is torch's."""

    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            grad = grad.clone()
            grad[index] = change(grad, index)
            return grad

    return lambda *x: function(*(Planted.apply(own) if k == leaf else own for k, own in enumerate(x)))


def request(function, leaves):
    return Request(lambda *x: (function(*x),), leaves, DOUBLE)


def ask(function, leaves, check="backward"):
    return check_claim(check, request(function, leaves))


@EACH
def test_right_operators_pass_in_all_entries(name, dtype):
    operator = OPERATORS[name]
    leaves = operator.leaves(dtype)
    assert request(operator.function, leaves).point.directions.extent == "structured"
    assert ask(operator.function, leaves) is None
    assert ask(operator.function, leaves, "forward_ad") is None


@EACH_BY_NIGHT
def test_one_wrong_entry_is_found_and_named_wherever_it_is_planted(name, dtype):
    operator = OPERATORS[name]
    leaves = operator.leaves(dtype)
    draw = random.Random(name)
    for _ in range(2):
        leaf = draw.randrange(len(leaves))
        index = tuple(draw.randrange(size) for size in leaves[leaf].shape)
        wrong = planted(operator.function, leaf, index, lambda grad, at: 1.05 * grad[at])
        if leaves[leaf].numel() > 1000:  # fast mode sees a share of the whole gradient
            assert torch.autograd.gradcheck(wrong, leaves, fast_mode=True, check_undefined_grad=False)
        found = ask(wrong, leaves)
        assert found is not None, (leaf, index)
        assert found.kind == "wrong"
        assert {(entry.leaf, entry.leaf_index) for entry in found.worst} == {(leaf, index)}
        entry = found.worst[0]
        assert entry.analytical == pytest.approx(1.05 * entry.numerical, rel=1e-4)
        assert entry.describe() in found.text


def test_the_entry_is_that_of_the_whole_jacobian():
    x = numbers(300, 3).requires_grad_()
    wrong = planted(lambda x: functional.softmax(x, 1), 0, (123, 2), lambda grad, at: 1.05 * grad[at])
    found = ask(wrong, (x,))
    jacobian = torch.autograd.functional.jacobian(lambda x: functional.softmax(x, 1), x.detach())
    for entry in found.worst:
        assert entry.output_index[0] == 123
        right = float(jacobian[(*entry.output_index, *entry.leaf_index)])
        assert entry.numerical == pytest.approx(right, abs=1e-8)
        assert entry.analytical == pytest.approx(1.05 * right, abs=1e-8)


LEAKS = {
    "one entry": lambda grad, at: grad[at] + grad[(at[0] + 7) % len(grad), 0],
    "a faint one": lambda grad, at: grad[at] + 1e-3 * grad[(at[0] + 7) % len(grad), 0],
    "the mean over slices": lambda grad, at: grad[at] + grad[:, 1].mean(),
    "the sum over slices": lambda grad, at: grad[at] + grad[:, 1].sum(),
    "two that cancel for equal weights": lambda grad, at: grad[at] + grad[0, 0] - grad[1, 0],
}


@pytest.mark.parametrize("leak", LEAKS.values(), ids=LEAKS)
@pytest.mark.parametrize("function", [torch.sin, lambda x: functional.softmax(x, 1)], ids=["sin", "softmax"])
def test_what_leaks_from_one_slice_to_another_is_found(function, leak):
    x = numbers(1024, 4).requires_grad_()
    found = ask(planted(function, 0, (500, 3), leak), (x,))
    assert found is not None
    assert found.kind == "wrong"
    assert all(entry.leaf_index == (500, 3) for entry in found.worst)
    assert any(entry.output_index[0] != 500 for entry in found.worst)
    assert ("a leak" in found.text) == (found.worst[0].output_index[0] != 500)


def test_a_tangent_that_leaks_is_found():
    class Leaky(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad):
            return grad

        @staticmethod
        def jvp(ctx, tangent):
            tangent = tangent.clone()
            tangent[17] += tangent[4000]
            return tangent

    x = numbers(4097).requires_grad_()
    function = lambda x: Leaky.apply(x).sin()  # noqa: E731
    assert ask(function, (x,)) is None
    found = ask(function, (x,), "forward_ad")
    assert found is not None
    assert [(entry.output_index, entry.leaf_index) for entry in found.worst] == [((17,), (4000,))]


def test_a_gradient_that_is_zero_beyond_a_block_is_found():
    """As a kernel whose backward pass forgets the last elements."""

    class Tail(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return torch.cat([grad[:4096], torch.zeros_like(grad[4096:])])

    found = ask(lambda x: Tail.apply(x).sin(), (numbers(4097).requires_grad_(),))
    assert found is not None
    assert [entry.leaf_index for entry in found.worst] == [(4096,)]
    assert found.worst[0].analytical == 0


def test_second_order_is_compared_in_all_entries():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return Squared.apply(x) * grad

    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 3 * x**2

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            found = 6 * x * grad
            found[1234] *= 1.05
            return found

    x = numbers(4097, low=0.5).requires_grad_()
    assert ask(lambda x: x**3, (x,), "rev_over_rev") is None
    assert ask(Cube.apply, (x,)) is None
    found = ask(Cube.apply, (x,), "rev_over_rev")
    assert [(entry.output_index, entry.leaf_index) for entry in found.worst] == [((1234,), (1234,))]


def test_a_kink_is_no_wrong_entry():
    x = numbers(4096)
    x[77] = 0
    found = ask(torch.relu, (x.requires_grad_(),))
    assert found.kind == "inconclusive"
    assert "move the sample away from input 0[77] = 0" in found.text


def test_a_backward_pass_that_is_not_linear_is_told():
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad.clamp(-1, 1)

    found = ask(Clipped.apply, (numbers(64, 64).requires_grad_(),))
    assert found.text.startswith("the backward pass is not linear in the cotangent")
