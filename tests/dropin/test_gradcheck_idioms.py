"""What suites written for torch's gradcheck do: the same verdict, call by call, and messages with the same beginning.

Each row is put to both functions. The expected verdict is torch's own; the pattern is one that suites look for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import Function, forward_ad
from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

import opcheck

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

FLOAT, COMPLEX = torch.float64, torch.complex128
FORWARD = {"check_forward_ad": True, "check_backward_ad": False}
BOTH = {"check_forward_ad": True}
MISMATCH = "^Jacobian mismatch for output 0 with respect to input 0,"
FORWARD_MISMATCH = "^Jacobian computed with forward mode mismatch for output 0 with respect to input 0,"


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def leaf(*shape, dtype=FLOAT, layout=torch.strided):
    generator = torch.Generator().manual_seed(len(shape))
    x = torch.rand(shape, dtype=dtype, generator=generator) + 0.5
    return x.to_sparse(layout=layout).requires_grad_() if layout is not torch.strided else x.requires_grad_()


def other(*shape):
    return leaf(*shape).detach().mul(2).requires_grad_()


def operator(backward, forward=lambda x: 2 * x, jvp=None, **attributes):
    """Return an operator of the old form, which takes `ctx` in its forward: 2 x, unless another function is given."""
    methods: dict[str, Any] = {
        "forward": staticmethod(lambda ctx, *xs: forward(*xs)),
        "backward": staticmethod(lambda ctx, *vs: backward(*vs)),
        **attributes,
    }
    if jvp is not None:
        methods["jvp"] = staticmethod(lambda ctx, *ts: jvp(*ts))
    return type("Operator", (Function,), methods).apply


def hooked(hook, function=lambda x: 2 * x):
    """Return a function with a hook on the gradient of its output."""

    def call(*inputs):
        output = function(*inputs)
        output.register_hook(hook)
        return output

    return call


def not_reentrant():
    factor = iter(range(10**6))
    return operator(lambda v: (2 + 1e-9 * next(factor)) * v)


def undefined_refused(materialize=False):
    class Refuses(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return 2 * x

        @staticmethod
        def backward(ctx, v):
            if v is None:
                raise RuntimeError("no cotangent")
            return 2 * v

        @staticmethod
        def jvp(ctx, t):
            return 2 * t

    return Refuses.apply


def undefined_wrong():
    class Ones(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x

        @staticmethod
        def backward(ctx, v):
            return torch.ones(3, dtype=FLOAT) if v is None else 2 * v

    return Ones.apply


def two_outputs(backward):
    """Return an operator with the outputs 2 x and 3 x, and a backward that may be given None for either."""

    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, v, w):
            return backward(v, w)

    return Two.apply


def right_of_two(v, w):
    return (0 if v is None else 2 * v) + (0 if w is None else 3 * w) if (v is not None or w is not None) else None


def needs_the_first(v, w):
    return None if v is None else right_of_two(v, w)


def needs_both(v, w):
    return None if v is None or w is None else right_of_two(v, w)


class Simulated(Exception):
    """Raised by an operator under test."""


def raising():
    raise Simulated("in the function")


def without_backward(x):
    """Return 2 x, and refuse a graph under a tangent."""
    if forward_ad.unpack_dual(x).tangent is not None and x.requires_grad:
        raise RuntimeError("a graph, though only forward mode is asked for")
    return 2 * x


def detached_part(part):
    """Return a complex function with the gradient of one of its two parts cut."""
    if part == "imaginary":
        return lambda z: torch.complex(z.real * 2, z.imag.detach() * 2)
    return lambda z: torch.complex(z.real.detach() * 2, z.imag * 2)


def changing(kind):
    """Return a function whose output has another shape or dtype beyond 0.7, where `edge` lies."""
    if kind == "shape":
        return lambda x: torch.cat([x, x]) if float(x.detach()[0]) > 0.7 else 1 * x
    return lambda x: x.float() if float(x.detach()[0]) > 0.7 else 1 * x


def edge():
    return torch.tensor([0.7, 1.0], dtype=FLOAT, requires_grad=True)


def linear():
    torch.manual_seed(0)
    return nn.Linear(3, 2).double()


@dataclass(frozen=True)
class Row:
    """A call: what it is about, how to make function and inputs anew, flags, and what torch says."""

    name: str
    make: Any
    says: str = ""
    """A pattern for the message; empty: it passes."""
    flags: dict[str, Any] = field(default_factory=dict)
    second: bool = False
    kind: type[Exception] = TorchGradcheckError


def captured(function):
    """Return a row's call for a function of (module, constant input), differentiated by the weight."""

    def make():
        module, constant = linear(), torch.ones(2, 3, dtype=FLOAT)
        return (lambda weight: function(module, constant, weight)), (module.weight,)

    return make


def all_parameters(function):
    def make():
        module = linear()
        return (lambda x, *parameters: function(module, x)), (leaf(2, 3), *module.parameters())

    return make


def twice(function):
    def make():
        x = leaf(3)
        return function, (x, x)

    return make


def one(function, *shape, **kind):
    return lambda: (function, (leaf(*(shape or (3,)), **kind),))


def two(function):
    return lambda: (function, (leaf(3), other(3)))


def views():
    memory = torch.rand(8, dtype=FLOAT)
    return (lambda a: a.as_strided((4,), (1,), 1) ** 2), (memory[2:6].detach().requires_grad_(),)


def overlapping_views():
    memory = leaf(4).detach()
    return torch.mul, (memory[:3].requires_grad_(), memory[1:].requires_grad_())


def force(power):
    return lambda x: torch.autograd.grad((x**power).sum(), x, create_graph=True)[0]


IN_PLACE = [
    Row("captured parameters", all_parameters(lambda m, x: m(x))),
    Row("captured weight", captured(lambda m, c, w: m(c))),
    Row("captured weight, halved gradient", captured(lambda m, c, w: m(c) + c @ m.weight.detach().T), MISMATCH),
    Row("captured weight, no gradient", captured(lambda m, c, w: c @ m.weight.detach().T), "expected to be zero"),
    Row(
        "captured weight, gradient of zeros", captured(lambda m, c, w: c @ m.weight.detach().T + 0 * w.sum()), MISMATCH
    ),
    Row("captured and given", captured(lambda m, c, w: w * m.weight)),
    Row("captured without gradient, and given", captured(lambda m, c, w: w * m.weight.detach()), MISMATCH),
    Row("captured, forward mode", captured(lambda m, c, w: m(c)), FORWARD_MISMATCH, BOTH),
    Row("captured, second order", captured(lambda m, c, w: m(c).exp()), second=True),
    Row("twice the same", twice(torch.mul)),
    Row("twice the same, one detached", twice(lambda a, b: a * b.detach()), MISMATCH),
    Row("twice the same, forward mode", twice(torch.mul), FORWARD_MISMATCH, BOTH),
    Row("twice the same, second order", twice(torch.mul), second=True),
    Row("views that overlap", overlapping_views, MISMATCH),
    Row("view of a larger storage", views),
    Row("view of a larger storage, second order", views, second=True),
    Row("as_strided", lambda: (lambda a, b: a.sum() + b.as_strided((2,), (1,), 0), (leaf(3), leaf(3)))),
    Row("gradient inside", one(force(3))),
    Row("gradient inside, second order", one(force(4)), second=True),
    Row(
        "gradient inside, without graph", one(lambda x: torch.autograd.grad((x**3).sum(), x)[0]), "expected to be zero"
    ),
    Row("hook", one(hooked(lambda v: v))),
    Row("hook that doubles", one(hooked(lambda v: 2 * v)), MISMATCH),
    Row("hook, second order", one(hooked(lambda v: v, torch.exp)), second=True),
    Row("hook, complex", one(hooked(lambda v: v, torch.exp), dtype=COMPLEX)),
    Row("only with gradients", one(lambda x: x.sin() if torch.is_grad_enabled() else 2 * x.sin())),
]
MESSAGES = [
    Row("mismatch", one(operator(lambda v: 3 * v)), MISMATCH),
    Row("second input", two(lambda a, b: a * b + b.detach()), MISMATCH.replace("input 0", "input 1")),
    Row("second output", two(lambda a, b: (a, a * b.detach())), MISMATCH.replace(" 0", " 1")),
    Row("two outputs", one(two_outputs(right_of_two))),
    Row("two outputs, the first one needed", one(two_outputs(needs_the_first)),
        MISMATCH.replace("output 0", "output 1"),
        {"check_undefined_grad": False}),
    Row("two outputs, both needed", one(two_outputs(needs_both)), MISMATCH, {"check_undefined_grad": False}),
    Row("two outputs, the other one raises", one(two_outputs(lambda v, w: raising() if v is None else 2 * v)),
        "in the function", {}, False, Simulated),
    Row("forward mode", one(operator(lambda v: 2 * v, jvp=lambda t: 3 * t)), FORWARD_MISMATCH, BOTH),
    Row("forward mode alone", one(operator(lambda v: 5 * v, jvp=lambda t: 3 * t)), FORWARD_MISMATCH, FORWARD),
    Row("forward mode without backward", one(without_backward), "", FORWARD),
    Row("forward mode batched, without backward", one(without_backward), "",
        {**FORWARD, "check_batched_forward_grad": True}),
    Row("reverse before forward", one(operator(lambda v: 5 * v, jvp=lambda t: 3 * t)), MISMATCH, BOTH),
    Row("imaginary part", one(detached_part("imaginary"), dtype=COMPLEX),
        "^While considering the imaginary part of complex outputs only, " + MISMATCH[1:]),
    Row("both parts", one(lambda z: z * z.detach(), dtype=COMPLEX),
        "^While considering the imaginary part of complex outputs only, " + MISMATCH[1:]),
    Row("not a number", two(lambda a, b: ((a - 1e3) ** 1.5, b.exp())), MISMATCH, second=True),
    Row("real part", one(detached_part("real"), dtype=COMPLEX),
        "^While considering the real part of complex outputs only, " + MISMATCH[1:]),
    Row("imaginary part, forward mode", one(operator(lambda v: 2 * v, jvp=lambda t: torch.complex(2 * t.real, t.imag)),
        dtype=COMPLEX), "^While considering the imaginary part of complex inputs only, " + FORWARD_MISMATCH[1:], BOTH),
    Row("real part, forward mode", one(operator(lambda v: 2 * v, jvp=lambda t: torch.complex(t.real, 2 * t.imag)),
        dtype=COMPLEX), "^While considering the real part of complex inputs only, " + FORWARD_MISMATCH[1:], BOTH),
    Row("complex to real", one(lambda z: z.abs() * z.detach().abs(), dtype=COMPLEX), MISMATCH),
    Row("real and complex outputs", one(lambda z: (z, z.abs()), dtype=COMPLEX), "", BOTH),
    Row("no differentiable output", one(lambda x: x.detach()), "^Numerical gradient for function expected to be zero"),
    Row("no differentiable output, forward mode", one(lambda x: x.detach()),
        "^Numerical gradient for function expected to be zero", FORWARD),
    Row("small, and no differentiable output", one(lambda x: 1e-7 * x.detach()),
        "^Numerical gradient for function expected to be zero"),
    Row("constant", one(lambda x: x.detach() * 0)),
    Row("integers", one(lambda x: x.argmax())),
    Row("not reentrant", lambda: (not_reentrant(), (leaf(3),)),
        "^Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "),
    Row("reentrant within the tolerance", lambda: (not_reentrant(), (leaf(3),)), "",
        {"nondet_tol": 1e-5}),
    Row("not multiplied", one(hooked(lambda v: v + 1e-2)), "^backward not multiplied by grad_output", {"atol": 0.1}),
    Row("sparse gradient", one(operator(lambda v: (2 * v).to_sparse())),
        r"^grad is incorrect layout \(torch.sparse_coo is not torch.strided\)"),
    Row("undefined refused", one(undefined_refused()), "^Expected backward function to handle undefined output grads"),
    Row("undefined wrong", one(undefined_wrong()),
        "^Expected all input grads to be undefined or zero when all output grads are undefined or zero"),
    Row("undefined materialized", one(undefined_refused(materialize=True))),
    Row("undefined not asked for", one(undefined_refused()), "", {"check_undefined_grad": False}),
    Row("undefined, forward mode alone", one(undefined_refused()), "", FORWARD),
    Row("output of another shape", lambda: (changing("shape"), (edge(),)),
        "return outputs with the same shape when inputs are perturbed", kind=AssertionError),
    Row("output of another dtype", lambda: (changing("dtype"), (edge(),)),
        "return outputs with the same dtype when inputs are perturbed", kind=AssertionError),
    Row("batched", one(operator(lambda v: 2 * torch.tensor(v.tolist(), dtype=FLOAT))),
        "^While computing batched gradients, got:", {"check_batched_grad": True}),
    Row("batched not asked for", one(operator(lambda v: 2 * torch.tensor(v.tolist(), dtype=FLOAT)))),
    Row("batched, old form", one(operator(lambda v: 2 * v, jvp=lambda t: 2 * t)), "",
        {**BOTH, "check_batched_grad": True, "check_batched_forward_grad": True}),
    Row("batched, old form inside", one(operator(operator(lambda v: 2 * v))), "", {"check_batched_grad": True}),
    Row("batched forward", one(operator(lambda v: 2 * v, jvp=lambda t: 2 * torch.tensor(t.tolist(), dtype=FLOAT))),
        "^While computing batched gradients, got:", {**BOTH, "check_batched_forward_grad": True}),
]  # fmt: skip


SECOND = [
    Row("constant cotangents", lambda: (lambda a: a * a, (leaf(3),), (torch.ones(3, dtype=FLOAT),)), second=True),
    Row("constant cotangents, linear", lambda: (lambda a: 2 * a, (leaf(3),), (torch.ones(3, dtype=FLOAT),)),
        second=True),
    Row("some constant cotangents", lambda: (lambda a, b: (a * b, a.exp()), (leaf(3), other(3)),
        (leaf(3).detach(), leaf(3))), "", {"check_fwd_over_rev": True}, second=True),
    Row("wrong for a constant cotangent", lambda: (operator(lambda v: 2 * v.detach() + 0 * v), (leaf(3),),
        (torch.ones(3, dtype=FLOAT),)), second=True),
    Row("wrong for the cotangent", lambda: (operator(lambda v: 2 * v.detach() + 0 * v), (leaf(3),)),
        MISMATCH.replace("input 0", "input 1"), second=True),
    Row("lost tangents", lambda: (nn.functional.mse_loss, (leaf(3), other(3))),
        "ZeroTensors are immutable", {"check_fwd_over_rev": True}, True, RuntimeError),
]  # fmt: skip
EXCEPTIONS = [
    Row("tangent returned as it is", one(operator(lambda v: v, lambda x: x, jvp=lambda t: t)),
        "forward is returning a view", BOTH, False, RuntimeError),
    Row("function raises", one(lambda x: raising()), "in the function", {}, False, Simulated),
    Row("backward raises", one(operator(lambda v: raising())), "in the function", {}, False, Simulated),
    Row("jvp raises", one(operator(lambda v: 2 * v, jvp=lambda t: raising())), "in the function", BOTH, False,
        Simulated),
    Row("jvp raises after a mismatch", one(operator(lambda v: 3 * v, jvp=lambda t: raising())), MISMATCH, BOTH),
    Row("no forward mode", one(operator(lambda v: 2 * v)), "implement the jvp", BOTH, False, RuntimeError),
    Row("no leaf", lambda: (torch.sin, (torch.ones(3),)), "at least one input tensor to require gradient", {}, False,
        ValueError),
    Row("sparse output", one(lambda x: x.to_sparse()), "^Sparse output is not supported at gradcheck yet", {}, False,
        ValueError),
    Row("mkldnn output", lambda: (lambda x: x.to_mkldnn(), (torch.rand(3, requires_grad=True),)),
        "^MKLDNN output is not supported at gradcheck yet", {}, False, ValueError),
]  # fmt: skip
SPARSE = [
    *(Row(f"{layout} input", one(lambda x: x.to_dense() * 2, 2, 2, layout=layout), "", {"masked": True})
      for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)),
    Row("dense and sparse inputs", lambda: (lambda s, d: torch.sparse.mm(s, d), (leaf(2, 2, layout=torch.sparse_coo),
        leaf(2, 2))), "", {"masked": True, "check_batched_grad": False}),
    Row("sparse, not multiplied", one(hooked(lambda v: v + 1e-2, lambda x: x.to_dense()), 2, 2,
        layout=torch.sparse_coo), "^backward not multiplied by grad_output", {"masked": True, "atol": 0.1}),
    Row("mkldnn input", lambda: (lambda x: x.to_dense() * 2, (torch.rand(2, 2).to_mkldnn().requires_grad_(),)), "",
        {"eps": 1e-2, "atol": 1e-2}),
    Row("mkldnn inputs", lambda: (lambda x, y: x + y.to_dense(), (torch.rand(2, requires_grad=True),
        torch.rand(2).to_mkldnn().requires_grad_())), "", {"eps": 1e-2, "atol": 1e-2}),
    Row("mkldnn input, forward mode", lambda: (lambda x: x.to_dense(), (torch.rand(2).to_mkldnn().requires_grad_(),)),
        "^MKLDNN inputs are not support(ed)? for forward AD gradcheck", FORWARD, False, ValueError),
]  # fmt: skip
ROWS = [*IN_PLACE, *MESSAGES, *SECOND, *EXCEPTIONS, *SPARSE]


def called(package, row, **more):
    """Return the exception that a call raises, or what it returns."""
    function, *inputs = row.make()
    check = getattr(package, "gradgradcheck" if row.second else "gradcheck")
    torch.manual_seed(0)
    try:
        return check(function, *inputs, **row.flags, **more)
    except Exception as error:
        return error


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
@pytest.mark.parametrize("package", [torch.autograd, opcheck], ids=["torch", "opcheck"])
def test_verdict_and_first_sentence(package, row):
    found = called(package, row)
    if not row.says:
        assert found is True
        return
    assert isinstance(found, row.kind)
    assert re.search(row.says, str(found))
    if package is opcheck and row.kind is TorchGradcheckError:
        assert isinstance(found, opcheck.GradcheckError)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
@pytest.mark.parametrize("package", [torch.autograd, opcheck], ids=["torch", "opcheck"])
def test_without_exceptions_what_is_wrong_is_false_and_what_raised_raises(package, row):
    found = called(package, row, raise_exception=False)
    if row.kind is TorchGradcheckError:
        assert found is not bool(row.says)
        assert isinstance(found, bool)
    else:
        assert isinstance(found, row.kind)
