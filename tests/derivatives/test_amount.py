"""A whole Jacobian is computed only where it fits into the memory that is allowed."""

import pytest
from operators.closed_forms import leaf

from opcheck.derivatives import Amount, BatchedEngine, Request, TooLarge
from opcheck.derivatives.amount import MATRICES
from opcheck.derivatives.numbers import DOUBLE

CHECKS = ("backward", "forward_ad", "batched_grad", "batched_forward_grad")


def ask(check, size, amount):
    request = Request(lambda x: (x.sin(),), (leaf(size),), DOUBLE, amount=amount, jacobians=("backward", "forward_ad"))
    return BatchedEngine().ask(check, request)


@pytest.mark.parametrize("check", [*CHECKS, "rev_over_rev", "fwd_over_rev"])
def test_in_full_a_large_jacobian_is_refused_before_it_is_allocated(check):
    with pytest.raises(
        TooLarge, match=r"batch_memory of \[tool.opcheck\].*smaller, or choose jacobian = \"projected\""
    ):
        ask(check, 4096, Amount("full"))


@pytest.mark.parametrize("check", CHECKS)
def test_the_budget_is_for_all_matrices_that_are_held_at_a_time(check):
    needed = 8 * MATRICES * 10 * 10
    assert ask(check, 10, Amount("full", budget=needed)) is None
    with pytest.raises(TooLarge, match=r"shape \(10, 10\) takes about 1 MiB"):
        ask(check, 10, Amount("full", budget=needed - 1))


@pytest.mark.parametrize("jacobian", ["projected", "auto"])
def test_projected_and_by_size_there_is_no_jacobian_that_could_be_too_large(jacobian):
    assert ask("backward", 4096, Amount(jacobian)) is None
    assert ask("backward", 10, Amount(jacobian, budget=1)) is None


def test_where_a_function_and_its_pullback_fit_apart_but_not_together_they_are_apart():
    together = 8 * MATRICES * 20 * 20
    both = Request(
        lambda x: (x.sin(),), (leaf(10),), DOUBLE, amount=Amount("full", budget=together - 1),
        jacobians=("backward", "rev_over_rev"),
    )  # fmt: skip
    for check in both.jacobians:
        assert BatchedEngine().ask(check, both) is None
