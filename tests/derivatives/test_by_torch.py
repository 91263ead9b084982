"""Every parameter of torch's two functions arrives where it should. One test a row of docs/parameters.md."""

import math
import re
from pathlib import Path

import pytest
import torch
from operators.asking import Request, ask_torch

from opcheck.derivatives import Numbers, by_torch
from opcheck.derivatives.by_torch import CannotAsk

NUMBERS = Numbers(eps=1e-5, atol=1e-4, rtol=1e-2, nondeterminism=1e-8)


@pytest.fixture
def asked(monkeypatch):
    """What gradcheck and gradgradcheck are called with, by name."""
    calls = []
    for name in ("gradcheck", "gradgradcheck"):

        def record(function, leaves, name=name, **parameters):
            calls.append((name, parameters))
            return True

        record.__name__ = name
        monkeypatch.setattr(by_torch, name, record)

    def ask(check, **changes):
        calls.clear()
        leaf = torch.ones(2, dtype=torch.float64, requires_grad=True)
        more = {key: changes.pop(key) for key in ("fast_mode", "raise_exception") if key in changes}
        assert ask_torch(check, Request(lambda x: (x.sin(),), (leaf,), NUMBERS, **changes), **more) is None
        return calls

    return ask


def only(calls):
    ((name, parameters),) = calls
    return name, parameters


@pytest.mark.parametrize(("name", "value"), [("eps", 1e-5), ("atol", 1e-4), ("rtol", 1e-2)])
def test_numbers_reach_gradcheck(asked, name, value):
    assert only(asked("backward"))[1][name] == value
    assert asked("rev_over_rev")[0][1][name] == value


def test_raise_exception_is_handed_over(asked):
    assert only(asked("backward"))[1]["raise_exception"] is True
    assert only(asked("backward", raise_exception=False))[1]["raise_exception"] is False


def test_without_raise_exception_a_failure_is_still_a_disagreement():
    leaf = torch.ones(1, dtype=torch.float64, requires_grad=True)
    request = Request(lambda x: (x.detach() * x,), (leaf,), NUMBERS)
    assert ask_torch("backward", request, raise_exception=False).text == "torch.autograd.gradcheck returned False"


def test_without_raise_exception_a_claim_is_not_blamed_for_another_one():
    class Shifted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, v):
            return 2 * v + 1

    leaf = torch.ones(2, dtype=torch.float64, requires_grad=True)
    request = Request(lambda x: (Shifted.apply(x),), (leaf,), NUMBERS)
    assert ask_torch("backward", request, raise_exception=False).kind == "wrong"
    assert ask_torch("nondeterminism", request, raise_exception=False) is None


def test_nondet_tol_is_that_of_the_spec_in_its_check_and_infinite_elsewhere(asked):
    assert only(asked("nondeterminism"))[1]["nondet_tol"] == 1e-8
    assert only(asked("backward"))[1]["nondet_tol"] == math.inf


@pytest.mark.parametrize(
    ("parameter", "check"),
    [
        ("check_undefined_grad", "undefined_grad"),
        ("check_grad_dtypes", "grad_dtypes"),
        ("check_batched_grad", "batched_grad"),
        ("check_batched_forward_grad", "batched_forward_grad"),
        ("check_forward_ad", "forward_ad"),
    ],
)
def test_each_feature_is_switched_on_in_its_check_alone(asked, parameter, check):
    assert only(asked(check))[1][parameter] is True
    assert not only(asked("backward"))[1].get(parameter, False)


def test_check_backward_ad_is_off_where_only_forward_mode_is_asked_for(asked):
    assert only(asked("forward_ad"))[1]["check_backward_ad"] is False
    assert only(asked("backward"))[1].get("check_backward_ad", True) is True


def test_undefined_tangents_are_asked_for_where_forward_mode_is_claimed(asked):
    assert only(asked("undefined_grad", forward_ad=True))[1]["check_forward_ad"] is True
    assert only(asked("undefined_grad", forward_ad=False))[1]["check_forward_ad"] is False


@pytest.mark.parametrize("fast", [False, True])
def test_fast_mode_is_handed_over(asked, fast):
    assert only(asked("backward", fast_mode=fast))[1]["fast_mode"] is fast
    assert asked("rev_over_rev", fast_mode=fast)[0][1]["fast_mode"] is fast


@pytest.mark.parametrize("masked", [False, True])
def test_masked_is_handed_over(asked, masked):
    assert only(asked("masked", masked=masked))[1]["masked"] is masked
    assert asked("rev_over_rev", masked=masked)[0][1]["masked"] is masked


def test_grad_outputs_are_handed_over_and_replace_generated_ones(asked):
    given = (torch.ones(2, dtype=torch.float64),)
    name, parameters = only(asked("rev_over_rev", grad_outputs=given))
    assert name == "gradgradcheck"
    assert parameters["grad_outputs"] is given


def test_generated_cotangents_are_contiguous_and_non_contiguous_in_turn(asked):
    assert [p["gen_non_contig_grad_outputs"] for _, p in asked("rev_over_rev")] == [False, True]
    assert [p["gen_non_contig_grad_outputs"] for _, p in asked("rev_over_rev", non_contiguous=(True,))] == [True]


def test_second_order_checks_ask_for_their_own_order_of_modes(asked):
    assert asked("rev_over_rev")[0][1]["check_rev_over_rev"] is True
    parameters = asked("fwd_over_rev")[0][1]
    assert (parameters["check_fwd_over_rev"], parameters["check_rev_over_rev"]) == (True, False)


def test_a_message_about_another_claim_is_left_to_the_check_of_that_claim():
    leaf = torch.ones(1, dtype=torch.float64, requires_grad=True)
    request = Request(lambda x: (x.detach() * x,), (leaf,), NUMBERS)
    assert ask_torch("batched_grad", request) is None
    assert "Jacobian mismatch" in ask_torch("backward", request).text


@pytest.mark.parametrize(
    ("message", "claim", "kind"),
    [
        ("Jacobian mismatch for output 0", "", "wrong"),
        ("something that nobody has heard of", "", "wrong"),
        ("Backward is not reentrant", "nondeterminism", "wrong"),
        ("grad is incorrect layout", "nondeterminism", None),  # which gradcheck looks at later
        ("grad is incorrect layout", "undefined_grad", "inconclusive"),  # which gradcheck looks at before
        ("Jacobian mismatch for output 0", "batching", "inconclusive"),
        ("something that nobody has heard of", "batching", "inconclusive"),
        ("Expected backward function to handle undefined output grads", "undefined_grad", "refused"),
        ("Expected all input grads to be undefined or zero", "undefined_grad", "wrong"),
        ("Mismatch in tangent values ... has an undefined tangent value", "undefined_grad", "wrong"),
        ("gradcheck failed while testing batched gradient computation. batched grad", "batching", "wrong"),
    ],
)
def test_a_message_contradicts_a_claim_or_leaves_it_untested_unless_the_claim_was_tested_before(message, claim, kind):
    found = by_torch._disagreement(message, claim)
    assert (found and found.kind) == kind


def test_a_claim_that_torch_did_not_come_to_is_not_held():
    leaf = torch.ones(1, dtype=torch.float64, requires_grad=True)
    request = Request(lambda x: (x * float("nan"),), (leaf,), NUMBERS)
    found = ask_torch("undefined_grad", request)
    assert found.kind == "inconclusive"
    assert "Jacobian" in found.text


def test_each_claim_is_a_question_of_its_own(asked):
    for check in ("batched_grad", "batched_forward_grad", "undefined_grad", "grad_dtypes", "nondeterminism"):
        assert only(asked(check))[0] == "gradcheck"


def test_it_imports_nothing_that_it_measures():
    own = re.findall(r"^from (opcheck\.\S+) import", Path(by_torch.__file__).read_text(), re.MULTILINE)
    assert set(own) == {"opcheck.derivatives.disagreement", "opcheck.derivatives.tolerances"}


def leaf():
    return torch.ones(2, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    "claim", ["rev_over_rev_over_rev", "rev_over_fwd", "fwd_over_fwd", "scalarized_second_order", "anything"]
)
def test_what_torchs_functions_do_not_test_is_not_asked(claim):
    with pytest.raises(CannotAsk, match=f"do not test {claim}"):
        ask_torch(claim, Request(lambda x: (x.sin(),), (leaf(),), NUMBERS))


def test_second_order_of_sparse_leaves_is_not_asked():
    sparse = torch.eye(2, dtype=torch.float64).to_sparse().requires_grad_()
    with pytest.raises(CannotAsk, match="sparse layout"):
        ask_torch("rev_over_rev", Request(lambda x: (x.to_dense(),), (sparse,), NUMBERS))


class Unbatched(torch.autograd.Function):
    """The identity, whose backward pass no vmap takes."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, v):
        return v * v.new_tensor(v.tolist()).div(v.detach()).nan_to_num(1.0)


def test_that_torch_cannot_batch_says_nothing_about_a_function():
    with pytest.raises(CannotAsk, match="its vmap lacks rules"):
        ask_torch("batched_grad", Request(lambda x: (Unbatched.apply(x),), (leaf(),), NUMBERS))
