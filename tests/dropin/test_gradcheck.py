"""The drop-in: what torch's functions accept, refuse, return, raise and warn of, ours do too."""

import inspect
import warnings

import pytest
import torch
from operators import faulty
from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

import opcheck

DTYPES = (torch.float64, torch.complex128)
NOT_REV = {"check_rev_over_rev": False}
FORWARD = {"check_forward_ad": True, "check_batched_forward_grad": True}
OURS, TORCH = (opcheck.gradcheck, opcheck.gradgradcheck), (torch.autograd.gradcheck, torch.autograd.gradgradcheck)


def leaf(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(shape, dtype=dtype, generator=generator) + 0.5).requires_grad_()


@pytest.mark.parametrize(("ours", "torchs"), list(zip(OURS, TORCH, strict=True)))
def test_parameters_and_defaults_are_those_of_torch(ours, torchs):
    mine, theirs = (inspect.signature(function).parameters for function in (ours, torchs))
    assert [(p.name, p.kind, p.default) for p in mine.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", OURS)
@pytest.mark.parametrize(
    "call",
    [
        (torch.sin, lambda d: leaf(2, 3, dtype=d)),
        (torch.mul, lambda d: (leaf(2, 3, dtype=d), leaf(3, dtype=d))),
        (lambda x, n, c: (x**n, c), lambda d: (leaf(2, dtype=d), 3, torch.ones(2, dtype=d))),
        (lambda x: (x * x).sum(), lambda d: [leaf(2, dtype=d)]),
        (lambda x: (x.abs(), x.real.argmax()) if x.is_complex() else (x.abs(), x.argmax()), lambda d: leaf(3, dtype=d)),
        (torch.sin, lambda d: leaf(0, 2, dtype=d)),
        (torch.exp, lambda d: leaf(dtype=d)),
    ],
)
def test_right_functions_return_true(function, call, dtype):
    func, inputs = call
    forward = {"check_forward_ad": True} if function is opcheck.gradcheck else {"check_fwd_over_rev": True}
    assert function(func, inputs(dtype), **forward) is True


@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_gradients_raise_an_exception_that_is_torchs_too(dtype):
    with pytest.raises(TorchGradcheckError, match="numerically") as raised:
        opcheck.gradcheck(faulty.one_wrong_entry, leaf(2, 3, dtype=dtype))
    assert isinstance(raised.value, opcheck.GradcheckError)
    assert raised.value.disagreement.mismatch.wrong >= 1
    assert opcheck.gradcheck(faulty.one_wrong_entry, leaf(2, 3, dtype=dtype), raise_exception=False) is False


def test_wrong_second_derivatives_raise():
    assert opcheck.gradcheck(faulty.second_order_wrong, leaf(3))
    with pytest.raises(opcheck.GradcheckError):
        opcheck.gradgradcheck(faulty.second_order_wrong, leaf(3))


@pytest.mark.parametrize(
    ("flag", "func"),
    [
        ({"check_forward_ad": True}, faulty.wrong_jvp),
        ({"check_forward_ad": True, "check_backward_ad": False}, faulty.wrong_jvp),
        ({"check_batched_grad": True}, faulty.not_batchable),
        ({}, faulty.nondeterministic),
        ({}, faulty.crashes_on_undefined_cotangent),
    ],
)
def test_each_switch_switches_its_check_on(flag, func):
    assert opcheck.gradcheck(func, leaf(2), raise_exception=False, **flag) is False


def test_switches_that_are_off_check_nothing():
    assert opcheck.gradcheck(faulty.nondeterministic, leaf(2), nondet_tol=1e-6)
    assert opcheck.gradcheck(faulty.crashes_on_undefined_cotangent, leaf(2), check_undefined_grad=False)
    assert opcheck.gradcheck(faulty.wrong_jvp, leaf(2))
    assert opcheck.gradcheck(faulty.not_batchable, leaf(2))


def test_exceptions_of_the_function_pass_through():
    for check in (opcheck.gradcheck, opcheck.gradgradcheck):
        with pytest.raises(RuntimeError, match="always raises"):
            check(faulty.raises, leaf(2))


def bad_calls():
    x = leaf(2)
    yield "no leaf", (torch.sin, torch.ones(2)), {}
    yield "overlapping memory", (torch.sin, leaf(1).detach().expand(3).requires_grad_()), {}
    yield "no mode", (torch.sin, x), {"check_backward_ad": False}
    yield "batched without backward", (torch.sin, x), {
        "check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True}  # fmt: skip
    yield "batched forward without forward", (torch.sin, x), {"check_batched_forward_grad": True}
    yield "sparse output", (lambda x: x.to_sparse(), x), {}
    for name in ("atol", "rtol"):
        yield f"{name} is nan", (faulty.both_orders_wrong, x), {name: float("nan")}
        yield f"{name} is negative", (torch.sin, x), {name: -1.0}


@pytest.mark.parametrize(("args", "flags"), [pytest.param(a, f, id=name) for name, a, f in bad_calls()])
def test_bad_calls_are_refused_as_torch_refuses_them(args, flags):
    with pytest.raises((ValueError, RuntimeError, AssertionError)) as theirs:
        torch.autograd.gradcheck(*args, **flags)
    with pytest.raises(type(theirs.value)) as ours:
        opcheck.gradcheck(*args, **flags)
    assert str(ours.value).split() == str(theirs.value).split()


@pytest.mark.parametrize(
    "flags",
    [
        NOT_REV,
        {**NOT_REV, "check_fwd_over_rev": True},
        {**NOT_REV, "check_fwd_over_rev": True, "check_undefined_grad": False, "check_batched_grad": True},
    ],
)
def test_bad_switches_of_gradgradcheck_are_refused_as_torch_refuses_them(flags):
    with pytest.raises(AssertionError) as theirs:
        torch.autograd.gradgradcheck(torch.sin, leaf(2), **flags)
    with pytest.raises(AssertionError) as ours:
        opcheck.gradgradcheck(torch.sin, leaf(2), **flags)
    assert str(ours.value) == str(theirs.value)


def test_single_precision_is_warned_of():
    with pytest.warns(UserWarning, match="is not a double precision floating point"):
        assert opcheck.gradcheck(torch.sin, leaf(2, dtype=torch.float32), eps=1e-3, atol=1e-2)


def test_nothing_else_is_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*torch.jit.script")  # torch's own, at its first use of forward mode
        assert opcheck.gradcheck(torch.sin, leaf(2))
        assert opcheck.gradgradcheck(torch.sin, leaf(2), check_fwd_over_rev=True)


def test_a_kink_that_torch_passes_is_warned_of():
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(torch.abs, x)
    with pytest.warns(UserWarning, match=r"move the sample away from input 0\[0\] = 0, input 0\[1\] = 0"):
        assert opcheck.gradcheck(torch.abs, x)


def test_a_kink_that_torch_fails_fails_with_its_reason():
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    assert not torch.autograd.gradcheck(torch.relu, x, raise_exception=False)
    with pytest.raises(opcheck.GradcheckError, match="kink or a jump"):
        opcheck.gradcheck(torch.relu, x)


def large(*zeros):
    """Return a leaf too large for a whole Jacobian, with zeros at some places."""
    x = leaf(600)
    with torch.no_grad():
        x[list(zeros)] = 0
    return x


def test_a_kink_of_a_large_sample_is_warned_of_only_where_the_jacobians_agree():
    with pytest.warns(UserWarning, match="kink or a jump here"):
        assert opcheck.gradcheck(torch.abs, large(3))
    with pytest.warns(UserWarning, match="kink or a jump near here"):
        assert opcheck.gradcheck(lambda x: x.abs().cumsum(0), large(3))
    with pytest.raises(opcheck.GradcheckError, match=r"(?s)^Jacobian mismatch for output 0 .*kink"):
        opcheck.gradcheck(torch.relu, large(3))
    assert not opcheck.gradcheck(lambda x: 2 * x.abs() - x.abs().detach(), large(3), raise_exception=False)


@pytest.mark.parametrize(
    ("size", "backward"),
    [(3, lambda v: 2 * v if v.count_nonzero() == 1 else 3 * v), (600, lambda v: 2 * v.clamp(-1, 1))],
    ids=["whole", "structured"],
)
def test_what_is_not_linear_is_said_in_our_own_words(size, backward):
    class Bent(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, v):
            return backward(v)

    with pytest.raises(opcheck.GradcheckError, match=r"^the backward pass is not linear"):
        opcheck.gradcheck(Bent.apply, leaf(size))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(("extra", "right"), [(1.0, False), (1e-6, False), (1e-11, True), (0.0, True)])
def test_outputs_are_pulled_back_together_too(extra, right, dtype):
    """Up to half of the digits may be rounding."""

    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, v, w):
            return 2 * v + 3 * w + extra * (v * w).sum()

    assert torch.autograd.gradcheck(Both.apply, leaf(3, dtype=dtype))
    if right:
        assert opcheck.gradcheck(Both.apply, leaf(3, dtype=dtype))
    else:
        with pytest.raises(opcheck.GradcheckError, match=r"^one backward pass for all outputs does not give the sum"):
            opcheck.gradcheck(Both.apply, leaf(3, dtype=dtype))


def test_given_cotangents_are_used():
    seen = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, v):
            seen.append(v.detach().clone())
            return 2 * ctx.saved_tensors[0] * v

    v = torch.full((2,), 7.0, dtype=torch.float64, requires_grad=True)
    assert opcheck.gradgradcheck(Watched.apply, leaf(2), v)
    assert torch.equal(seen[0], v)


@pytest.mark.parametrize("masked", [True, False])
def test_sparse_inputs_are_accepted(masked):
    x = torch.eye(2, dtype=torch.float64).to_sparse().requires_grad_()
    assert opcheck.gradcheck(lambda x: x.to_dense(masked_grad=masked) * 2, x, masked=masked)
    with pytest.raises(opcheck.GradcheckError):
        opcheck.gradcheck(faulty.wrong_sparse, x, masked=masked)


def test_mkldnn_inputs_are_accepted():
    x = torch.rand(2, 2).to_mkldnn().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = (
            check(lambda x: x.to_dense() * 2, x, eps=1e-2, atol=1e-2, check_batched_grad=False)
            for check in (opcheck.gradcheck, torch.autograd.gradcheck)
        )
    assert ours is theirs is True


@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck"])
def test_a_step_of_zero_is_answered_as_by_torch(check):
    for module in (opcheck, torch.autograd):
        with pytest.raises(TorchGradcheckError, match="Jacobian mismatch"):
            getattr(module, check)(torch.sin, leaf(3), eps=0)
        assert getattr(module, check)(torch.sin, leaf(3), eps=0, raise_exception=False) is False


def test_fast_mode_is_torchs_own():
    assert opcheck.gradcheck(torch.sin, leaf(3), fast_mode=True)
    with pytest.raises(opcheck.GradcheckError):
        opcheck.gradcheck(faulty.wrong_sign, leaf(3), fast_mode=True)


class OneAtATime(torch.autograd.Function):
    """A function with two outputs whose backward takes a cotangent for one of them, and a factor for the gradients."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, one, other):
        if one is not None and other is not None:
            raise RuntimeError("one at a time")
        return (one * 2 if other is None else other * 3) * ctx.factor, None


def test_a_wrong_gradient_comes_before_an_exception_of_a_pass_for_all_outputs():
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    assert not opcheck.gradcheck(lambda x: OneAtATime.apply(x, 1.5), x, raise_exception=False)
    with pytest.raises(opcheck.GradcheckError, match=r"^Jacobian mismatch for output 0"):
        opcheck.gradcheck(lambda x: OneAtATime.apply(x, 1.5), x)


class Unbatched(torch.autograd.Function):
    """A product with two whose backward pass works for ordinary cotangents only."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2 + 0 * float(g.detach().sum())


@pytest.mark.parametrize("size", [1, 5])
def test_a_backward_pass_that_cannot_be_vmapped_is_found_if_that_is_asked(size):
    x = torch.rand(size, dtype=torch.float64, requires_grad=True)
    assert opcheck.gradcheck(Unbatched.apply, x)
    with pytest.raises(opcheck.GradcheckError, match=r"^While computing batched gradients, got: "):
        opcheck.gradcheck(Unbatched.apply, x, check_batched_grad=True)


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_random_backward_pass_is_found(outputs):
    class Random(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return tuple(x * 2 for _ in range(outputs))

        @staticmethod
        def backward(ctx, *cotangents):
            return sum(cotangents) * (2 + 1e-9 * torch.rand(3, dtype=torch.float64))

    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(opcheck.GradcheckError, match=r"^Backward is not reentrant"):
        opcheck.gradcheck(Random.apply, x)
    assert opcheck.gradcheck(Random.apply, x, nondet_tol=1e-6)


def test_a_constant_cotangent_has_no_name_among_the_leaves():
    class SecondDetached(torch.autograd.Function):
        """(x^2, 2x), whose gradient does not know that it depends on the second cotangent."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x, 2 * x

        @staticmethod
        def backward(ctx, v, w):
            return 2 * ctx.saved_tensors[0] * v + 2 * w.detach()

    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    constant, other = torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(
        opcheck.GradcheckError, match="Jacobian mismatch for output 0 with respect to input 1"
    ) as caught:
        opcheck.gradgradcheck(SecondDetached.apply, x, (constant, other))
    assert caught.value.disagreement.worst[0].leaf_name == "cotangent of output 1"


def cast(target, factor):
    """Return a conversion to a dtype whose gradient is `factor` times the right one."""

    class Cast(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.dtype = x.dtype
            return x.to(target)

        @staticmethod
        def backward(ctx, g):
            return factor * g.to(ctx.dtype)

    return Cast.apply


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.02, False)])
def test_outputs_in_single_precision_are_compared_at_a_step_that_suits_them(factor, right, dtype):
    single = torch.complex64 if dtype.is_complex else torch.float32
    x = (10 * leaf(3, 4, dtype=dtype)).detach().requires_grad_()
    assert opcheck.gradcheck(cast(single, factor), x, raise_exception=False) is right


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_outputs_in_half_precision_are_said_to_be_too_coarse(half):
    with pytest.raises(opcheck.GradcheckError, match=f"values in {str(half)[6:]} are too coarse for .* step 1e-06"):
        opcheck.gradcheck(cast(half, 1.0), leaf(3))
    with pytest.raises(opcheck.GradcheckError, match="3 of 9 entries differ"):  # wrong beyond doubt
        opcheck.gradcheck(cast(half, -1.0), leaf(3))


def seeded_rrelu(x):
    torch.manual_seed(0)
    return torch.nn.functional.rrelu(x, training=True)


@pytest.mark.parametrize(
    ("order", "function", "flags"),
    [
        pytest.param(1, seeded_rrelu, FORWARD, id="only the vmap of torch's gradcheck batches it"),
        pytest.param(2, torch.round, {}, id="the gradient does not depend on the cotangent"),
    ],
)
def test_a_right_function_takes_far_fewer_passes_than_in_slow_mode(order, function, flags):
    passes = []

    def counted(x):
        y = function(x)
        y.register_hook(lambda v: passes[-1].append("backward")) if y.requires_grad else None
        passes[-1].append("forward")
        return y

    for check in (OURS[order - 1], TORCH[order - 1]):
        passes.append([])
        assert check(counted, leaf(8, 5), **flags)
    ours, theirs = map(len, passes)
    assert ours < 0.7 * theirs
